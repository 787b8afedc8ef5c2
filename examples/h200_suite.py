"""Six models for a data-centre GPU: four single operations that large models spend their time in, and two whole models.

Sizes are chosen so that every tensor is far larger than the L2 cache. Llama and BERT need the package `transformers`.

    python -m kernelopt capture examples/h200_suite.py:softmax -o out/softmax --device cuda
"""

import torch
from torch import nn
from torch.nn import functional as F

ROWS, WIDTH = 8192, 8192
SOFTMAX_ROWS, SOFTMAX_WIDTH = 4096, 32_768
TOKENS, VOCABULARY = 4096, 128_256
BATCH, CHANNELS, SIDE, GROUPS = 16, 64, 256, 8


class RmsNorm(nn.Module):
    """`x / sqrt(mean(x^2) + eps) * weight` over the last dimension (Zhang and Sennrich 2019), the mean in float32."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., width]."""
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps).to(x.dtype)
        return x * scale * self.weight


class LastHidden(nn.Module):
    """A model of `transformers` that takes token ids and gives the last layer's states: [batch, sequence, width]."""

    def __init__(self, model: nn.Module, **options: bool) -> None:
        super().__init__()
        self.model = model
        self.options = options

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: [batch, sequence]."""
        return self.model(input_ids=ids, **self.options).last_hidden_state


def rms(device: str = "cuda"):
    """One RMSNorm, bfloat16."""
    _begin()
    norm = RmsNorm(WIDTH)
    nn.init.normal_(norm.weight, 1.0, 0.2)  # a weight of one would hide faults
    return norm.to(device, torch.bfloat16).eval(), (torch.randn(ROWS, WIDTH, device=device, dtype=torch.bfloat16),)


def softmax(device: str = "cuda"):
    """One softmax over long rows, bfloat16."""
    _begin()
    return _softmax, (torch.randn(SOFTMAX_ROWS, SOFTMAX_WIDTH, device=device, dtype=torch.bfloat16),)


def cross_entropy(device: str = "cuda"):
    """The loss of a language model with a vocabulary of Llama 3's size, bfloat16."""
    _begin()
    logits = torch.randn(TOKENS, VOCABULARY, device=device, dtype=torch.bfloat16)
    return F.cross_entropy, (logits, torch.randint(0, VOCABULARY, (TOKENS,), device=device))


def group_norm(device: str = "cuda"):
    """One group norm over images (Wu and He 2018), float32."""
    _begin()
    norm = nn.GroupNorm(GROUPS, CHANNELS)
    nn.init.normal_(norm.weight, 1.0, 0.2)
    nn.init.normal_(norm.bias, 0.0, 0.2)
    return norm.to(device).eval(), (torch.randn(BATCH, CHANNELS, SIDE, SIDE, device=device),)


def llama(device: str = "cuda"):
    """Four layers of a Llama of 1.1 billion parameters' width, with grouped heads, bfloat16."""
    from transformers import LlamaConfig, LlamaModel

    _begin()
    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=32_000,
        use_cache=False,
    )
    model = LlamaModel(config).to(device, torch.bfloat16).eval()
    return LastHidden(model, use_cache=False).eval(), (torch.randint(0, config.vocab_size, (4, 1024), device=device),)


def bert(device: str = "cuda"):
    """BERT base (Devlin et al. 2018), bfloat16."""
    from transformers import BertConfig, BertModel

    _begin()
    model = BertModel(BertConfig()).to(device, torch.bfloat16).eval()
    return LastHidden(model).eval(), (torch.randint(0, 30_000, (32, 512), device=device),)


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


def _begin() -> None:
    """Fixes the random values, and lets products of float32 matrices use the tensor cores (TF32), as is usual in deployment."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
