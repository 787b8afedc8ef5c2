"""KernelOPT's Python side: capture a compiled model, profile it, judge a replacement of its generated file, and load the result."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .optimized import OptimizedModel

__version__ = "0.1.0"


def load(out: str | Path, bundle: str | Path | None = None) -> "OptimizedModel":
    """The model that `kernelopt tune ... -o OUT` optimised, as a callable with the captured weights; see `OptimizedModel`."""
    from .torch_version import require_torch

    require_torch()
    from .optimized import load as load_model

    return load_model(out, bundle)
