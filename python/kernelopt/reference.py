"""The float64 reference: a compiled graph's source, run eagerly with every float type replaced by float64.

It is independent of everything that Inductor does after it: lowering, fusion, code generation, frozen weights.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch.utils._pytree import tree_map

from .errors import in_short
from .tensors import same_values
from .watch import SourceGraph

NARROW = (torch.float32, torch.bfloat16, torch.float16)
# Operations whose meaning hangs on the bits of a float type, or on a generator's state.
BIT_LEVEL = ("view.dtype", "nextafter", "frexp")
RANDOM = ("inductor_random", "inductor_randint", "inductor_seed", "inductor_lookup_seed", "rng_")
RANDOM_TAG = torch.Tag.nondeterministic_seeded


class NoReference(Exception):
    """Why a graph has no float64 reference."""


def reference_outputs(source: SourceGraph, inputs: list) -> tuple[list, dict[int, torch.Tensor]]:
    """Outputs of `source` on `inputs`, in float64, and the inputs that it changed in place, by position.

    `inputs` are those of the compiled graph; they are left as they are.

    Raises:
        NoReference: an operation is random, looks at bits, or has no float64 form.
    """
    _check(source.module.graph)
    widened = [_widened(value) for value in inputs]
    before = [value.clone() if isinstance(value, torch.Tensor) else value for value in widened]
    with torch.no_grad(), _default_float64():
        try:
            outputs = _Float64(source.module).run(*_placed(source, widened))
        except Exception as error:
            raise NoReference(f"running it in float64 failed: {in_short(error)}") from None
    changed = {
        i: after
        for i, (old, after) in enumerate(zip(before, widened, strict=True))
        if isinstance(old, torch.Tensor) and not same_values(old, after)
    }
    return list(outputs), changed


def _placed(source: SourceGraph, inputs: list) -> list:
    """Arguments of the source graph: the inputs at the places that freezing left, the frozen values at theirs."""
    rest = iter(inputs)
    places = len(source.module.graph.find_nodes(op="placeholder"))
    return [_widened(source.frozen[i]) if i in source.frozen else next(rest) for i in range(places)]


class _Float64(torch.fx.Interpreter):
    """Runs a graph with float dtypes in its arguments replaced by float64."""

    def fetch_attr(self, target: str) -> object:
        return _widened(super().fetch_attr(target))

    def call_function(self, target, args: tuple, kwargs: dict) -> object:
        if target is torch.ops.aten.view.default:  # frozen convolutions change layouts, and then a view may need a copy
            target = torch.ops.aten.reshape.default
        return super().call_function(target, tree_map(_wide_dtype, args), tree_map(_wide_dtype, kwargs))


def _wide_dtype(value: object) -> object:
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


def _widened(value: object) -> object:
    """A copy in float64 of a float tensor, with its strides; a copy of another tensor; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    dtype = torch.float64 if value.dtype in NARROW else value.dtype
    return value.detach().to(dtype, copy=True)


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
    if "dropout_p" not in names:
        return True
    position = names.index("dropout_p")
    given = node.args[position] if position < len(node.args) else node.kwargs.get("dropout_p", 0.0)
    return given != 0.0


@contextlib.contextmanager
def _default_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
