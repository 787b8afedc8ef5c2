"""What one compiled graph was called with, and its files in the bundle."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from .bundle import BundleWriter
from .errors import BadInput
from .input_sets import CAPTURED, Recipe
from .observe import ObservedKernel
from .patching import replaced
from .reference import Float64Graph, NoReference
from .runtime import materialise
from .tensors import TensorStore, View, content_key, flat_storage
from .watch import CompiledGraph, Packing

if TYPE_CHECKING:
    from .grids import GridWatch  # needs triton

Identity = tuple


class GraphRecord:
    """One compiled graph, numbered in the order of first call."""

    def __init__(self, index: int, compiled: CompiledGraph, recipes: tuple[Recipe, ...]) -> None:
        self.index = index
        self.kind = compiled.kind
        self.kernels = compiled.kernels
        self.calls = 0
        # Identities of what the first call in the captured set got and gave; the model's own are found among them.
        self.inputs: list[Identity | None] = []
        self.outputs: list[Identity | None] = []
        self._compiled = compiled
        self._recipes = {recipe.name: recipe for recipe in recipes}
        self._values: dict[str, list[dict]] = {}
        self._weights: list[bool] = []

    @staticmethod
    def identity(value: object) -> Identity | None:
        """Equal for two tensors that are the same view of the same memory; none for what is no tensor."""
        return (value.data_ptr(), tuple(value.shape), tuple(value.stride()), value.dtype) if isinstance(value, torch.Tensor) else None

    # ---- calls ----

    def record_inputs(self, name: str, inputs: list, store: TensorStore, sources: dict[Identity, View], weights: set[int]) -> bool:
        """Copies the inputs of the first call in input set `name`; false for a later call.

        Args:
            sources: example inputs that were derived for this set, and what they were derived from.
            weights: addresses of the storages of parameters and buffers.
        """
        if name in self._values:
            return False
        memories = [value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else None for value in inputs]
        self._values[name] = [self._described(v, memories.index(m), store, sources) for v, m in zip(inputs, memories, strict=True)]
        if name == CAPTURED:
            static = self._compiled.static_inputs if self.kind != "backward" else frozenset()
            self._weights = [
                isinstance(value, torch.Tensor) and (i in static or value.untyped_storage().data_ptr() in weights)
                for i, value in enumerate(inputs)
            ]
            self.inputs = [self.identity(value) for value in inputs]
        return True

    def weight(self, position: int) -> bool:
        """Whether an input is a parameter or a buffer of the model."""
        return self._weights[position]

    @staticmethod
    def _described(value: object, memory: int, store: TensorStore, sources: dict[Identity, View]) -> dict:
        if not isinstance(value, torch.Tensor):
            return {"number": value}
        source = sources.get(GraphRecord.identity(value))
        if source is not None:
            return {"derived": source, "key": content_key(flat_storage(value))}
        return {"tensor": store.add(value, memory)}

    @contextlib.contextmanager
    def observing_kernels(self) -> Iterator[None]:
        """Counts a call, and takes down how each kernel is launched and what its arguments hold at the first launch."""
        self.calls += 1
        module = self._compiled.module
        with contextlib.ExitStack() as stack:
            for entry in self.kernels:
                observed = ObservedKernel(entry, getattr(module, entry["kernel"]))
                stack.enter_context(replaced(module, entry["kernel"], observed))
            yield

    @property
    def has_user_kernels(self) -> bool:
        """Whether a kernel that the model's author wrote is launched."""
        return any("program" in (entry["meaning"] or {}) for entry in self.kernels)

    def name_grids(self, grids: "GridWatch") -> None:
        """Writes the grids of the author's kernels as expressions; not where sizes are symbols, which have other values in another call."""
        for entry in self.kernels:
            if "launch" in entry and "program" in (entry["meaning"] or {}) and not self._compiled.symbols:
                grids.name(entry)

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
            "calls_per_run": self.calls,
        }

    def write(self, writer: BundleWriter, store: TensorStore, device: str, model: dict | None) -> None:
        """Writes the generated file, the meanings, the inputs and the reference.

        Args:
            device: kind of the device; on a GPU the reference is computed where it is needed, since its outputs are large.
            model: how the model's arguments and results lie in the inputs and outputs, where this graph is all of it.
        """
        compiled = self._compiled
        constants = {name: _constant(value, store) for name, value in compiled.constants.items()}
        input_sets = [self._input_set(name, 1.0 if recipe is None else recipe.scale, recipe) for name, recipe in self._sets()]
        description = {"inputs": self._inputs(), "constants": constants, "input_sets": input_sets}
        if model is not None:
            description["model"] = model
        reference = self._reference(input_sets)
        if device == "cpu":
            self._write_outputs(writer, store, input_sets, reference)
        elif reference is not None:
            self._write_graph(writer, store, input_sets, reference)
            description["reference"] = reference.to_json(store, f"reference_{self.index}.py")
        writer.text(f"output_code_{self.index}.py", compiled.code)
        writer.json(f"meanings_{self.index}.json", self.kernels)
        writer.json(f"graph_{self.index}.json", description)

    def _sets(self) -> list[tuple[str, Recipe | None]]:
        return [(CAPTURED, None), *self._recipes.items()]

    def _inputs(self) -> list[dict]:
        return [
            {"name": name, "weight": weight, **({"symbol": self._compiled.symbols[name]} if name in self._compiled.symbols else {})}
            for name, weight in zip(self._compiled.input_names, self._weights, strict=True)
        ]

    def _input_set(self, name: str, scale: float, recipe: Recipe | None) -> dict:
        return {"name": name, "scale": scale, "recipe": recipe and recipe.to_json(), "values": self._values.get(name)}

    # ---- the reference ----

    def _reference(self, input_sets: list[dict]) -> Float64Graph | None:
        """The float64 form of the graph; where there is none, every input set says why."""
        try:
            reference = Float64Graph.of(self._compiled.source)
        except NoReference as no:
            reference, reason = None, str(no)
        for input_set in input_sets:
            input_set["reference"] = None
            if input_set["values"] is None:
                input_set["reason"] = "the model did not call this graph on these inputs"
            elif reference is None:
                input_set["reason"] = reason
        return reference

    def _write_outputs(self, writer: BundleWriter, store: TensorStore, input_sets: list[dict], reference: Float64Graph | None) -> None:
        """Runs the reference on every input set, writes its outputs, and notes in each set where they are."""
        tensors: dict[str, torch.Tensor] = {}
        for input_set in input_sets:
            if reference is None or input_set["values"] is None:
                continue
            try:
                outputs, changed = reference.run(materialise(input_set, store.storages))
            except NoReference as no:
                input_set["reason"] = str(no)
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
        writer.tensors(f"reference_{self.index}.safetensors", tensors)

    def _write_graph(self, writer: BundleWriter, store: TensorStore, input_sets: list[dict], reference: Float64Graph) -> None:
        """Writes the reference itself, after it was seen to run on the captured inputs."""
        captured, *_ = input_sets
        try:
            reference.run(materialise(captured, store.storages))
            found: dict = {"reference": {"computed": True}}
        except NoReference as no:
            found = {"reason": str(no)}
        for input_set in input_sets:
            if input_set["values"] is not None:
                input_set |= found
        writer.text(f"reference_{self.index}.py", reference.code)

    def warn(self) -> None:
        """Says on stderr which kernels have no launch although they were compiled for a GPU, and which of the author's are left alone."""
        for entry in self.kernels:
            reason = entry.pop("no_launch", None)
            if entry.pop("left_alone", False):
                print(f"warning: {entry['kernel']} is left alone: {entry['reason']}", file=sys.stderr)
            elif reason is not None:
                print(f"warning: {entry['kernel']} has no launch: {reason}", file=sys.stderr)


def _constant(value: torch.Tensor | Packing, store: TensorStore) -> dict:
    if isinstance(value, torch.Tensor):
        return {"tensor": store.add(value)}
    arguments = [{"tensor": store.add(a)} if isinstance(a, torch.Tensor) else {"value": a} for a in value.arguments]
    return {"packed": {"operator": value.operator, "arguments": arguments}}
