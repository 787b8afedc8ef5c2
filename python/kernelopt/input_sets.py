"""Input sets: what a model was captured on, and the same at other scales.

The scaled sets hold the values of the example inputs in a new order, multiplied by a factor; weights and integers stay.
A graph input that *is* an example input is not stored again but derived: permutation and factor follow from the recipe.
Other inputs (saved activations of a backward graph, what crosses a graph break) come from running the model on the scaled
inputs, and are stored.
"""

import dataclasses

import torch

CAPTURED = "captured"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How an input set is derived from the captured one."""

    name: str
    scale: float
    seed: int

    def applies_to(self, tensor: torch.Tensor) -> bool:
        """Whether the values of `tensor` are changed: floats, each element in a place of its own."""
        return tensor.is_floating_point() and tensor.numel() > 0 and not torch._debug_has_internal_overlap(tensor)

    def derive(self, tensor: torch.Tensor) -> torch.Tensor:
        """A new tensor of the same strides: the values of `tensor` in another order, times the factor.

        The same on every machine: the permutation comes from a seeded generator, and a product by a power of two is exact
        (but for the least normal numbers).
        """
        order = torch.randperm(tensor.numel(), generator=torch.Generator().manual_seed(self.seed))
        values = tensor.detach().reshape(-1)[order].mul_(self.scale).reshape(tensor.shape)
        derived = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
        return derived.copy_(values).requires_grad_(tensor.requires_grad)

    def to_json(self) -> dict:
        """`{"name", "scale", "seed"}`."""
        return dataclasses.asdict(self)


SCALED = (Recipe("quarter", 0.25, 1), Recipe("fourfold", 4.0, 2))
"""The sets that are captured besides the captured scale."""
