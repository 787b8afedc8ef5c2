"""The float64 reference: a compiled graph's source, run eagerly with every float type replaced by float64.

It is independent of everything that Inductor does after it: lowering, fusion, code generation, frozen weights. It is kept as
Python text, so that a bundle can hold the graph in place of outputs that may be several times the size of the model's own.
"""

import contextlib
import copy
import dataclasses
import re
import types
from collections.abc import Callable, Iterator

import torch
from torch.fx.node import map_aggregate

from .errors import NoReference, in_short
from .tensors import Copies, TensorStore, same_values
from .watch import SourceGraph

USER_KERNEL = "triton_kernel_wrapper_functional"
"""The launch of a kernel that the model's author wrote; it gives new values of the tensors that the kernel writes."""
NARROW = (torch.float32, torch.bfloat16, torch.float16)
# Operations whose meaning hangs on the bits of a float type, or on a generator's state.
BIT_LEVEL = ("view.dtype", "nextafter", "frexp")
RANDOM = ("inductor_random", "inductor_randint", "inductor_seed", "inductor_lookup_seed", "rng_")
RANDOM_TAG = torch.Tag.nondeterministic_seeded

aten = torch.ops.aten
ATTENTION = (
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_fused_attention_overrideable.default,
)
"""Attention of the GPU's libraries, which know no float64."""
ATTENTION_ARGUMENTS = {"query": None, "key": None, "value": None, "attn_bias": None, "is_causal": False, "scale": None}
WIDENING = {aten.mm.dtype: aten.mm.default, aten.bmm.dtype: aten.bmm.default}
"""Products with a wider result, whose last argument is its type; in float64 they are plain products."""


@dataclasses.dataclass(frozen=True)
class Float64Graph:
    """A graph in float64, as a function of the inputs of the compiled graph."""

    # Defines `forward(self, ...)`.
    code: str
    # What the function takes after `self`: the position of an input, or a value that freezing took from the inputs.
    arguments: tuple[int | torch.Tensor, ...]
    # Tensors that the graph holds, by attribute of `self`.
    attributes: dict[str, torch.Tensor]

    @classmethod
    def of(cls, source: SourceGraph) -> "Float64Graph":
        """The float64 form of `source`.

        Raises:
            NoReference: an operation is random, looks at bits, or cannot be written down.
        """
        _check(source.module.graph)
        graph = copy.deepcopy(source.module.graph)
        held = {}
        for node in graph.nodes:
            if node.op == "get_attr":
                held[node.target] = _held(source.module, node.target)
            elif node.op == "call_function":
                _widen(node)
        inputs = iter(range(len(graph.nodes)))
        places = range(len(graph.find_nodes(op="placeholder")))
        arguments = tuple(source.frozen[i] if i in source.frozen else next(inputs) for i in places)
        return cls(_text(graph), arguments, held)

    def run(self, inputs: list) -> tuple[list, dict[int, torch.Tensor]]:
        """Outputs on `inputs`, in float64, and the inputs that it changed in place, by position; `inputs` are left as they are.

        Where a GPU's memory is not enough, the processor does it.

        Raises:
            NoReference: an operation has no float64 form.
        """
        try:
            return self._run(inputs, None)
        except torch.OutOfMemoryError:
            pass  # outside of this block, so that what the failed attempt held is free
        try:
            return self._run(inputs, torch.device("cpu"))
        except torch.OutOfMemoryError as error:
            raise NoReference(f"running it in float64 failed: {in_short(error)}") from None

    def _run(self, inputs: list, device: torch.device | None) -> tuple[list, dict[int, torch.Tensor]]:
        widened = [_widened(value, device) for value in inputs]
        before = [value.clone() if isinstance(value, torch.Tensor) else value for value in widened]
        given = [_widened(a, device) if isinstance(a, torch.Tensor) else widened[a] for a in self.arguments]
        held = types.SimpleNamespace(**{name: _widened(value, device) for name, value in self.attributes.items()})
        with torch.no_grad(), _default_float64():
            try:
                outputs = self._function(device)(held, *given)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                raise NoReference(f"running it in float64 failed: {in_short(error)}") from None
        pairs = enumerate(zip(before, widened, strict=True))
        changed = {i: after for i, (old, after) in pairs if isinstance(old, torch.Tensor) and not same_values(old, after)}
        return list(outputs), changed

    def _function(self, device: torch.device | None) -> Callable:
        """The function; on another device than that of the capture if `device` says so."""
        names: dict[str, object] = {}
        exec(compile(self.code, "<float64 reference>", "exec"), names)
        if device is not None:
            names["device"] = lambda *_, **__: device
        return names["forward"]

    # ---- in a bundle ----

    def to_json(self, store: TensorStore, code: str) -> dict:
        """Description for a bundle, where `code` names the file with the text."""
        return {
            "code": code,
            "arguments": [{"tensor": store.add(a)} if isinstance(a, torch.Tensor) else {"input": a} for a in self.arguments],
            "attributes": {name: store.add(value) for name, value in self.attributes.items()},
        }

    @classmethod
    def from_json(cls, description: dict, code: str, copies: Copies) -> "Float64Graph":
        """What `to_json` described."""
        arguments = tuple(copies.view(a["tensor"]) if "tensor" in a else a["input"] for a in description["arguments"])
        return cls(code, arguments, {name: copies.view(view) for name, view in description["attributes"].items()})


