"""`python -m kernelopt.build SCRATCH ARCHITECTURE`: says what it has, then serves orders until stdin ends."""

import os
import sys
from pathlib import Path

from .order import BuildFault, Order, Product
from .protocol import Channel
from .worker import StraysLeft, Worker

WARM_UP = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math

@triton.jit
def warm_up(pointer, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    tl.store(pointer + index, libdevice.exp(tl.load(pointer + index)))
"""


def main() -> int:
    """Serves; an exit status for the agent's log only."""
    channel = Channel.take_over_standard_streams()
    scratch, architecture = Path(sys.argv[1]), int(sys.argv[2])
    os.environ["TRITON_CACHE_DIR"] = str(scratch / "cache")
    lacks = _import_compilers(architecture)
    channel.send({"hello": 1, "lacks_triton": lacks})
    try:
        Worker(channel, scratch, _build).serve()
    except StraysLeft:
        return 1
    return 0


def _import_compilers(architecture: int) -> str | None:
    """Imports Triton and has it compile once, so that no build waits for what is set up at first use; why there is none."""
    try:
        from . import kernel, truth  # noqa: F401

        signature = (("pointer", "*fp32"),)
        kernel.build(Order("triton", WARM_UP, architecture, "kernel", 60, 60, "warm_up", signature, constants={"BLOCK": 32}))
    except BuildFault as fault:
        return f"Triton does not compile: {fault.reason}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _build(order: Order) -> Product:
    if order.language == "cuda":
        from . import nvrtc

        return nvrtc.build(order)
    from . import kernel, truth

    return truth.build(order) if order.kind == "twin" else kernel.build(order)


if __name__ == "__main__":
    sys.exit(main())
