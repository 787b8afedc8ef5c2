"""The one place that says which releases of torch this package knows."""

import importlib.metadata

from .errors import EnvironmentLacks

TESTED = ("2.11",)
"""Release series whose private interfaces were tested: `Scheduler.codegen`, `define_kernel`, `LoopBody` and those in `watch.py`."""


def require_torch() -> None:
    """Checks that a torch that this package knows can be imported.

    Raises:
        EnvironmentLacks: it is missing, broken, or another release series.
    """
    remedy = f"Install it into this Python: pip install 'torch=={TESTED[-1]}.*'"
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise EnvironmentLacks("PyTorch is not installed in this Python", remedy) from None
    if ".".join(version.split(".")[:2]) not in TESTED:
        known = ", ".join(f"{series}.x" for series in TESTED)
        raise EnvironmentLacks(f"torch {version} is installed, and only {known} is known to this version of KernelOPT", remedy)
    try:
        import safetensors.torch  # noqa: F401
        import torch  # noqa: F401
    except (ImportError, OSError) as error:
        raise EnvironmentLacks(f"torch {version} or safetensors cannot be imported: {error}", f"{remedy} numpy safetensors") from None
