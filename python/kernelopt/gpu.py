"""The GPU: whether it can be used, what it is, and what its errors mean to a person."""

import ctypes
import importlib.metadata
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator

import torch

from .errors import BadInput, EnvironmentLacks, UserError, in_short

LEAST_CAPABILITY = (7, 0)
"""What the Triton kernels of torch 2.11 need."""
OUT_OF_MEMORY_CODE = 2
FAULT_CODES = frozenset([700, 702, 710, 714, 715, 716, 717, 718, 719])
"""`cudaError_t` of errors that a kernel made: illegal and misaligned addresses, assertions, time-outs and the like."""
FAULT_TEXT = re.compile(
    "illegal memory access|misaligned address|illegal instruction|invalid program counter|device-side assert|launch timed out"
    "|unspecified launch failure"
)
"""The same in words: triton raises plain errors."""
CAPTURE_CODES = range(900, 910)
"""`cudaError_t` of what cannot be captured in a CUDA graph; the device is well."""


def require_gpu() -> None:
    """Checks that models can be compiled for the GPU and run on it.

    Raises:
        EnvironmentLacks: there is no GPU, no driver, no triton, or no C compiler for triton's launchers.
    """
    if torch.version.cuda is None:
        raise EnvironmentLacks(f"torch {torch.__version__} was built without CUDA", "Install a CUDA build of torch, or use --device cpu.")
    if not torch.cuda.is_available():
        remedy = "Run this on a host with an NVIDIA GPU and driver, or use --device cpu."
        raise EnvironmentLacks(f"no GPU can be used: {_why_none()}", remedy)
    capability = torch.cuda.get_device_capability()
    if capability < LEAST_CAPABILITY:
        least = ".".join(map(str, LEAST_CAPABILITY))
        found = f"{torch.cuda.get_device_name()} has compute capability {capability[0]}.{capability[1]}"
        raise EnvironmentLacks(f"{found}, and Triton needs {least}", "Use a newer GPU, or --device cpu.")
    if importlib.util.find_spec("triton") is None:
        raise EnvironmentLacks("triton is not installed in this Python", "Install the release that belongs to torch: pip install triton")
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        raise EnvironmentLacks("no C compiler was found, and triton builds its launchers with one", "Install gcc, or set CC.")


def _why_none() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f" (CUDA_VISIBLE_DEVICES is {visible!r})"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f"{_first_sentence(error)}{hidden}"
    return f"torch counts {torch.cuda.device_count()} devices{hidden}"


def facts() -> dict[str, object]:
    """What the current device is."""
    properties = torch.cuda.get_device_properties()
    return {
        "name": properties.name,
        "uuid": f"GPU-{properties.uuid}",
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
    }


def versions() -> dict[str, str]:
    """Versions that a GPU capture depends on besides torch's own."""
    return {"triton": importlib.metadata.version("triton"), "cuda": str(torch.version.cuda), "driver": driver_version()}


def driver_version() -> str:
    """The driver's version as NVML tells it, `580.159.04`."""
    text = ctypes.create_string_buffer(80)
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() != 0:
            return "unknown"
        known = nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text))) == 0
        nvml.nvmlShutdown()
    except (OSError, AttributeError):
        return "unknown"
    return text.value.decode(errors="replace") if known else "unknown"


def is_fault(error: BaseException) -> bool:
    """Whether a kernel faulted: the context is lost, and with it whatever this process still wanted of the GPU."""
    return any(_is_fault(link) for link in _chain(error))


def _is_fault(link: BaseException) -> bool:
    return _code(link) in FAULT_CODES or (isinstance(link, RuntimeError) and FAULT_TEXT.search(str(link)) is not None)


def explained(error: BaseException) -> UserError | None:
    """The same as an error for people, where the GPU is behind it."""
    for link in _chain(error):
        code = _code(link)
        if isinstance(link, torch.OutOfMemoryError) or code == OUT_OF_MEMORY_CODE or "[CUDA]: out of memory" in str(link):
            remedy = "Free the GPU (nvidia-smi shows who uses it), choose another with CUDA_VISIBLE_DEVICES, or make the inputs smaller."
            return EnvironmentLacks(f"the GPU's memory is not enough: {_first_sentence(link)}", remedy)
        if _is_fault(link):
            remedy = "Run the model with CUDA_LAUNCH_BLOCKING=1 to see where."
            return BadInput(f"a kernel faulted on the GPU: {_first_sentence(link)}", remedy)
        if isinstance(link, torch.AcceleratorError) and code not in CAPTURE_CODES:
            remedy = "See nvidia-smi and the kernel's log (lines with Xid); when the GPU answers again, run the same command again."
            return EnvironmentLacks(f"the GPU was lost: {_first_sentence(link)}", remedy)
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it was raised from; the compiler keeps what it wraps under `inner_exception`."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        link = waiting.pop(0)
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting += [getattr(link, "inner_exception", None), link.__cause__, link.__context__]


def _code(error: BaseException) -> int | None:
    return getattr(error, "error_code", None) if isinstance(error, torch.AcceleratorError) else None


def _first_sentence(error: BaseException) -> str:
    """What happened, without the advice and the addresses that follow."""
    text = str(error).strip() or in_short(error)
    return re.split(r"\n|(?<=[a-z])\. ", text, maxsplit=1)[0].rstrip(".")
