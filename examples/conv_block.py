"""A residual convolution block as in ResNet (He et al. 2016), for inference, with the mean pooling of the model's head.

The convolutions go to the vendor's library; batch norm, ReLU, the residual sum and the pooling are generated kernels.

    python -m kernelopt capture examples/conv_block.py:make -o out/conv
"""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 8, 64, 28


class ConvBlock(nn.Module):
    """Mean over the image of `relu(x + norm(conv(relu(norm(conv(x))))))`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, channels, height, width]; the result is [batch, channels]."""
        y = torch.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return torch.relu(x + y).mean(dim=(2, 3))


def make(device: str = "cpu"):
    """A block with the statistics of a trained one (random, since means of zero would hide faults), and one input."""
    torch.manual_seed(0)
    block = ConvBlock(CHANNELS).eval()
    for norm in (block.norm1, block.norm2):
        nn.init.normal_(norm.weight, 1.0, 0.2)
        nn.init.normal_(norm.bias, 0.0, 0.2)
        norm.running_mean.normal_(0.0, 0.2)
        norm.running_var.uniform_(0.5, 2.0)
    return block.to(device), (torch.randn(BATCH, CHANNELS, SIDE, SIDE, device=device),)