def attention(query, key, value, bias=None, is_causal=False, scale=None) -> tuple[torch.Tensor]:
    """What the libraries' attention computes, by matrix products (`aten::_scaled_dot_product_attention_math`); the output alone."""
    shared_heads = query.dim() == 4 and query.size(1) != key.size(1)
    return (aten._scaled_dot_product_attention_math(query, key, value, bias, 0.0, is_causal, scale=scale, enable_gqa=shared_heads)[0],)


# ---- rewriting ----


def _widen(node: torch.fx.Node) -> None:
    """Replaces float types among the arguments, operations that exist in narrow types only, and launches of Triton kernels."""
    if str(node.target) == USER_KERNEL:
        from . import twin_launch  # needs triton

        twin_launch.put_twin(node)
        return
    if node.target in ATTENTION:
        given = _named_arguments(node)
        node.args = tuple(given.get(name, default) for name, default in ATTENTION_ARGUMENTS.items())
        node.target, node.kwargs = attention, {}
    elif node.target in WIDENING:
        node.target, node.args = WIDENING[node.target], node.args[:-1]
    elif node.target is aten.view.default:  # frozen convolutions change layouts, and then a view may need a copy
        node.target = aten.reshape.default
    node.args = map_aggregate(node.args, _wide_dtype)
    node.kwargs = map_aggregate(node.kwargs, _wide_dtype)


def _named_arguments(node: torch.fx.Node) -> dict[str, object]:
    names = [argument.name for argument in node.target._schema.arguments]
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def _wide_dtype(value: object) -> object:
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


def _text(graph: torch.fx.Graph) -> str:
    """A module that defines `forward`, with imports of all that it names."""
    written = graph.python_code(root_module="self")
    words = set(re.findall(r"\w+", written.src))
    imports = sorted(_import(name, value) for name, value in written.globals.items() if name in words)
    return "\n".join(["# The graph before the compiler lowers it, in float64.", *imports, "", written.src.strip(), ""])


def _import(name: str, value: object) -> str:
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}"
    if isinstance(value, float):
        return f"from math import {name}"
    if value is type(None):
        return f"from types import {name}"
    module, qualified = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not module or not qualified.isidentifier():
        raise NoReference(f"it uses {name}, which cannot be written down")
    return f"from {module} import {qualified} as {name}"


def _held(module: torch.fx.GraphModule, name: str) -> torch.Tensor:
    value = getattr(module, name, None)
    if not isinstance(value, torch.Tensor):
        raise NoReference(f"it holds {name}, which is no tensor")
    return value


# ---- values ----


def _widened(value: object, device: torch.device | None) -> object:
    """A copy in float64 of a float tensor, with its strides; a copy of another tensor; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    dtype = torch.float64 if value.dtype in NARROW else value.dtype
    return value.detach().to(device=value.device if device is None else device, dtype=dtype, copy=True)


def _check(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        name = str(node.target)
        if _is_random(node) or any(word in name for word in RANDOM):
            raise NoReference(f"it draws random numbers ({name})")
        if any(word in name for word in BIT_LEVEL):
            raise NoReference(f"it depends on the bits of a float type ({name})")


def _is_random(node: torch.fx.Node) -> bool:
    """Whether an operation draws from a generator; attention does so only for a dropout above zero."""
    if RANDOM_TAG not in getattr(node.target, "tags", ()):
        return False
    names = [argument.name for argument in node.target._schema.arguments]
    return "dropout_p" not in names or _named_arguments(node).get("dropout_p", 0.0) != 0.0


@contextlib.contextmanager
def _default_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
