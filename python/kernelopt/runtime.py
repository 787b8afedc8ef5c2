"""Runs the graphs of a bundle outside the model: the generated file as a module, on rebuilt inputs."""

import functools
import sys
from collections.abc import Mapping
from types import ModuleType

import torch
from torch._inductor.codecache import PyCodeCache

from . import gpu, settings
from .bundle import CAPTURE_AGAIN, TENSORS, Bundle
from .clock import Clock
from .errors import BadInput
from .input_sets import Recipe
from .reference import Float64Graph, NoReference
from .tensors import Copies, Digester, content_key, flat_storage


def materialise(input_set: dict, storages: Mapping[str, torch.Tensor], shared: "SharedWeights | None" = None, check: bool = True) -> list:
    """The inputs of a graph in `input_set`, in memory of their own; views of one memory share it.

    Args:
        shared: weights, which are the same in every input set; when absent, they get memory of their own as well.
        check: whether derived tensors are compared with what was captured.

    Raises:
        BadInput: a tensor is missing, or a derived one does not come out as it was captured.
    """
    own = Copies(storages)

    def value_of(value: dict) -> object:
        if "number" in value:
            return value["number"]
        if "tensor" in value:
            view = value["tensor"]
            return (shared.copies if shared is not None and shared.has(view) else own).view(view)
        derived = Recipe(**input_set["recipe"]).derive(Copies(storages).view(value["derived"]))
        if check and content_key(flat_storage(derived)) != value["key"]:
            raise BadInput(f"the input set {input_set['name']} does not come out as it was captured", CAPTURE_AGAIN)
        return derived

    return [value_of(value) for value in input_set["values"]]


Saved = list[tuple[torch.Tensor, torch.Tensor]]


class SharedWeights:
    """The weights among the inputs of one graph, once for all input sets."""

    def __init__(self, inputs: list[dict], values: list[dict], storages: Mapping[str, torch.Tensor]) -> None:
        views = [value["tensor"] for described, value in zip(inputs, values, strict=True) if described["weight"] and "tensor" in value]
        self.copies = Copies(storages)
        self.digests: dict[int, torch.Tensor] = {}
        """By position of the input, as captured."""
        self.saved: Saved = []
        """Weights that a call changes, live and as captured."""
        self._memories = {view["memory"] for view in views if "memory" in view}

    def has(self, view: dict) -> bool:
        """Whether what a view describes is a weight, or lies in the memory of one."""
        return view.get("memory") in self._memories


class Inputs:
    """The inputs of one graph in one input set, restored before every call where a call changes them.

    A compiled graph may write its inputs: mutations that the model asked for, and buffers that the compiler reuses.
    """

    def __init__(self, input_set: dict, storages: Mapping[str, torch.Tensor], shared: SharedWeights, digester: Digester) -> None:
        self._input_set = input_set
        self._storages = storages
        self._shared = shared
        self._digester = digester
        self._saved: Saved = []
        self.values = materialise(input_set, storages, shared)
        weights = {i for i, value in enumerate(input_set["values"]) if "tensor" in value and shared.has(value["tensor"])}
        self.own = [i for i, value in enumerate(self.values) if isinstance(value, torch.Tensor) and i not in weights]
        """Positions of the tensors that belong to this input set alone."""
        flat = self._flat(self.values)
        shared.digests |= {i: digester.digest(flat[i]) for i in weights - set(shared.digests)}
        self._digests = {i: digester.digest(flat[i]) for i in self.own} | {i: shared.digests[i] for i in weights}
        self.restore()

    def restore(self) -> list:
        """A fresh list of inputs to give to a call, which empties it."""
        for live, saved in (*self._saved, *self._shared.saved):
            live.copy_(saved)
        return list(self.values)

    def changed(self, after: dict[int, torch.Tensor] | None = None) -> set[int]:
        """Positions of the inputs whose memory a call has changed since the last restore; all is restored, now and from now on.

        Args:
            after: gets copies of these inputs as the call left them.
        """
        live = self._flat(self.values)
        changed = {i for i, flat in live.items() if not torch.equal(self._digester.digest(flat), self._digests[i])}
        if after is not None:
            after |= {i: self.values[i].clone() for i in changed}
        saved_already = {flat.data_ptr() for flat, _ in (*self._saved, *self._shared.saved)}
        new = [i for i in changed if live[i].data_ptr() not in saved_already]
        if new:
            original = self._flat(materialise(self._input_set, self._storages, check=False))
            for i in new:
                (self._saved if i in self.own else self._shared.saved).append((live[i], original[i]))
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

    def call(self, inputs: Inputs, clock: Clock | None = None) -> list:
        """Outputs of one call on restored inputs; restoring them is not part of the lap that `clock` takes."""
        arguments = inputs.restore()
        if clock is None:
            return list(self.module.call(arguments))
        clock.start()
        outputs = self.module.call(arguments)
        clock.stop()
        return list(outputs)


