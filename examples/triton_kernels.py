"""Kernels that were written by hand, each called as a program would: `python -m kernelopt capture examples/triton_kernels.py:softmax -o BUNDLE` on a host with a GPU."""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 1024}, num_warps=4), triton.Config({"BLOCK": 4096}, num_warps=8)], key=["columns"])
@triton.jit
def softmax_rows(x, y, stride, columns, BLOCK: tl.constexpr):
    """One program a row: a running maximum and sum, then the quotients."""
    row = tl.program_id(0).to(tl.int64) * stride
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + row + column, mask=column < columns, other=-1.0e30).to(tl.float32)
        larger = tl.maximum(largest, value)
        total = total * tl.exp(largest - larger) + tl.exp(value - larger)
        largest = larger
    top = tl.max(largest, 0)
    total = tl.sum(total * tl.exp(largest - top), 0)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + row + column, mask=column < columns, other=-1.0e30).to(tl.float32)
        tl.store(y + row + column, tl.exp(value - top) / total, mask=column < columns)


@triton.jit
def scale_and_gate(x, gate, y, n, scale, BLOCK: tl.constexpr):
    """`x * sigmoid(scale * gate)`, a block of elements a program."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    value = tl.load(x + index, mask=inside)
    tl.store(y + index, value * tl.sigmoid(scale * tl.load(gate + index, mask=inside)), mask=inside)


def softmax(device: str = "cuda"):
    """Rows of 32768, where the block and the warps of the author's own list need not be the best ones."""

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        softmax_rows[(x.shape[0],)](x, y, x.stride(0), x.shape[1])
        return y

    return call, (torch.randn(4096, 32768, device=device),)


def gated(device: str = "cuda"):
    """Sixteen million elements in blocks that are too small; the grid says how it follows from the block."""

    def call(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        n = x.numel()
        scale_and_gate[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, gate, y, n, 1.5, BLOCK=64, num_warps=1)
        return y

    return call, tuple(torch.randn(4096, 4096, device=device) for _ in range(2))
