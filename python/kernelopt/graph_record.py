"""What one compiled graph was called with, and its files in the bundle."""

import contextlib
from collections.abc import Callable, Iterator

import torch

from .bundle import BundleWriter
from .distributions import distribution
from .errors import BadInput
from .input_sets import CAPTURED, SCALED
from .patching import replaced
from .reference import NoReference, reference_outputs
from .runtime import materialise
from .tensors import TensorStore, View, content_key, flat_storage
from .watch import CompiledGraph, Packing

Identity = tuple


class GraphRecord:
    """One compiled graph, numbered in the order of first call."""

    def __init__(self, index: int, compiled: CompiledGraph) -> None:
        self.index = index
        self.kind = compiled.kind
        self.kernels = compiled.kernels
        self._compiled = compiled
        self._values: dict[str, list[dict]] = {}
        self._weights: list[bool] = []
        self._calls = 0

    @staticmethod
    def identity(tensor: torch.Tensor) -> Identity:
        """Equal for two tensors that are the same view of the same memory."""
        return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype

    # ---- calls ----

    def record_inputs(self, name: str, inputs: list, store: TensorStore, sources: dict[Identity, View], weights: set[int]) -> None:
        """Copies the inputs of the first call in input set `name`.

        Args:
            sources: example inputs that were derived for this set, and what they were derived from.
            weights: addresses of the storages of parameters and buffers.
        """
        if name in self._values:
            return
        self._values[name] = [self._described(value, store, sources) for value in inputs]
        if name == CAPTURED:
            static = self._compiled.static_inputs if self.kind != "backward" else frozenset()
            self._weights = [
                isinstance(value, torch.Tensor) and (i in static or value.untyped_storage().data_ptr() in weights)
                for i, value in enumerate(inputs)
            ]

    @staticmethod
    def _described(value: object, store: TensorStore, sources: dict[Identity, View]) -> dict:
        if not isinstance(value, torch.Tensor):
            return {"number": value}
        source = sources.get(GraphRecord.identity(value))
        if source is not None:
            return {"derived": source, "key": content_key(flat_storage(value))}
        return {"tensor": store.add(value)}

    @contextlib.contextmanager
    def observing_kernels(self) -> Iterator[None]:
        """Counts a call, and takes down what each kernel's arguments hold when it is first launched."""
        self._calls += 1
        module = self._compiled.module
        with contextlib.ExitStack() as stack:
            for entry in self.kernels:
                if entry["meaning"] is not None and "distributions" not in entry:
                    observer = _observer(entry, getattr(module, entry["kernel"]))
                    stack.enter_context(replaced(module, entry["kernel"], observer))
            yield

    # ---- the bundle ----

    def check(self) -> None:
        """Checks that nothing of the graph would be lost in a bundle."""
        if CAPTURED not in self._values:
            raise BadInput(f"the model compiles anew when it is run again on the same inputs (graph {self.index})")
        opaque = self._compiled.opaque + [
            name for name, value in self._compiled.constants.items() if isinstance(value, torch.Tensor) and value.layout != torch.strided
        ]
        if opaque:
            raise BadInput(f"graph {self.index} uses the constant {opaque[0]}, which cannot be written to a bundle")

    def manifest_entry(self) -> dict:
        """The Rust type `shared::bundle::GraphEntry`."""
        return {
            "index": self.index,
            "kind": self.kind,
            "code": f"output_code_{self.index}.py",
            "meanings": f"meanings_{self.index}.json",
            "calls_per_run": self._calls,
        }

    def write(self, writer: BundleWriter, store: TensorStore) -> None:
        """Writes the generated file, the meanings, the inputs and the reference."""
        compiled = self._compiled
        constants = {name: _constant(value, store) for name, value in compiled.constants.items()}
        input_sets = [self._input_set(name, scale) for name, scale in [(CAPTURED, 1.0), *((r.name, r.scale) for r in SCALED)]]
        tensors = self._references(input_sets, store)
        writer.text(f"output_code_{self.index}.py", compiled.code)
        writer.json(f"meanings_{self.index}.json", self.kernels)
        writer.json(f"graph_{self.index}.json", {"inputs": self._inputs(), "constants": constants, "input_sets": input_sets})
        writer.tensors(f"reference_{self.index}.safetensors", tensors)

    def _inputs(self) -> list[dict]:
        return [
            {"name": name, "weight": weight, **({"symbol": self._compiled.symbols[name]} if name in self._compiled.symbols else {})}
            for name, weight in zip(self._compiled.input_names, self._weights, strict=True)
        ]

    def _input_set(self, name: str, scale: float) -> dict:
        recipe = next((r.to_json() for r in SCALED if r.name == name), None)
        return {"name": name, "scale": scale, "recipe": recipe, "values": self._values.get(name)}

    def _references(self, input_sets: list[dict], store: TensorStore) -> dict[str, torch.Tensor]:
        """Runs the float64 reference on every input set, notes in each where its outputs are, and returns these."""
        tensors: dict[str, torch.Tensor] = {}
        for input_set in input_sets:
            input_set["reference"] = None
            if input_set["values"] is None:
                input_set["reason"] = "the model did not call this graph on these inputs"
                continue
            try:
                outputs, changed = reference_outputs(self._compiled.source, materialise(input_set, store.storages))
            except NoReference as reason:
                input_set["reason"] = str(reason)
                continue
            name = input_set["name"]
            named = {f"{name}.output.{i}": value for i, value in enumerate(outputs) if isinstance(value, torch.Tensor)}
            kept = {i: f"{name}.input.{i}" for i in changed}
            input_set["reference"] = {
                "outputs": [f"{name}.output.{i}" if isinstance(value, torch.Tensor) else None for i, value in enumerate(outputs)],
                "changed_inputs": {str(i): key for i, key in kept.items()},
            }
            tensors |= {key: value.contiguous().clone() for key, value in named.items()}
            tensors |= {key: changed[i].contiguous().clone() for i, key in kept.items()}
        return tensors


