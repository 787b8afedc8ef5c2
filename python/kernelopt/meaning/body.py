"""Turns one scheduler node's `LoopBody` into a loop nest of typed statements."""

import math
import operator
from collections.abc import Callable, Iterator

import sympy
import torch
from torch._inductor.loop_body import LoopBody
from torch.utils._sympy.functions import FloatTrueDiv, IntTrueDiv, ToFloat

from .expressions import render
from .vocabulary import ARITY, PREDICATES, REDUCTIONS, ROUNDINGS, SYNONYMS, Unsupported, dtype_name

Json = dict[str, object]
Render = Callable[[sympy.Expr], str]

REAL = (IntTrueDiv, FloatTrueDiv, ToFloat, sympy.Float)
"""What makes an index expression a real number."""
REAL_FUNCTIONS = {IntTrueDiv: "truediv", FloatTrueDiv: "truediv", sympy.Add: "add", sympy.Mul: "mul"}


def export_node(
    name: str, body: LoopBody, buffer_dtype: Callable[[str], torch.dtype], simplify: Callable[[sympy.Expr], sympy.Expr]
) -> Json:
    """The loop nest of scheduler node `name`.

    Args:
        buffer_dtype: element type of a buffer, by name.
        simplify: replaces the compiler's precomputed sizes by what they stand for.

    Raises:
        Unsupported: the body holds something that a meaning cannot express.
    """

    def text(expr: sympy.Expr) -> str:
        return render(simplify(expr))

    def axes(variables: list[sympy.Symbol]) -> list[Json]:
        return [{"var": v.name, "extent": text(body.var_ranges[v])} for v in variables]

    statements = _Block(body, buffer_dtype, text).statements(body.root_block.graph)
    return {"name": name, "iter": axes(body.iter_vars), "reduce": axes(body.reduce_vars), "body": statements}


