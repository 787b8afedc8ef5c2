"""Even orders of many elements, made by arithmetic: the same on every device, and cheap for tensors of any size."""

import math

import torch

GOLDEN = 0.6180339887498949
"""A stride of this share of the length visits a sequence evenly (Knuth, The Art of Computer Programming 3, 6.4)."""
GREATEST_FACTOR = 1 << 30
"""So that position times stride stays inside 64 bits for lengths up to 2^33."""


def positions(length: int, first: int, last: int, seed: int, device: torch.device) -> torch.Tensor:
    """Elements `first` to `last` of an order of `range(length)` in which every position occurs once.

    Element i is `(i * stride + seed) % length`, with a stride near the golden section of the length that shares no factor with it.
    """
    indices = torch.arange(first, last, dtype=torch.int64, device=device)
    return indices.mul_(_stride(length)).add_(seed * 7919).remainder_(length)


def _stride(length: int) -> int:
    stride = min(max(1, round(length * GOLDEN)), GREATEST_FACTOR)
    while math.gcd(stride, length) != 1:
        stride += 1
    return stride
