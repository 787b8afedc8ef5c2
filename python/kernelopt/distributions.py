"""What the arguments of a kernel held at capture, as order statistics: the Rust type `shared::target::Distribution`.

All of it is computed on the tensor's device; only the quantiles leave it.
"""

import math

import torch

from .spread import positions

QUANTILES = 129
GREATEST_SAMPLE = 1 << 22
CHUNK = 1 << 26
"""Elements looked at together when the ends of a large tensor are sought, so that little memory is needed besides it."""


def distribution(tensor: torch.Tensor) -> dict | None:
    """Quantiles of the finite values, least and greatest included, with the shares of zeros and NaN.

    Large tensors are sampled, but their least and greatest values are kept: indices are drawn between them. None where nothing is
    finite.
    """
    values = flat_values(tensor)
    if values.numel() == 0 or values.is_complex():
        return None
    values = values.to(torch.float64) if values.numel() <= GREATEST_SAMPLE else _sample(values)
    nan = values.isnan()
    finite = values[values.isfinite()]
    if finite.numel() == 0:
        return None
    ordered = finite.sort().values
    picks = torch.linspace(0, ordered.numel() - 1, QUANTILES, dtype=torch.float64).round().long()
    present = values.numel() - int(nan.sum())
    return {
        "quantiles": ordered[picks.to(ordered.device)].tolist(),
        "zero_share": int((finite == 0).sum()) / max(present, 1),
        "nan_share": int(nan.sum()) / values.numel(),
    }


def flat_values(tensor: torch.Tensor) -> torch.Tensor:
    """All elements in one dimension, in the order of memory where that needs no copy."""
    tensor = tensor.detach()
    if torch._prims_common.is_non_overlapping_and_dense_or_false(tensor):
        return tensor.as_strided((tensor.numel(),), (1,))
    return tensor.reshape(-1)


def _sample(values: torch.Tensor) -> torch.Tensor:
    picks = positions(values.numel(), 0, GREATEST_SAMPLE, 0, values.device)
    ends = [end for end in _ends(values) if math.isfinite(end)]
    return torch.cat([values[picks].to(torch.float64), torch.tensor(ends, dtype=torch.float64, device=values.device)])


def _ends(values: torch.Tensor) -> tuple[float, float]:
    """Least and greatest finite value; infinite where there is none."""
    least, greatest = math.inf, -math.inf
    for chunk in values.split(CHUNK):
        if chunk.dtype == torch.bool:
            chunk = chunk.to(torch.uint8)
        if chunk.is_floating_point():
            finite = chunk.isfinite()
            low, high = chunk.where(finite, math.inf).amin(), chunk.where(finite, -math.inf).amax()
        else:
            low, high = chunk.aminmax()
        least, greatest = min(least, low.item()), max(greatest, high.item())
    return least, greatest
