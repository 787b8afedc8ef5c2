"""Tensors in a bundle: flat storages, each distinct content once, and views into them.

A view is written as `{"key", "dtype", "size", "stride", "offset"}`, sizes in elements. So tensors that share memory at
capture (a weight and its transpose, two halves of one buffer) share it again when they are rebuilt.
"""

import hashlib
from collections.abc import Mapping

import torch

from .errors import BadInput

View = dict[str, object]


class TensorStore:
    """Distinct storages, by content."""

    def __init__(self) -> None:
        self.storages: dict[str, torch.Tensor] = {}

    def add(self, tensor: torch.Tensor) -> View:
        """Copies what is behind `tensor`, as it is now, and returns the view that rebuilds it.

        Raises:
            BadInput: the tensor has no plain storage (sparse, mkldnn, a subclass).
        """
        flat = flat_storage(tensor)
        key = content_key(flat)
        if key not in self.storages:
            self.storages[key] = flat.clone()
        return view_of(tensor, key)


def flat_storage(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage behind `tensor` as one dimension of its element type; memory is shared."""
    plain = tensor.layout == torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type == "cpu"
    if not plain:
        raise BadInput(f"a tensor of type {type(tensor).__name__}, layout {tensor.layout} on {tensor.device} cannot be written to a bundle")
    storage = tensor.untyped_storage()
    flat = torch.empty(0, dtype=tensor.dtype)
    return flat.set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))


def content_key(flat: torch.Tensor) -> str:
    """Name of a storage: a hash of its bytes and element type."""
    digest = hashlib.sha256(str(flat.dtype).encode())
    digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()[:32]


def view_of(tensor: torch.Tensor, key: str) -> View:
    """Description of `tensor` as a view into the storage `key`."""
    return {
        "key": key,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "size": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset(),
    }


def rebuild(view: View, storages: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The tensor that `view` describes, sharing memory with its storage.

    Raises:
        BadInput: the storage is missing or too small.
    """
    if view["key"] not in storages:
        raise BadInput(f"the tensor {view['key']} is missing from the bundle", "Capture the model again.")
    storage = storages[view["key"]].untyped_storage()
    tensor = torch.empty(0, dtype=getattr(torch, view["dtype"]))
    try:
        return tensor.set_(storage, view["offset"], view["size"], view["stride"])
    except RuntimeError as error:
        raise BadInput(f"the tensor {view['key']} does not fit its description: {error}", "Capture the model again.") from None


def bitwise_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and type hold the same bits."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape hold equal numbers, NaN in the same places included."""
    return bool(((a == b) | ((a != a) & (b != b))).all())
