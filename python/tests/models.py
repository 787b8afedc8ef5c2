"""Small models for tests: factories as a user writes them."""

import torch
from torch import nn
from torch.nn import functional as F


def _randomised(module: nn.Module) -> nn.Module:
    """Weights of one and biases of zero would hide faults."""
    for parameter in module.parameters():
        parameter.data = torch.rand_like(parameter) - 0.5
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.data = torch.rand_like(buffer) + 0.5
    return module


class Mlp(nn.Module):
    def __init__(self, broken: bool = False) -> None:
        super().__init__()
        self.norm, self.widen, self.narrow = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 16)
        self.broken = broken

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.widen(self.norm(x)))
        if self.broken:
            torch._dynamo.graph_break()
        return torch.softmax(self.narrow(x), dim=-1)


def mlp():
    torch.manual_seed(0)
    return _randomised(Mlp()).eval(), (torch.randn(24, 32),)


def broken():
    torch.manual_seed(0)
    return _randomised(Mlp(broken=True)).eval(), (torch.randn(24, 32),)


def bf16():
    torch.manual_seed(0)
    return _randomised(Mlp()).eval().bfloat16(), (torch.randn(24, 32, dtype=torch.bfloat16),)


def frozen_conv():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4), nn.GELU())
    return _randomised(layers).eval(), (torch.randn(2, 4, 8, 8),)


def batch_norm():
    torch.manual_seed(0)
    return _randomised(nn.Sequential(nn.BatchNorm2d(6), nn.ReLU())), (torch.randn(4, 6, 7, 7),)


def _many(ids, table, x, rows, index):
    """One function with the rarer constructs: indirect loads, masks, overlapping outputs, ties, integers, atomics, mutation."""
    embedded = F.embedding(ids, table) * 2
    padded = F.pad(embedded, (1, 2), value=0.5)
    joined = torch.cat([x.relu(), x.exp()], dim=1)
    pooled = F.max_pool1d(x.view(1, 16, 32), 3, 2, 1)
    added = torch.zeros(8, 32).index_add(0, index, x)
    codes = ((x * 10).to(torch.int32) // 3).to(torch.uint8)
    variance, mean = torch.var_mean(x, dim=0)
    rows.mul_(2).add_(1)
    causal = torch.softmax(x[:, :16].masked_fill(torch.ones(16, 16, dtype=torch.bool).triu(1), float("-inf")), dim=-1)
    turned = x.flip(0) + x.roll(3, 1) - torch.where(x > 0, x**3, x.abs() ** 1.5)
    return padded, joined @ torch.ones(64, 2), joined.argmax(-1), pooled, added, codes, variance, mean, causal, turned, x.any(dim=1)


def many():
    torch.manual_seed(0)
    ids, index = torch.randint(0, 50, (6,)), torch.randint(0, 8, (16,))
    return _many, (ids, torch.randn(50, 12), torch.randn(16, 32), torch.randn(4, 5), index)


def attention():
    torch.manual_seed(0)
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v).sin()), tuple(torch.randn(3, 1, 2, 16, 8).unbind())


def dropout():
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), (torch.randn(4, 8),)


def unsupported():
    return (lambda x: torch.lgamma(x) + 1), (torch.ones(64),)


def raises():
    raise ValueError("no such checkpoint")


def wrong_return():
    return torch.nn.Identity()


def fails_when_run():
    return (lambda x: x @ x), (torch.randn(3, 4),)


class Nested(nn.Module):
    """Arguments and results in containers, not in the order in which they are used."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(8) + 0.5)

    def forward(self, first: torch.Tensor, others: dict[str, torch.Tensor], factor: int) -> dict:
        left = others["b"].sin() * self.scale
        return {"pair": (left + first, None), "name": "nested", "again": first.exp() * factor + others["a"]}


def nested():
    torch.manual_seed(0)
    return Nested().eval(), (torch.randn(4, 8), {"a": torch.randn(4, 8), "b": torch.randn(4, 8)}, 3)
