"""What the arguments of a kernel held at capture, as order statistics: the Rust type `shared::target::Distribution`."""

import torch

QUANTILES = 129
GREATEST_SAMPLE = 1 << 22


def distribution(tensor: torch.Tensor) -> dict | None:
    """Quantiles of the finite values, least and greatest included, with the shares of zeros and NaN.

    Large tensors are sampled evenly; their least and greatest values are kept. None where nothing is finite.
    """
    values = tensor.detach().reshape(-1)
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
        "quantiles": ordered[picks].tolist(),
        "zero_share": int((finite == 0).sum()) / max(present, 1),
        "nan_share": int(nan.sum()) / values.numel(),
    }


def _sample(values: torch.Tensor) -> torch.Tensor:
    step = -(-values.numel() // GREATEST_SAMPLE)
    finite = values[values.isfinite()] if values.is_floating_point() else values
    ends = torch.stack([finite.min(), finite.max()]) if finite.numel() else values[:0]
    return torch.cat([values[::step], ends]).to(torch.float64)