class GraphFiles:
    """The files of one graph in a bundle."""

    def __init__(self, bundle: Bundle, entry: dict, storages: Mapping[str, torch.Tensor], digester: Digester) -> None:
        self.index: int = entry["index"]
        self.calls_per_run: int = entry["calls_per_run"]
        self.code_name: str = entry["code"]
        self.code = bundle.text(entry["code"])
        self.kernels = [kernel["kernel"] for kernel in bundle.json(entry["meanings"])]
        self.description = bundle.json(f"graph_{self.index}.json")
        self.input_sets: dict[str, dict] = {s["name"]: s for s in self.description["input_sets"]}
        self._bundle = bundle
        self._storages = storages
        self._digester = digester
        captured, *_ = self.description["input_sets"]
        self._weights = SharedWeights(self.description["inputs"], captured["values"], storages)
        self._constants = Copies(storages)

    def load(self, code: str | None = None) -> LoadedGraph:
        """The generated file, or other code in its place."""
        constants = {name: self._constant(value) for name, value in self.description["constants"].items()}
        return LoadedGraph(self.code if code is None else code, constants)

    def inputs(self, name: str) -> Inputs:
        """The inputs in input set `name`."""
        return Inputs(self.input_sets[name], self._storages, self._weights, self._digester)

    @functools.cached_property
    def references(self) -> "References":
        """The float64 reference on all input sets."""
        return References(self._bundle, self.index, self.description, self._constants)

    def _constant(self, value: dict) -> torch.Tensor:
        if "tensor" in value:
            return self._constants.view(value["tensor"])
        packing = value["packed"]
        operator = torch.ops
        for part in packing["operator"].split("."):
            operator = getattr(operator, part)
        return operator(*(self._constants.view(a["tensor"]) if "tensor" in a else a["value"] for a in packing["arguments"]))


class References:
    """The float64 reference of one graph: outputs that the bundle holds, or the graph to compute them with."""

    def __init__(self, bundle: Bundle, index: int, description: dict, copies: Copies) -> None:
        self._sets: dict[str, dict] = {s["name"]: s for s in description["input_sets"]}
        self._graph: Float64Graph | None = None
        self._stored: dict[str, torch.Tensor] = {}
        if "reference" in description:
            self._graph = Float64Graph.from_json(description["reference"], bundle.text(description["reference"]["code"]), copies)
        elif any(s["reference"] is not None for s in self._sets.values()):
            self._stored = bundle.tensors(f"reference_{index}.safetensors")

    def outputs(self, name: str, inputs: list) -> tuple[list, dict[int, torch.Tensor]]:
        """Outputs in float64 on input set `name`, none where one is no tensor, and by position the inputs that the graph changes.

        Raises:
            NoReference: there is none.
        """
        where = self._sets[name]["reference"]
        if where is None:
            raise NoReference(self._sets[name]["reason"])
        if self._graph is not None:
            outputs, changed = self._graph.run(inputs)
            return [value if isinstance(value, torch.Tensor) else None for value in outputs], changed
        outputs = [None if key is None else self._stored[key] for key in where["outputs"]]
        return outputs, {int(i): self._stored[key] for i, key in where["changed_inputs"].items()}


def load_graphs(bundle: Bundle) -> list[GraphFiles]:
    """All graphs of a bundle, after this process was set to compute as the captured one did.

    Raises:
        EnvironmentLacks: the bundle needs a GPU, and there is none.
    """
    captured = bundle.manifest["device"]
    if captured["kind"] == "cuda":
        gpu.require_gpu()
        here = gpu.facts()["name"]
        if here != captured["name"]:
            print(f"warning: the model was captured on {captured['name']}, and this is {here}", file=sys.stderr)
    torch.set_num_threads(captured["threads"])
    settings.restore_precision(bundle.manifest["precision"])
    storages = bundle.tensors(TENSORS)
    digester = Digester()
    return [GraphFiles(bundle, entry, storages, digester) for entry in bundle.manifest["graphs"]]


def environment(kind: str) -> dict[str, object]:
    """What a measurement on a device of this kind depends on, for the record."""
    return {
        "torch_threads": torch.get_num_threads(),
        "flush_denormal": settings.flushes_denormals(),
        "device": settings.device(kind),
        "versions": settings.versions(kind),
    }
