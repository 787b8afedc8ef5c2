"""Watches TorchInductor compile: every graph, its generated file, its meanings, and each call of it.

Four private functions of torch are wrapped, all of the tested release series (see `torch_version.py`):
`compile_fx._compile_fx_inner` compiles one graph, `GraphLowering._compile_to_module_lines` turns generated text into a
module, `freezing.freeze` replaces parameters by constants before either runs, and `ConstantFolder.add_node_replacement`
sees how each such constant was made.
"""

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator
from types import ModuleType

import torch
from torch._inductor import compile_fx, freezing
from torch._inductor.constant_folding import ConstantFolder
from torch._inductor.graph import GraphLowering

from .meaning import KernelRecorder
from .patching import replaced

Call = Callable[[list], object]


@dataclasses.dataclass
class SourceGraph:
    """The graph that a compilation started from: aten operations, before Inductor lowers them."""

    module: torch.fx.GraphModule
    # Values of the placeholders that freezing turned into constants, by position; the rest are inputs, in order.
    frozen: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Packing:
    """How an opaque constant was made: weights in the vendor library's own layout have no bytes to write down."""

    operator: str
    arguments: tuple


@dataclasses.dataclass
class CompiledGraph:
    """One compiled graph, as the compiler left it."""

    kind: str
    source: SourceGraph
    static_inputs: frozenset[int]
    code: str = ""
    kernels: list[dict] = dataclasses.field(default_factory=list)
    module: ModuleType | None = None
    constants: dict[str, torch.Tensor | Packing] = dataclasses.field(default_factory=dict)
    input_names: list[str] = dataclasses.field(default_factory=list)
    symbols: dict[str, str] = dataclasses.field(default_factory=dict)
    # Names of module attributes that are neither tensors nor numbers; they cannot be written to a bundle.
    opaque: list[str] = dataclasses.field(default_factory=list)


class CompilerWatch:
    """Calls `on_call(graph, arguments, call)` in place of each call of a compiled graph, while it is active."""

    def __init__(self, on_call: Callable[[CompiledGraph, list, Call], object]) -> None:
        self._on_call = on_call
        self._compiling: list[tuple[CompiledGraph, KernelRecorder]] = []
        self._frozen_source: SourceGraph | None = None
        # By identity of the tensor made, which is kept so that no other takes its identity.
        self._packings: dict[int, tuple[torch.Tensor, Packing]] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator["CompilerWatch"]:
        """Watches all compilations inside the `with` block; the calls of what was compiled there stay watched after it."""
        with (
            replaced(compile_fx, "_compile_fx_inner", self._inner_compile(compile_fx._compile_fx_inner)),
            replaced(GraphLowering, "_compile_to_module_lines", self._load_module(GraphLowering._compile_to_module_lines)),
            replaced(freezing, "freeze", self._freeze(freezing.freeze)),
            replaced(ConstantFolder, "add_node_replacement", self._fold(ConstantFolder.add_node_replacement)),
        ):
            yield self

    def _inner_compile(self, compile_graph):
        def watched(gm: torch.fx.GraphModule, example_inputs, **options):
            source, self._frozen_source = self._frozen_source or SourceGraph(_copied(gm)), None
            graph = CompiledGraph(_kind(options), source, frozenset(options.get("static_input_idxs") or ()))
            recorder = KernelRecorder()
            self._compiling.append((graph, recorder))
            try:
                with recorder.watching():
                    return compile_graph(gm, example_inputs, **options)
            finally:
                self._compiling.pop()

        return watched

    def _load_module(self, load):
        def watched(lowering: GraphLowering, wrapper_code):
            module = load(lowering, wrapper_code)
            graph, recorder = self._compiling[-1]
            graph.code = wrapper_code.value
            graph.kernels = recorder.entries(graph.code)
            graph.module = module
            graph.constants = {name: self._packings.get(id(value), (None, value))[1] for name, value in lowering.constants.items()}
            graph.input_names = list(lowering.graph_input_names)
            graph.symbols = {name: str(value) for name, value in lowering.graph_inputs.items() if not hasattr(value, "get_layout")}
            graph.opaque = [*lowering.torchbind_constants, *lowering.opaque_value_type_classes]
            call = module.call
            module.call = lambda arguments: self._on_call(graph, arguments, call)
            return module

        return watched

    def _freeze(self, freeze):
        def watched(dynamo_gm, aot_autograd_gm: torch.fx.GraphModule, example_inputs):
            before = _copied(aot_autograd_gm)
            context = torch._guards.TracingContext.try_get()
            parameters = list(context.params_flat_unwrap_subclasses or ()) if context else []
            optimised, kept = freeze(dynamo_gm, aot_autograd_gm, example_inputs)
            frozen = {i: parameter for i, parameter in enumerate(parameters) if i not in kept}
            self._frozen_source = SourceGraph(before, frozen)
            return optimised, kept

        return watched

    def _fold(self, add_node_replacement):
        def watched(folder: ConstantFolder, node: torch.fx.Node, tensor: torch.Tensor) -> None:
            if tensor.layout != torch.strided:
                arguments, keywords = folder.fetch_args_kwargs_from_env(node)
                if not keywords:
                    self._packings[id(tensor)] = tensor, Packing(str(node.target), tuple(arguments))
            add_node_replacement(folder, node, tensor)

        return watched


def _copied(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy whose graph the compiler's passes do not touch; tensors are shared."""
    return torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))


def _kind(options: dict) -> str:
    if options.get("is_backward"):
        return "backward"
    return "inference" if options.get("is_inference") else "forward"
