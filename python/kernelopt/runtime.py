"""Runs the graphs of a bundle outside the model: the generated file as a module, on rebuilt inputs."""

import time
from collections.abc import Mapping
from types import ModuleType

import torch
from torch._inductor.codecache import PyCodeCache

from . import settings
from .bundle import TENSORS, Bundle
from .errors import BadInput
from .input_sets import Recipe
from .tensors import bitwise_equal, content_key, flat_storage, rebuild

CAPTURE_AGAIN = "Capture the model again."


def materialise(input_set: dict, storages: Mapping[str, torch.Tensor]) -> list:
    """The inputs of a graph in `input_set`, in memory of their own; views of one storage share it.

    Raises:
        BadInput: a tensor is missing, or a derived one does not come out as it was captured.
    """
    copies: dict[str, torch.Tensor] = {}

    def copied(key: str) -> dict[str, torch.Tensor]:
        if key in storages and key not in copies:
            copies[key] = storages[key].clone()
        return copies

    def value_of(value: dict) -> object:
        if "number" in value:
            return value["number"]
        if "tensor" in value:
            return rebuild(value["tensor"], copied(value["tensor"]["key"]))
        derived = Recipe(**input_set["recipe"]).derive(rebuild(value["derived"], storages))
        if content_key(flat_storage(derived)) != value["key"]:
            raise BadInput(f"the input set {input_set['name']} does not come out as it was captured", CAPTURE_AGAIN)
        return derived

    return [value_of(value) for value in input_set["values"]]


class Inputs:
    """The inputs of one graph in one input set, restored before every call where a call changes them.

    A compiled graph may write its inputs: mutations that the model asked for, and buffers that the compiler reuses.
    """

    def __init__(self, input_set: dict, storages: Mapping[str, torch.Tensor]) -> None:
        self._input_set = input_set
        self._storages = storages
        self.values = materialise(input_set, storages)
        self._saved: list[tuple[torch.Tensor, torch.Tensor]] = []

    def restore(self) -> list:
        """A fresh list of inputs to give to a call, which empties it."""
        for live, saved in self._saved:
            live.copy_(saved)
        return list(self.values)

    def changed(self) -> set[int]:
        """Positions of the inputs whose memory a call has changed since the last restore; all is restored, now and from now on."""
        original = self._flat(materialise(self._input_set, self._storages))
        saved_already = {live.data_ptr() for live, _ in self._saved}
        changed = set()
        for position, live in self._flat(self.values).items():
            if bitwise_equal(live, original[position]):
                continue
            changed.add(position)
            if live.data_ptr() not in saved_already:
                saved_already.add(live.data_ptr())
                self._saved.append((live, original[position]))
        self.restore()
        return changed

    @staticmethod
    def _flat(values: list) -> dict[int, torch.Tensor]:
        return {i: flat_storage(value) for i, value in enumerate(values) if isinstance(value, torch.Tensor)}


class LoadedGraph:
    """A generated file, loaded as torch loads it, with its constants."""

    def __init__(self, code: str, constants: Mapping[str, torch.Tensor]) -> None:
        key, path = PyCodeCache.write(code)
        self.module: ModuleType = PyCodeCache.load_by_key_path(key, path, attrs=dict(constants))

    def timed_call(self, inputs: Inputs) -> tuple[int, list]:
        """Nanoseconds of one call, restoring inputs not counted, and its outputs."""
        arguments = inputs.restore()
        started = time.perf_counter_ns()
        outputs = self.module.call(arguments)
        return time.perf_counter_ns() - started, list(outputs)


class GraphFiles:
    """The files of one graph in a bundle."""

    def __init__(self, bundle: Bundle, entry: dict, storages: Mapping[str, torch.Tensor]) -> None:
        self.index: int = entry["index"]
        self.calls_per_run: int = entry["calls_per_run"]
        self.code_name: str = entry["code"]
        self.code = bundle.text(entry["code"])
        self.kernels = [kernel["kernel"] for kernel in bundle.json(entry["meanings"])]
        self._bundle = bundle
        self._description = bundle.json(f"graph_{self.index}.json")
        self._storages = storages
        self.input_sets: dict[str, dict] = {s["name"]: s for s in self._description["input_sets"]}

    def load(self, code: str | None = None) -> LoadedGraph:
        """The generated file, or other code in its place."""
        constants = {name: self._constant(value) for name, value in self._description["constants"].items()}
        return LoadedGraph(self.code if code is None else code, constants)

    def inputs(self, name: str) -> Inputs:
        """The inputs in input set `name`."""
        return Inputs(self.input_sets[name], self._storages)

    def references(self) -> dict[str, torch.Tensor]:
        """Outputs of the float64 reference on all input sets, by the names that these give."""
        return self._bundle.tensors(f"reference_{self.index}.safetensors")

    def _constant(self, value: dict) -> torch.Tensor:
        if "tensor" in value:
            return rebuild(value["tensor"], self._storages)
        packing = value["packed"]
        operator = torch.ops
        for part in packing["operator"].split("."):
            operator = getattr(operator, part)
        return operator(*(rebuild(a["tensor"], self._storages) if "tensor" in a else a["value"] for a in packing["arguments"]))


def load_graphs(bundle: Bundle) -> list[GraphFiles]:
    """All graphs of a bundle, after this process was set to compute as the captured one did."""
    torch.set_num_threads(bundle.manifest["device"]["threads"])
    settings.restore_precision(bundle.manifest["precision"])
    storages = bundle.tensors(TENSORS)
    return [GraphFiles(bundle, entry, storages) for entry in bundle.manifest["graphs"]]


def environment() -> dict[str, object]:
    """What a measurement depends on, for the record."""
    return {
        "torch_threads": torch.get_num_threads(),
        "flush_denormal": settings.flushes_denormals(),
        "device": settings.device(),
        "versions": settings.versions(),
    }
