"""Tensors in a bundle: flat storages, each distinct content once, and views into them.

A view is written as `{"key", "dtype", "size", "stride", "offset"}`, sizes in elements, with `"device"` where that is not the
processor, and with `"memory"`, a number that two views have in common when they shared memory at capture (a weight and its
transpose, two halves of one buffer): then they share it again when they are rebuilt, and two that were only equal do not.
"""

import hashlib
from collections.abc import Mapping

import torch

from .errors import BadInput

View = dict[str, object]
DEVICE_TYPES = ("cpu", "cuda")
DIGEST_CHUNK = 1 << 22


class TensorStore:
    """Distinct storages, by content, in the processor's memory."""

    def __init__(self) -> None:
        self.storages: dict[str, torch.Tensor] = {}

    def add(self, tensor: torch.Tensor, memory: int | None = None) -> View:
        """Copies what is behind `tensor`, as it is now, and returns the view that rebuilds it.

        Args:
            memory: number of the memory behind it, where that may be shared.

        Raises:
            BadInput: the tensor has no plain storage (sparse, mkldnn, a subclass).
        """
        flat = flat_storage(tensor)
        on_processor = flat.cpu()
        key = content_key(on_processor)
        if key not in self.storages:
            self.storages[key] = on_processor.clone() if on_processor is flat else on_processor
        return view_of(tensor, key, memory)


def flat_storage(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage behind `tensor` as one dimension of its element type; memory is shared."""
    plain = tensor.layout == torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type in DEVICE_TYPES
    if not plain:
        raise BadInput(f"a tensor of type {type(tensor).__name__}, layout {tensor.layout} on {tensor.device} cannot be written to a bundle")
    storage = tensor.untyped_storage()
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return flat.set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))


def content_key(flat: torch.Tensor) -> str:
    """Name of a storage: a hash of its bytes and element type."""
    digest = hashlib.sha256(str(flat.dtype).encode())
    digest.update(flat.cpu().view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()[:32]


def view_of(tensor: torch.Tensor, key: str, memory: int | None = None) -> View:
    """Description of `tensor` as a view into the storage `key`."""
    return {
        "key": key,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "size": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset(),
        **({} if tensor.device.type == "cpu" else {"device": str(tensor.device)}),
        **({} if memory is None else {"memory": memory}),
    }


class Copies:
    """Live copies of storages on their devices; views of one memory share it, for as long as they come from here."""

    def __init__(self, storages: Mapping[str, torch.Tensor]) -> None:
        self._storages = storages
        self._live: dict[tuple, torch.Tensor] = {}

    def view(self, view: View) -> torch.Tensor:
        """The tensor that `view` describes.

        Raises:
            BadInput: its storage is missing or too small.
        """
        key, device = view["key"], view.get("device", "cpu")
        identity = (key, device, view.get("memory"))
        if key in self._storages and identity not in self._live:
            self._live[identity] = self._storages[key].to(device, copy=True)
        return rebuild(view, {key: self._live[identity]} if identity in self._live else {})


def rebuild(view: View, storages: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The tensor that `view` describes, sharing memory with its storage.

    Raises:
        BadInput: the storage is missing or too small.
    """
    if view["key"] not in storages:
        raise BadInput(f"the tensor {view['key']} is missing from the bundle", "Capture the model again.")
    flat = storages[view["key"]]
    tensor = torch.empty(0, dtype=getattr(torch, view["dtype"]), device=flat.device)
    try:
        return tensor.set_(flat.untyped_storage(), view["offset"], view["size"], view["stride"])
    except RuntimeError as error:
        raise BadInput(f"the tensor {view['key']} does not fit its description: {error}", "Capture the model again.") from None


class Digester:
    """Digests of memory, computed where the memory is; only a few numbers leave the device.

    A digest is one number per chunk: the sum of its 32-bit words, each times an odd random number, modulo 2^64 (multilinear
    hashing; the numbers are drawn anew in every process). One changed word always shows.
    """

    def __init__(self) -> None:
        generator = torch.Generator()
        generator.seed()
        self._factors = torch.randint(-(1 << 62), 1 << 62, (DIGEST_CHUNK,), generator=generator) * 2 + 1
        self._on_device: dict[torch.device, torch.Tensor] = {}

    def digest(self, flat: torch.Tensor) -> torch.Tensor:
        """Digest of the bytes of a flat tensor, in the processor's memory."""
        data = flat.view(torch.uint8)
        whole = data.numel() // 4 * 4
        sums = [self._sum(words) for words in data[:whole].view(torch.int32).split(DIGEST_CHUNK) if words.numel()]
        return torch.stack([*sums, self._sum(data[whole:])]).cpu()

    def _sum(self, words: torch.Tensor) -> torch.Tensor:
        if words.device not in self._on_device:
            self._on_device[words.device] = self._factors.to(words.device)
        return (words.to(torch.int64) * self._on_device[words.device][: words.numel()]).sum()


def bitwise_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and type hold the same bits."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape hold equal numbers, NaN in the same places included."""
    return bool(((a == b) | ((a != a) & (b != b))).all())