class _Block:
    """Translator of the graphs of one body. Value ids are unique in the node, nested blocks included."""

    def __init__(self, body: LoopBody, buffer_dtype: Callable[[str], torch.dtype], text: Render) -> None:
        self.body = body
        self.buffer_dtype = buffer_dtype
        self.text = text
        self.ids: dict[torch.fx.Node, int] = {}
        self.dtypes: dict[int, torch.dtype] = {}
        self.out: list[Json] = []

    def statements(self, graph: torch.fx.Graph) -> list[Json]:
        """Statements of the root graph."""
        for node in graph.nodes:
            if node.op != "output":
                self._node(node)
        return self.out

    def _emit(self, op: str, made: torch.dtype | None = None, /, **fields: object) -> int:
        """Adds a statement that makes a value of type `made`."""
        number = len(self.dtypes)
        self.dtypes[number] = made
        self.out.append({"id": number, "op": op, **fields})
        return number

    def _node(self, node: torch.fx.Node) -> None:
        number = None
        if node.op == "placeholder":
            return
        if node.op == "call_method":
            number = self._operation(node.target, node.args[1:], node.kwargs)
        elif node.op == "call_function" and node.target is operator.getitem:
            source, position = self._value(node.args[0]), node.args[1]
            number = self._emit("item", self.dtypes[source], value=source, position=position)
        elif node.op == "call_module":
            number = self._module(node)
        else:
            raise Unsupported(f"the loop body holds an unknown construct, {node.op} {node.target}")
        if number is not None:
            self.ids[node] = number

    # ---- operations of `ops` ----

    def _operation(self, op: str, args: tuple, kwargs: dict) -> int | None:
        special = getattr(self, f"_op_{op}", None)
        if special is not None:
            return special(*args, **kwargs)
        if op in ROUNDINGS:
            (value, dtype) = args
            rounded = self._pointwise(ROUNDINGS[op], (value,))
            return self._emit("cast", dtype, value=rounded, dtype=dtype_name(dtype))
        function = SYNONYMS.get(op, op)
        if function not in ARITY:
            raise Unsupported(f"it uses the operation {op}, which is not supported")
        if kwargs or len(args) != ARITY[function]:
            raise Unsupported(f"the operation {op} has {len(args) + len(kwargs)} arguments instead of {ARITY[function]}")
        return self._pointwise(function, args)

    def _pointwise(self, function: str, args: tuple) -> int:
        typed = args[1:] if function == "where" else args
        known = [self.dtypes[self.ids[a]] for a in typed if isinstance(a, torch.fx.Node)]
        inline = _inline_dtype(typed, known)
        values = [self._value(a, torch.bool if function == "where" and i == 0 else inline) for i, a in enumerate(args)]
        dtypes = [self.dtypes[v] for v in (values[1:] if function == "where" else values)]
        return self._emit("pointwise", _result_dtype(function, dtypes), function=function, args=values)

    def _op_load(self, buffer: str, index: torch.fx.Node) -> int:
        return self._emit("load", self.buffer_dtype(buffer), buffer=buffer, index=self._index(index))

    def _op_store(self, buffer: str, index: torch.fx.Node, value: object, mode: str | None = None) -> int:
        fields = {"buffer": buffer, "index": self._index(index), "value": self._value(value, self.buffer_dtype(buffer))}
        if mode == "atomic_add":
            fields["mode"] = mode
        elif mode not in (None, "tma"):  # `tma` is a hint to a backend, not a meaning
            raise Unsupported(f"it stores in mode {mode}, which is not supported")
        return self._emit("store", **fields)

    def _op_store_reduction(self, buffer: str, index: torch.fx.Node, value: object) -> int:
        return self._op_store(buffer, index, value)

    def _op_constant(self, value: object, dtype: torch.dtype) -> int:
        return self._constant(value, dtype)

    def _op_index_expr(self, index: torch.fx.Node, dtype: torch.dtype) -> int:
        expression = self.body.indexing_exprs[index.args[0]]
        if not expression.has(*REAL):
            return self._emit("index", dtype, index=self.text(expression), dtype=dtype_name(dtype))
        return self._emit("cast", dtype, value=self._real(expression), dtype=dtype_name(dtype))

    def _real(self, expression: sympy.Expr) -> int:
        """An expression in which sizes are divided by one another: its integer parts, under operations in float64."""
        if isinstance(expression, ToFloat):
            return self._real(expression.args[0])
        if isinstance(expression, sympy.Float) or not expression.has(*REAL):
            return self._constant(expression, torch.float64)
        function = next((name for kind, name in REAL_FUNCTIONS.items() if isinstance(expression, kind)), None)
        if function is None:
            raise Unsupported(f"the index expression {expression} uses {type(expression).__name__}")
        left, *rest = (self._real(part) for part in expression.args)
        for right in rest:
            left = self._emit("pointwise", torch.float64, function=function, args=[left, right])
        return left

    def _op_to_dtype(self, value: object, dtype: torch.dtype, src_dtype: torch.dtype | None = None, use_compute_types: bool = True) -> int:
        return self._emit("cast", dtype, value=self._value(value, src_dtype), dtype=dtype_name(dtype))

    def _op_to_dtype_bitcast(self, value: object, dtype: torch.dtype, src_dtype: torch.dtype) -> int:
        number = self._value(value, src_dtype)
        return self._emit("bitcast", dtype, value=number, **{"from": dtype_name(src_dtype)}, dtype=dtype_name(dtype))

    def _op_reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: object) -> int:
        values = value if isinstance(value, (tuple, list)) else (value,)
        if reduction_type not in REDUCTIONS:
            raise Unsupported(f"it reduces by {reduction_type}, which is not supported")
        if len(values) != REDUCTIONS[reduction_type]:
            raise Unsupported(f"its reduction {reduction_type} takes {len(values)} values per element, which is not supported")
        numbers = [self._value(v, src_dtype) for v in values]
        return self._emit("reduction", dtype, kind=reduction_type, dtype=dtype_name(dtype), values=numbers)

    def _op_check_bounds(self, index: torch.fx.Node, size: torch.fx.Node, lower: bool, upper: bool) -> None:
        """An assertion on loop variables and sizes alone: with the shapes of the capture it held, so nothing is left to say."""

    # ---- blocks and indirect indices ----

    def _module(self, node: torch.fx.Node) -> int | None:
        if node.target == "get_index":
            return None  # read by whoever uses it
        if node.target.startswith("masked_subblock"):
            return self._masked(node)
        if node.target.startswith("set_indirect"):
            bound = self.body.submodules[node.target].clone.keywords
            return self._emit(
                "indirect",
                value=self._value(node.args[0], torch.int64),
                variable=bound["var"].name,
                size=self.text(bound["size"]),
                check=bool(bound["check"]),
                wrap_negative=bool(bound["wrap_neg"]),
            )
        raise Unsupported(f"the loop body holds {node.target.rstrip('0123456789')}, which is not supported")

    def _masked(self, node: torch.fx.Node) -> int:
        mask = self._value(node.args[0], torch.bool)
        outer, self.out = self.out, []
        result = None
        for inner in self.body.subblocks[node.target].graph.nodes:
            if inner.op == "output":
                result = self._value(inner.args[0], _dtype_of_literal(node.args[1]))
            else:
                self._node(inner)
        block, self.out = self.out, outer
        dtype = self.dtypes[result]
        return self._emit("masked", dtype, mask=mask, other=_scalar(self._literal(node.args[1]), dtype), body=block, result=result)

    def _literal(self, value: object) -> object:
        """A number given inline or by a `constant` node."""
        if isinstance(value, torch.fx.Node) and value.op == "call_method" and value.target == "constant":
            return value.args[1]
        if isinstance(value, torch.fx.Node):
            raise Unsupported("the value of a masked block where its mask is false is not a constant")
        return value

    # ---- values ----

    def _index(self, node: torch.fx.Node) -> str:
        return self.text(self.body.indexing_exprs[node.args[0]])

    def _value(self, value: object, dtype: torch.dtype | None = None) -> int:
        if isinstance(value, torch.fx.Node):
            if value not in self.ids:
                raise Unsupported(f"the loop body uses {value.name} before it is made")
            return self.ids[value]
        if isinstance(value, sympy.Expr) and not value.is_number:
            return self._emit("index", torch.int64, index=self.text(value), dtype="int64")
        return self._constant(value, dtype or _dtype_of_literal(value))

    def _constant(self, value: object, dtype: torch.dtype) -> int:
        if isinstance(value, sympy.Expr) and not value.is_number:
            return self._emit("index", dtype, index=self.text(value), dtype=dtype_name(dtype))
        return self._emit("constant", dtype, value=_scalar(value, dtype), dtype=dtype_name(dtype))


