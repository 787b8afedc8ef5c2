#!/usr/bin/env python3
"""The referee on this host's GPU: planted and honest kernels, the baseline against itself, faults among many.

    PYTHONPATH=python python3 tests/gpu/referee.py --kernelopt target/release/kernelopt --tests PROGRAM --out results [TEST...]

PROGRAM is the test program, built anywhere by `cargo test --release --no-run -p kernelopt-tests --test gpu_referee`. Captures the
targets first, then runs the tests one after the other; each writes what it saw to `results`. Ends with 1 where one fails.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve()


def gelu(device: str = "cuda"):
    """4 Mi elements, float32."""
    import torch

    torch.manual_seed(0)
    return torch.nn.functional.gelu, (torch.randn(2048, 2048, device=device),)


def softmax(device: str = "cuda"):
    """512 rows of 2048, float32."""
    import torch

    torch.manual_seed(0)
    return (lambda x: torch.softmax(x, -1)), (torch.randn(512, 2048, device=device),)


def softmax_large(device: str = "cuda"):
    """4096 rows of 32768, bfloat16."""
    import torch

    torch.manual_seed(0)
    return (lambda x: torch.softmax(x, -1)), (torch.randn(4096, 32768, device=device, dtype=torch.bfloat16),)


def layer_norm(device: str = "cuda"):
    """4096 rows of 1024, float32, weights and biases of every kind."""
    import torch

    torch.manual_seed(0)
    norm = torch.nn.LayerNorm(1024)
    torch.nn.init.normal_(norm.weight, 1.0, 0.2)
    torch.nn.init.normal_(norm.bias)
    return norm.to(device).eval(), (torch.randn(4096, 1024, device=device),)


def transposed(device: str = "cuda"):
    """The sum of a matrix and another one's transpose, float32."""
    import torch

    torch.manual_seed(0)
    return (lambda a, b: a + torch.relu(b.T)), (torch.randn(2048, 3072, device=device), torch.randn(3072, 2048, device=device))


def few_rows(device: str = "cuda"):
    """8 rows of 262144, float32: parts of rows have programs of their own, and a second launch."""
    import torch

    torch.manual_seed(0)
    return (lambda x: torch.softmax(x, -1)), (torch.randn(8, 262144, device=device),)


TARGETS = ["gelu", "softmax", "softmax_large", "layer_norm", "transposed", "few_rows"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", help="names of tests, or parts of them")
    parser.add_argument("--kernelopt", type=Path, default=ROOT / "target/release/kernelopt")
    parser.add_argument("--tests", dest="program", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/kernelopt-referee"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "KERNELOPT_PYTHON": sys.executable, "PYTHONPATH": path}
    # All at once: most of a capture is spent on importing torch.
    captures = [
        subprocess.Popen(
            [sys.executable, "-m", "kernelopt", "capture", f"{HERE}:{name}", "-o", options.work / name, "--device", "cuda", "--force"],
            env=environment,
        )
        for name in TARGETS
    ]
    if any([capture.wait() != 0 for capture in captures]):
        return 1
    environment |= {
        "KERNELOPT_BINARY": str(options.kernelopt.resolve()),
        "KERNELOPT_GPU_BUNDLES": str(options.work),
        "KERNELOPT_FIXTURES": str(ROOT / "tests/fixtures/gpu"),
        "KERNELOPT_GPU_RESULTS": str(options.out.resolve()),
    }
    command = [options.program.resolve(), "--ignored", "--test-threads", "1", "--nocapture", *options.tests]
    return 1 if subprocess.run(command, env=environment).returncode else 0


if __name__ == "__main__":
    sys.exit(main())
