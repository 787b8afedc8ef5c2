"""Torch's byte code, written to disk where it is missing: without it every process compiles two thousand modules before it starts.

Container images often set `PYTHONDONTWRITEBYTECODE=1` and come without any. A search of a minute then spends most of it on importing
torch, and its figures say more about that than about the search.
"""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

PACKAGES = ("torch", "triton", "sympy", "numpy", "mpmath", "safetensors")
"""What every process of ours imports, and what that imports."""


def keep_byte_code() -> None:
    """Compiles packages that have no byte code, side by side, and lets the processes that follow write theirs. Says what it did."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    missing = [folder for folder in map(_without, PACKAGES) if folder is not None]
    fixed = [folder for folder in missing if not os.access(folder, os.W_OK)]
    if fixed:
        print(f"no byte code, and no right to write it, in {', '.join(map(str, fixed))}: every import takes its time", flush=True)
    folders = [folder for folder in missing if folder not in fixed]
    if folders:
        began = time.monotonic()
        # Some files are templates and no Python; what is not compiled here is compiled when it is imported.
        subprocess.run([sys.executable, "-m", "compileall", "-qq", "-j", "0", *folders], check=False)
        names = ", ".join(folder.name for folder in folders)
        print(f"byte code of {names} was missing; it took {time.monotonic() - began:.0f} s to compile", flush=True)


def _without(name: str) -> Path | None:
    """The package's folder, where there is one and nothing compiled of it."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or Path(importlib.util.cache_from_source(spec.origin)).exists():
        return None
    return Path(spec.origin).parent


if __name__ == "__main__":
    keep_byte_code()
