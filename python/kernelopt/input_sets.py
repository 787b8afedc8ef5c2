"""Input sets: what a model was captured on, and the same at other scales.

The scaled sets hold the values of the example inputs in a new order, multiplied by a factor; weights and integers stay.
A graph input that *is* an example input is not stored again but derived: permutation and factor follow from the recipe.
Other inputs (saved activations of a backward graph, what crosses a graph break) come from running the model on the scaled
inputs, and are stored.
"""

import dataclasses

import torch

from .distributions import flat_values
from .spread import positions

CAPTURED = "captured"
SHUFFLED, SPREAD = "shuffled", "spread"
"""Orders: a seeded random permutation, made on the processor, or an even one that a GPU makes by arithmetic."""
CHUNK = 1 << 26
"""Elements put into their new order together, since every index takes eight bytes."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How an input set is derived from the captured one."""

    name: str
    scale: float
    seed: int
    order: str = SHUFFLED

    def applies_to(self, tensor: torch.Tensor) -> bool:
        """Whether the values of `tensor` are changed: floats, each element in a place of its own."""
        return tensor.is_floating_point() and tensor.numel() > 0 and not torch._debug_has_internal_overlap(tensor)

    def derive(self, tensor: torch.Tensor) -> torch.Tensor:
        """A new tensor of the same strides: the values of `tensor` in another order, times the factor.

        The same on every machine: the order is a function of the seed and the length, and a product by a power of two is exact
        (but for the least normal numbers).
        """
        values = self._ordered(tensor.detach()).mul_(self.scale).reshape(tensor.shape)
        derived = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        return derived.copy_(values).requires_grad_(tensor.requires_grad)

    def _ordered(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.order == SHUFFLED:
            order = torch.randperm(tensor.numel(), generator=torch.Generator().manual_seed(self.seed))
            return tensor.reshape(-1)[order.to(tensor.device)]
        values, length = flat_values(tensor), tensor.numel()
        ordered = torch.empty(length, dtype=tensor.dtype, device=tensor.device)
        for first in range(0, length, CHUNK):
            last = min(first + CHUNK, length)
            ordered[first:last] = values[positions(length, first, last, self.seed, tensor.device)]
        return ordered

    def to_json(self) -> dict:
        """`{"name", "scale", "seed", "order"}`."""
        return dataclasses.asdict(self)


def scaled(kind: str) -> tuple[Recipe, ...]:
    """The sets that are captured besides the captured scale, on a device of this kind."""
    order = SPREAD if kind == "cuda" else SHUFFLED
    return Recipe("quarter", 0.25, 1, order), Recipe("fourfold", 4.0, 2, order)
