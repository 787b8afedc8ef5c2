#!/usr/bin/env python3
"""Compiles CUDA C++ to a cubin with NVRTC: `ops_cubin.py OUT.cubin SOURCE.cu... [--arch sm_90] [--ptx]`.

The sources are one translation unit, in the order given; a folder stands for the device's own ops in it. NVRTC is taken from
torch's wheels (`nvidia/cu13/lib`, `nvidia/cuda_nvrtc/lib`) or from the system.
"""

import argparse
import ctypes
import ctypes.util
import glob
import os
import sys
from pathlib import Path

# Order of the ops' files: each uses only what stands before it (see `gpu-agent/src/cuda/ops/mod.rs`).
OPS = ("kernel", "random", "element", "draw", "poison", "digest", "widen", "errors", "compare", "difference", "sweep")


def candidates() -> list[str]:
    """Places of the library, likeliest first."""
    found = []
    for folder in sys.path:
        for wheel in ("cu13", "cuda_nvrtc"):
            found += sorted(glob.glob(os.path.join(folder, "nvidia", wheel, "lib", "libnvrtc.so.*")))
    system = ctypes.util.find_library("nvrtc")
    return found + [name for name in (system, "/usr/local/cuda/lib64/libnvrtc.so") if name]


def load() -> ctypes.CDLL:
    """The first of them that loads."""
    tried = []
    for path in candidates():
        try:
            # NVRTC opens its builtins by name alone: they must be there already where the loader does not look.
            for builtins in glob.glob(os.path.join(os.path.dirname(path), "libnvrtc-builtins.so.*")):
                ctypes.CDLL(builtins)
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(f"{path}: {error}")
    sys.exit("no NVRTC: " + ("; ".join(tried) or "install torch for CUDA, or the CUDA toolkit"))


def compile_to(nvrtc: ctypes.CDLL, source: str, arch: str, ptx: bool) -> tuple[bytes, str]:
    """The image and the compiler's log; ends the program where it does not compile."""
    program = ctypes.c_void_p()

    def check(code: int, doing: str) -> None:
        if code != 0:
            nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
            sys.exit(f"{doing}: {nvrtc.nvrtcGetErrorString(code).decode()}\n{log() if program else ''}")

    def fetch(size_of: str, get: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(nvrtc, size_of)(program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, get)(program, data)
        return data.raw[: size.value]

    def log() -> str:
        return fetch("nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace")

    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"source.cu", 0, None, None), "creating the program")
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
    check(nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)), "compiling")
    if ptx:
        return fetch("nvrtcGetPTXSize", "nvrtcGetPTX").rstrip(b"\0"), log()
    return fetch("nvrtcGetCUBINSize", "nvrtcGetCUBIN"), log()


def texts(paths: list[Path]) -> str:
    """The sources, one after the other."""
    files = [file for path in paths for file in ([path / f"{name}.cu" for name in OPS] if path.is_dir() else [path])]
    return "\n".join(file.read_text() for file in files)


def main() -> None:
    """Reads the arguments, compiles, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--ptx", action="store_true", help="write PTX for people to read instead")
    arguments = parser.parse_args()
    image, log = compile_to(load(), texts(arguments.sources), arguments.arch, arguments.ptx)
    if log.strip():
        print(log, file=sys.stderr)
    arguments.out.write_bytes(image)
    print(f"{arguments.out}: {len(image)} bytes for {arguments.arch}")


if __name__ == "__main__":
    main()
