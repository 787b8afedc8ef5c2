"""CUDA C++ to machine code through NVRTC, NVIDIA's compiler as a library. No device and no driver are asked."""

import ctypes
import functools
import importlib.util
import re
from pathlib import Path

from .order import MAX_SOURCE_BYTES, BuildFault, Order, Product, refused
from .ptxas import resources

NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
REMEDY = "no NVRTC: install it into this Python (pip install nvidia-cuda-nvrtc), or the CUDA toolkit"
SOURCE = "source.cu"
_ERROR_LINE = re.compile(rf"^{re.escape(SOURCE)}\((\d+)\): (?:catastrophic )?error", re.MULTILINE)
WARP = 32
OUT_OF_MEMORY = 1
"""`NVRTC_ERROR_OUT_OF_MEMORY` (nvrtc.h)."""


def build(order: Order) -> Product:
    """The kernel of an order; with kind `module`, all kernels of its source.

    Raises:
        BuildFault: it does not compile, or there is no NVRTC.
    """
    if order.kind == "twin":
        raise BuildFault("untwinned", "CUDA C++ has no float64 twin")
    if len(order.source) > MAX_SOURCE_BYTES:
        raise refused(f"{len(order.source)} characters of source; at most {MAX_SOURCE_BYTES} are compiled", 1)
    cubin, log = _compile(order)
    if order.kind == "module":
        return Product(cubin, {})
    used = resources(log, order.entry)
    if not used["registers"]:
        raise BuildFault("compiler", f'the source defines no extern "C" __global__ function {order.entry}')
    facts = {
        "entry": order.entry,
        "shared_bytes": 0,
        "threads": order.num_warps * WARP,
        "hidden_pointers": 0,
        "registers": used["registers"],
        "spill_bytes": used["spill_bytes"],
    }
    return Product(cubin, facts)


def _options(order: Order) -> list[str]:
    # As Triton does, from 9.0 on with the architecture's own features.
    suffix = "a" if order.architecture >= 90 else ""
    folders = [f"--include-path={folder}" for folder in _headers()]
    constants = [f"--define-macro={name}={value}" for name, value in sorted(order.constants.items())]
    return [f"--gpu-architecture=sm_{order.architecture}{suffix}", "--std=c++17", "--ptxas-options=-v", *folders, *constants]


def _compile(order: Order) -> tuple[bytes, str]:
    library = _library()
    program = ctypes.c_void_p()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), order.source.encode(), SOURCE.encode(), 0, None, None))
    options = [option.encode() for option in _options(order)]
    code = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    log = _text(library, "nvrtcGetProgramLog", program)
    if code == OUT_OF_MEMORY:
        raise MemoryError
    if code:
        first = _ERROR_LINE.search(log)
        said = log.replace(f"{SOURCE}(", "line (").strip() or library.nvrtcGetErrorString(code).decode()
        raise BuildFault("compiler", said, int(first[1]) if first else None)
    return _bytes(library, "nvrtcGetCUBIN", program), log


def _bytes(library: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(library, f"{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library, what)(program, buffer))
    return buffer.raw


def _text(library: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> str:
    return _bytes(library, what, program).rstrip(b"\0").decode(errors="replace")


def _check(code: int) -> None:
    if code:
        raise BuildFault("environment", f"NVRTC: {_library().nvrtcGetErrorString(code).decode()}")


@functools.cache
def _library() -> ctypes.CDLL:
    """That of the Python wheels before the system's.

    Raises:
        BuildFault: there is none.
    """
    for folder in (*_wheel_folders("lib"), None):
        for name in NAMES:
            place = name if folder is None else str(folder / name)
            try:
                # NVRTC opens its second half by its bare name: loaded before, it is found.
                for builtins in sorted(folder.glob("libnvrtc-builtins.so*")) if folder else ():
                    ctypes.CDLL(str(builtins))
                library = ctypes.CDLL(place)
            except OSError:
                continue
            library.nvrtcGetErrorString.restype = ctypes.c_char_p
            return library
    raise BuildFault("environment", REMEDY)


def _headers() -> list[Path]:
    """Folders of `cuda_bf16.h` and its kin."""
    return [folder for folder in (*_wheel_folders("include"), Path("/usr/local/cuda/include")) if (folder / "cuda_fp16.h").is_file()]


def _wheel_folders(name: str) -> list[Path]:
    """Folders of the wheels nvidia-cuda-nvrtc and nvidia-cuda-runtime, of either layout."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    parts = ("cu13", "cu12", "cuda_nvrtc", "cuda_runtime")
    return [folder for root in roots for part in parts if (folder := root / part / name).is_dir()]