def _constant(value: torch.Tensor | Packing, store: TensorStore) -> dict:
    if isinstance(value, torch.Tensor):
        return {"tensor": store.add(value)}
    arguments = [{"tensor": store.add(a)} if isinstance(a, torch.Tensor) else {"value": a} for a in value.arguments]
    return {"packed": {"operator": value.operator, "arguments": arguments}}


def _observer(entry: dict, kernel: Callable) -> Callable:
    """Calls `kernel`; the first time, checks its arguments against its meaning and keeps what they hold."""

    def observed(*arguments: object) -> object:
        if "distributions" not in entry and entry["meaning"] is not None:
            _observe(entry, arguments)
        return kernel(*arguments)

    return observed


def _observe(entry: dict, arguments: tuple) -> None:
    described = entry["meaning"]["arguments"]
    fault = _fault(entry["meaning"], arguments)
    if fault is not None:
        entry |= {"meaning": None, "reason": f"it is called with other arguments than its meaning has: {fault}"}
        return
    entry["distributions"] = {}
    for argument, value in zip(described, arguments, strict=True):
        if argument["role"] in ("in", "inout"):
            found = distribution(value)
            if found is not None:
                entry["distributions"][argument["name"]] = found


def _fault(meaning: dict, arguments: tuple) -> str | None:
    """What of a launch contradicts the meaning, if anything."""
    described = meaning["arguments"]
    if len(described) != len(arguments):
        return f"{len(arguments)} instead of {len(described)}"
    for argument, value in zip(described, arguments, strict=True):
        if isinstance(value, torch.Tensor) != (argument["role"] != "size"):
            return f"{argument['name']} is a {type(value).__name__}"
        if isinstance(value, torch.Tensor):
            expected = meaning["buffers"][argument["buffers"][-1]]["dtype"]
            if str(value.dtype).removeprefix("torch.") != expected:
                return f"{argument['name']} is {value.dtype}"
    return None
