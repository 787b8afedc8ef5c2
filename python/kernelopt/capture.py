"""`python -m kernelopt capture`: compiles a model, runs it, and writes all that the search needs into a bundle."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch.utils._pytree import tree_leaves, tree_map

from . import gpu, settings
from .bundle import TENSORS, BundleWriter, check_place, new_bundle
from .errors import BadInput, in_short
from .factory import blaming, load_model
from .graph_record import GraphRecord
from .input_sets import CAPTURED, Recipe, scaled
from .interface import Interface
from .tensors import TensorStore
from .watch import CompiledGraph, CompilerWatch


@dataclasses.dataclass(frozen=True)
class Options:
    """How to capture."""

    model: str
    place: Path
    device: str = "cpu"
    """`cpu`, `cuda`, or `auto`: the GPU where torch can use one."""
    dynamic: bool = False
    train: bool = False
    freeze: bool = False
    force: bool = False


def capture(options: Options) -> None:
    """Captures `options.model` into a bundle at `options.place`.

    Raises:
        UserError: the model, the machine or the place will not do.
    """
    check_place(options.place, options.force)
    if options.device == "auto":
        options = dataclasses.replace(options, device="cuda" if torch.cuda.is_available() else "cpu")
    if options.device == "cuda":
        gpu.require_gpu()
    else:
        settings.compiler()
    model, arguments = load_model(options.model, options.device)
    if isinstance(model, torch.nn.Module) and model.training and not options.train:
        print("warning: the module is in training mode; let the factory call eval() for inference", file=sys.stderr)
    session = Session(model, arguments, options)
    with _compiler_settings(options):
        session.run()
        session.check()
        with new_bundle(options.place, options.force) as writer:
            session.write(writer)
    for graph in session.graphs:
        meanings = sum(kernel["meaning"] is not None and "program" not in kernel["meaning"] for kernel in graph.kernels)
        programs = sum("program" in (kernel["meaning"] or {}) for kernel in graph.kernels)
        launches = sum("launch" in kernel for kernel in graph.kernels)
        counts = f"{meanings} with a meaning" + (f", {programs} of the author's" if programs else "")
        counts += f", {launches} with a launch" if options.device == "cuda" else ""
        print(f"graph {graph.index} ({graph.kind}): {len(graph.kernels)} generated kernels, {counts}", file=sys.stderr)


@contextlib.contextmanager
def _compiler_settings(options: Options) -> Iterator[None]:
    """Caches of whole graphs off, since a cached graph is not generated again and shows nothing."""
    with (
        inductor_config.patch(fx_graph_cache=False, freezing=options.freeze),
        functorch_config.patch(enable_autograd_cache=False),
    ):
        torch._dynamo.reset()
        yield


class Session:
    """One model, its compiled graphs, and the runs that show what they are called with."""

    def __init__(self, model: Callable, arguments: tuple, options: Options) -> None:
        self.model = model
        self.arguments = arguments
        self.options = options
        self.store = TensorStore()
        self.graphs: list[GraphRecord] = []
        self._records: dict[int, GraphRecord] = {}
        self._state = _state_of(model)
        self._recipes = scaled(options.device)
        self._interface: Interface | None = None
        self._visit: Callable[[GraphRecord, list], contextlib.AbstractContextManager] | None = None

    # ---- runs ----

    def run(self) -> None:
        """Compiles by running once, then runs again for the kernels' arguments, then once for each scaled input set."""
        watch = CompilerWatch(self._on_call)
        compiled = torch.compile(self.model, dynamic=True if self.options.dynamic else None)
        with watch.watching(), blaming(f"{self.options.model}, compiled and run,"):
            self._run_on(compiled, CAPTURED, _copied(self.arguments))
            self._visit = lambda graph, _: graph.observing_kernels()
            self._step(compiled, _copied(self.arguments))
        self._read_grids()
        for recipe in self._recipes:
            try:
                self._run_on(compiled, recipe.name, *self._derived(recipe))
            except Exception as error:
                if gpu.is_fault(error):
                    raise
                print(f"warning: the model fails on its inputs times {recipe.scale}: {in_short(error)}", file=sys.stderr)

    def _read_grids(self) -> None:
        """Runs the model as it was written, where it launches kernels of its own: only there are their grid functions seen."""
        if not any(graph.has_user_kernels for graph in self.graphs):
            return
        from .grids import GridWatch  # needs triton

        with GridWatch().watching() as grids, blaming(f"{self.options.model}, run without the compiler,"):
            self._step(self.model, _copied(self.arguments))
        for graph in self.graphs:
            graph.name_grids(grids)

    def check(self) -> None:
        """Checks that something was compiled, and that all of it can be written."""
        if not self.graphs:
            raise BadInput(f"torch.compile made no graph of {self.options.model}: it holds no tensor operation that it could compile")
        for graph in self.graphs:
            graph.check()
            if self.options.device == "cuda":
                graph.warn()

    def _run_on(self, compiled: Callable, name: str, arguments: tuple, sources: dict | None = None) -> None:
        weights = {tensor.untyped_storage().data_ptr() for tensor in self._state}

        def visit(graph: GraphRecord, inputs: list) -> contextlib.AbstractContextManager:
            graph.record_inputs(name, inputs, self.store, sources or {}, weights)
            return contextlib.nullcontext()

        self._visit = visit
        if name == CAPTURED:
            self._interface = Interface(arguments)
        results = self._step(compiled, arguments)
        if name == CAPTURED:
            self._interface.returns(results)

    def _step(self, compiled: Callable, arguments: tuple) -> object:
        """One step of inference or training, from the state that the factory left, and what the model returned."""
        for tensor, saved in self._state.items():
            with torch.no_grad():
                tensor.copy_(saved)
            tensor.grad = None
        if not self.options.train:
            with torch.no_grad():
                return compiled(*arguments)
        results = compiled(*arguments)
        outputs = [o for o in tree_leaves(results) if isinstance(o, torch.Tensor) and o.requires_grad]
        if not outputs:
            raise BadInput(f"no output of {self.options.model} needs a gradient, so there is no backward pass to capture")
        _loss(outputs).backward()
        return results

    def _on_call(self, compiled: CompiledGraph, arguments: list, call: Callable) -> object:
        record = self._records.get(id(compiled))
        if record is None:
            record = self._records[id(compiled)] = GraphRecord(len(self.graphs), compiled, self._recipes)
            self.graphs.append(record)
        with self._visit(record, arguments):
            outputs = call(arguments)
        if not record.outputs:
            record.outputs = [GraphRecord.identity(value) for value in outputs]
        return outputs

    def _derived(self, recipe: Recipe) -> tuple[tuple, dict]:
        """The arguments of a scaled input set, and for each derived tensor its identity and what it was derived from."""
        sources: dict[tuple, dict] = {}

        def derive(value: object) -> object:
            if not isinstance(value, torch.Tensor) or not recipe.applies_to(value):
                return _copy(value)
            derived = recipe.derive(value)
            sources[GraphRecord.identity(derived)] = self.store.add(value)
            return derived

        return tree_map(derive, self.arguments), sources

    # ---- the bundle ----

    def write(self, writer: BundleWriter) -> None:
        """Writes all files; the manifest comes last."""
        device = self.options.device
        for graph in self.graphs:
            graph.write(writer, self.store, device, self._model_of(graph))
        writer.tensors(TENSORS, self.store.storages)
        inductor = settings.inductor_settings()
        inductor.pop("fx_graph_cache", None)  # ours, for the capture alone
        writer.finish(
            {
                "model": self.options.model,
                "versions": settings.versions(device),
                "device": settings.device(device),
                "precision": settings.precision(device),
                "inductor": inductor,
                "compile_command": settings.compile_command() if device == "cpu" else [],
                "graphs": [graph.manifest_entry() for graph in self.graphs],
            }
        )

    def _model_of(self, graph: GraphRecord) -> dict | None:
        """How the model's arguments and results lie in `graph`, where that is the whole model."""
        whole = len(self.graphs) == 1 and graph.calls == 1 and graph.kind == "inference"
        return self._interface.to_json(graph) if whole else None


def _state_of(model: Callable) -> dict[torch.Tensor, torch.Tensor]:
    """Parameters and buffers of a module, each with a copy, since a training step changes some."""
    if not isinstance(model, torch.nn.Module):
        return {}
    return {tensor: tensor.detach().clone() for tensor in [*model.parameters(), *model.buffers()]}


def _copied(arguments: tuple) -> tuple:
    """Fresh arguments for a run, which may change them in place."""
    return tree_map(_copy, arguments)


def _copy(value: object) -> object:
    if not isinstance(value, torch.Tensor) or torch._debug_has_internal_overlap(value):
        return value
    empty = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
    return empty.copy_(value.detach()).requires_grad_(value.requires_grad)


def _loss(outputs: list[torch.Tensor]) -> torch.Tensor:
    """Sum of all outputs, each element times a fixed random factor: a plain sum makes every gradient one, which hides faults."""
    generator = torch.Generator().manual_seed(0)
    factors = [torch.randn(o.shape, generator=generator, dtype=torch.float32).to(o) if o.dim() else 1.0 for o in outputs]
    return sum((output * factor).sum().float() for output, factor in zip(outputs, factors, strict=True))
