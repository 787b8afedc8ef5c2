"""The bundle `tests/fixtures/bundles/user_triton`: two kernels of examples/triton_kernels.py in a file that the compiler wrote without a
GPU. What the capture says of their launches is made here: `python user_bundle.py` writes it anew, a test compares."""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import torch
import triton

from autotuners import autotuners_of
from kernelopt.grids import GridWatch
from kernelopt.observe import ObservedKernel

PLACE = Path(__file__).parents[2] / "tests/fixtures/bundles/user_triton"
ROWS, COLUMNS = 512, 4096


def entries(folder: Path) -> list[dict]:
    """The `KernelEntry` of each kernel, after the launches that the file makes."""
    kernels = autotuners_of(PLACE / "output_code_0.py", folder, chosen=0)
    values = torch.linspace(-4, 4, ROWS * COLUMNS)
    x, gate, y, z = (values.reshape(ROWS, COLUMNS).clone() for _ in range(4))
    n = x.numel()
    launches = {"scale_and_gate_0": (x, gate, y, n, 1.5, n // 64, 1, 1), "softmax_rows_1": (y, z, COLUMNS, COLUMNS)}
    made = []
    for name, kernel in kernels.items():
        kernel.run = lambda *arguments, stream: None
        entry = {"kernel": name, "meaning": None, "reason": "not seen"}
        ObservedKernel(entry, kernel).run(*launches[name], stream=0)
        made.append(entry)
    grids = GridWatch()
    grids.see(kernels["scale_and_gate_0"].fn, lambda meta: (triton.cdiv(n, meta["BLOCK"]),))
    grids.see(kernels["softmax_rows_1"].fn, (ROWS,))
    for entry in made:
        grids.name(entry)
    return made


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(entries(Path(folder)), indent=1) + "\n"
    (PLACE / "meanings_0.json").write_text(text)
    files = {name: (PLACE / name).read_bytes() for name in ("meanings_0.json", "output_code_0.py")}
    manifest = {
        "schema_version": 1,
        "model": "examples/triton_kernels.py",
        "versions": {"torch": torch.__version__, "triton": triton.__version__},
        "device": {"kind": "cuda", "name": "NVIDIA H200", "capability": "9.0", "threads": 1},
        "precision": {},
        "inductor": {},
        "compile_command": [],
        "graphs": [{"index": 0, "kind": "inference", "code": "output_code_0.py", "meanings": "meanings_0.json", "calls_per_run": 1}],
        "files": {name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in files.items()},
    }
    (PLACE / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
