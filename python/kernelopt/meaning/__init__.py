"""Exports the *meaning* of every kernel that TorchInductor generates: its loop-level IR, as the compiler fused it.

The JSON is the contract of the Rust module `shared::meaning`. What it cannot express raises `Unsupported`, and the
kernel is recorded without a meaning and with the reason: nothing is ever guessed.
"""

from .exporter import KernelRecorder

__all__ = ["KernelRecorder"]
