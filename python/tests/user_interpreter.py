"""Run by a test with TRITON_INTERPRET=1: float64 references that launch twins, against formulas of torch.

Takes a JSON list of `{"code", "inputs", "formula"}` on stdin; prints for each the greatest error over the greatest magnitude."""

import json
import sys

import torch

import twin_interpreter  # noqa: F401  (makes the interpreter work with numpy 2)
from kernelopt.reference import Float64Graph

FORMULAS = {"gated": lambda x, gate: x * torch.sigmoid(1.5 * gate), "softmax": lambda x: torch.softmax(x, -1)}


def main():
    generator = torch.Generator().manual_seed(0)
    found = {}
    for case in json.load(sys.stdin):
        inputs = [torch.randn(*case["size"], generator=generator) for _ in range(case["inputs"])]
        written = torch.full(case["size"], float("nan"))
        graph = Float64Graph(case["code"], tuple(range(len(inputs) + 1)), {})
        ((result,), changed) = graph.run([*inputs, written])
        assert result.dtype == torch.float64 and not changed, changed
        truth = FORMULAS[case["formula"]](*(value.double() for value in inputs))
        found[case["formula"]] = float((result - truth).abs().max() / truth.abs().max())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
