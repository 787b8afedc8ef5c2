"""One pre-norm transformer block (Xiong et al. 2020): layer norm, causal attention, layer norm, GELU feed-forward.

The matrix products go to the vendor's library; layer norms, the masked softmax and the GELU are generated kernels.

    python -m kernelopt capture examples/transformer_block.py:make -o out/block
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

BATCH, SEQUENCE, WIDTH, HEADS = 2, 256, 256, 8


class Block(nn.Module):
    """`x + attention(norm(x))`, then `x + mlp(norm(x))`, with the attention written out so that its softmax is fused."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        """Causal self-attention of x: [batch, sequence, width]."""
        batch, sequence, width = x.shape
        q, k, v = self.qkv(x).view(batch, sequence, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        future = torch.ones(sequence, sequence, dtype=torch.bool, device=x.device).triu(1)
        weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        return self.project((weights @ v).transpose(1, 2).reshape(batch, sequence, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, sequence, width]."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.narrow(F.gelu(self.widen(self.mlp_norm(x))))


def make(device: str = "cpu"):
    """A block with random norms too, since weights of one and biases of zero would hide faults, and one input."""
    torch.manual_seed(0)
    block = Block(WIDTH, HEADS).to(device).eval()
    for norm in (block.attention_norm, block.mlp_norm):
        nn.init.normal_(norm.weight, 1.0, 0.2)
        nn.init.normal_(norm.bias, 0.0, 0.2)
    return block, (torch.randn(BATCH, SEQUENCE, WIDTH, device=device),)