def _dtype_of_literal(value: object) -> torch.dtype:
    if isinstance(value, bool):
        return torch.bool
    return torch.int64 if isinstance(value, (int, sympy.Integer)) else torch.float32


def _inline_dtype(args: tuple, known: list[torch.dtype]) -> torch.dtype | None:
    """Type of the numbers written inline among `args`: that of the values beside them, unless a float meets integers."""
    if not known:
        return None
    literal_is_float = any(isinstance(a, (float, sympy.Float)) for a in args)
    floats = [d for d in known if d.is_floating_point]
    if floats or literal_is_float:
        return floats[0] if floats else torch.float32
    return next((d for d in known if d != torch.bool), None)


def _result_dtype(function: str, dtypes: list[torch.dtype]) -> torch.dtype:
    if function in PREDICATES:
        return torch.bool
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = torch.promote_types(result, dtype)
    return result


def _scalar(value: object, dtype: torch.dtype) -> object:
    """JSON form of a constant: a float always has a point or an exponent, infinities and NaN are text."""
    if dtype == torch.bool:
        return bool(value)
    if dtype.is_floating_point:
        number = float(value)
        return number if math.isfinite(number) else str(number)
    if float(value) != int(value):
        raise Unsupported(f"the constant {value} is not an integer although its type is {dtype_name(dtype)}")
    return int(value)


def walk(statements: list[Json]) -> Iterator[Json]:
    """Every statement in the order in which their values are made: the body of a masked block comes before the block."""
    for statement in statements:
        if statement["op"] == "masked":
            yield from walk(statement["body"])
        yield statement
