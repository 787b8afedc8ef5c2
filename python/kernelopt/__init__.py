"""KernelOPT's Python side: capture a compiled model, profile it, and judge a replacement of its generated file."""

__version__ = "0.1.0"
