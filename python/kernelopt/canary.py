"""`python -m kernelopt canary`: can this Python compile a small model for its device, and is the result right?"""

import os
import tempfile

from .errors import EnvironmentLacks

SIZE = 1024


def canary(device: str) -> dict:
    """Compiles a small function for `device` (`cpu` or `cuda`) from scratch and compares it with the same, uncompiled.

    Returns:
        `{"right": True}`.

    Raises:
        EnvironmentLacks: the compiled one is wrong. What else a broken host raises is left as it is.
    """
    with tempfile.TemporaryDirectory() as cache:
        # What an earlier process has built says nothing of what this host can build now.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        import torch

        numbers = torch.linspace(-3.0, 3.0, SIZE, device=device)
        right = torch.allclose(torch.compile(_model)(numbers), _model(numbers), rtol=1e-3, atol=1e-5)
    if not right:
        raise EnvironmentLacks("a compiled function computes something else than the same function uncompiled")
    return {"right": True}


def _model(numbers):
    return (numbers.sin() * 2.0).softmax(0) + numbers.mean()
