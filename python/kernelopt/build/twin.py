"""The float64 twin of a Triton kernel: the same program in which every float operation is one of float64.

Its inputs keep their types and are widened when they are loaded; every float buffer that the kernel writes is one of float64. So one
more launch gives the truth of a launch, at about twice the time, exact to about 1e-15.

| in the kernel | in its twin |
|---|---|
| `tl.float32` and narrower, as a type | `tl.float64` |
| `tl.load` of a float pointer | followed by `.to(tl.float64)` |
| a float buffer that is written | a `*fp64` argument; what the kernel reads of it first must be put there widened |
| a cast to a narrower float | left out; in the *rounded* twin kept, then widened, unless it only feeds a store |
| reading back what it has stored itself | unrounded; in the rounded twin rounded to the type of the baseline's buffer |
| a bitcast | of the value in its own type, as in the baseline |
| `tl.rand`, `tl.randn` | the float32 draw, widened: it is data |
| a float literal that is compared | rounded to float32 as in the baseline |

What has no float64 form is named with its line. That the result computes in nothing else is checked on Triton's
own intermediate representation (`purity.py`), not assumed.
"""

import ast
import copy
import dataclasses

from .addresses import LOAD, STORES, Addresses, dotted, untwinned
from .module import entry_of

FLOAT_POINTERS = {
    "*fp64": "float64",
    "*fp32": "float32",
    "*fp16": "float16",
    "*bf16": "bfloat16",
    "*fp8e4nv": "float8e4nv",
    "*fp8e5": "float8e5",
}
NARROW = frozenset({"float32", "bfloat16", "float16", "float8e4nv", "float8e5", "float8e4b8", "float8e5b16", "float8e4b15"})
INTEGER_BITS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}
# Approximations in float32 only, and what they approximate.
PRECISE = {
    "fast_cosf": "cos",
    "fast_exp10f": "exp10",
    "fast_expf": "exp",
    "fast_log10f": "log10",
    "fast_log2f": "log2",
    "fast_logf": "log",
    "fast_powf": "pow",
    "fast_sinf": "sin",
    "fast_tanf": "tan",
    "fast_tanhf": "tanh",
    "rsqrt_rn": "rsqrt",
}
QUOTIENTS = frozenset({"div_rn", "fdiv", "fast_dividef"})
DRAWS = frozenset({"tl.rand", "tl.randn"})
# Their results are bits of a float32, or their lowering has no float64.
WITHOUT_FLOAT64 = {
    "tl.dot": "matrix multiplication",
    "tl.dot_scaled": "matrix multiplication",
    "tl.inline_asm_elementwise": "inline assembly",
    "tl.make_tensor_descriptor": "tensor descriptors",
    "tl.rand4x": "four draws at once",
    "tl.randn4x": "four draws at once",
    "tl.pointer_type": "a workspace of another type",
    "triton_helpers.exclusive_scan_decoupled_lookback": "a scan over programs",
    "triton_helpers.exclusive_scan_decoupled_lookback_64": "a scan over programs",
    "triton_helpers.x_grid_barrier": "a barrier over programs",
}
FLOAT32_FUNCTIONS = frozenset({"finitef", "float_as_int", "float_as_uint", "int_as_float", "saturatef", "uint_as_float"})


@dataclasses.dataclass
class Twin:
    """A twin's text and what is to be known of it.

    Attributes:
        types: Triton's type by parameter.
        widened: parameters whose buffers are float64 now.
        inouts: those of them that the kernel also reads.
        roundings: places where the rounded twin differs from the other; without any, the two are one.
        narrows: it rounds to a narrower type somewhere.
        draws: it draws random numbers.
    """

    text: str
    types: dict[str, str]
    widened: list[str]
    inouts: list[str]
    roundings: int = 0
    narrows: bool = False
    draws: bool = False


def twin(tree: ast.Module, entry: str, types: dict[str, str], rounded: bool) -> Twin:
    """The twin of a screened module's kernel, whose parameters have Triton's `types`.

    Raises:
        BuildFault: it has none; the construct and its line are named.
    """
    tree = copy.deepcopy(tree)
    function = entry_of(tree, entry)
    addresses = Addresses.of(function, frozenset(name for name, kind in types.items() if kind.startswith("*")))
    widened = [name for name in types if name in addresses.stored and types[name] in FLOAT_POINTERS]
    made = Twin(
        text="",
        types={name: "*fp64" if name in widened else kind for name, kind in types.items()},
        widened=widened,
        inouts=[name for name in widened if name in addresses.loaded],
    )
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            # A helper has no buffers of its own: one that loads or stores is refused where it does.
            own = addresses if node is function else Addresses.of(node, frozenset())
            rewrite = _Rewrite(made, own, types if node is function else {}, rounded, node)
            node.body = [rewrite.visit(statement) for statement in node.body]
    function.body[:0] = [_widen_scalar(name) for name, kind in types.items() if kind in ("fp32", "fp16", "bf16")]
    made.text = _HEAD + ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    return made


_HEAD = """import triton
import triton.language as tl

@triton.jit
def _own_float(x):
    if x.dtype == tl.float64:
        return x.to(tl.float32)
    else:
        return x

@triton.jit
def _no_float(x):
    tl.static_assert(not x.dtype.is_floating(), "the bits of a widened float")
    return x

"""


class _Rewrite(ast.NodeTransformer):
    """Rewrites the body of one function."""

    def __init__(self, made: Twin, addresses: Addresses, types: dict[str, str], rounded: bool, function: ast.FunctionDef) -> None:
        self._made, self._addresses, self._types, self._rounded = made, addresses, types, rounded
        self._stored_only = _names_only_stored(function)
        self._compared = {
            name.id
            for node in ast.walk(function)
            if isinstance(node, ast.Compare)
            for name in (node.left, *node.comparators)
            if isinstance(name, ast.Name)
        }
        self._whole_value: ast.expr | None = None
        self._assigned = ""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return _expression("tl.float64") if _type_name(node) in NARROW else self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        target = node.targets[0]
        self._whole_value, self._assigned = node.value, target.id if isinstance(target, ast.Name) else ""
        literal = isinstance(node.value, ast.Call) and dotted(node.value.func) == "tl.full" and len(node.value.args) == 3
        if literal and self._assigned in self._compared and _type_name(node.value.args[2]) == "float32":
            node.value = _to(node.value, "float64")
            return node
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = dotted(node.func)
        leaf = name.rpartition(".")[2]
        if name in WITHOUT_FLOAT64 or "descriptor" in name:
            raise untwinned(f"{name}: {WITHOUT_FLOAT64.get(name, 'tensor descriptors')}", node)
        if name == LOAD:
            return self._load(node)
        if name in STORES:
            return self._store(node, leaf)
        if name == "tl.cast":
            method = ast.Attribute(node.args[0], "to", ast.Load())
            return self._cast(ast.copy_location(ast.Call(method, node.args[1:], node.keywords), node))
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            return self._cast(node)
        if name in DRAWS:
            self._made.draws = True
            return _to(self.generic_visit(node), "float64")
        if name:
            return self._function(self.generic_visit(node), name, leaf)
        return self.generic_visit(node)

    def _load(self, node: ast.Call) -> ast.expr:
        buffer = self._addresses.of_access(node)
        kind = FLOAT_POINTERS.get(self._types[buffer])
        node = self.generic_visit(node)
        if kind is None:
            return node
        other = next((word.value for word in node.keywords if word.arg == "other"), node.args[2] if len(node.args) > 2 else None)
        if other is not None and not _is_literal(other):
            raise untwinned(f"other={ast.unparse(other)[:60]}: what a masked load gives is rounded to the buffer's type", node)
        if buffer not in self._addresses.read_back:
            # A buffer that the kernel writes later holds old values still, which are of the narrower type already.
            return _to(node, "float64") if not kind.startswith("float8") else _to(_to(node, "float32"), "float64")
        self._made.roundings += kind != "float64"
        return self._rounded_to(node, kind) if self._rounded and kind != "float64" else node

    def _store(self, node: ast.Call, leaf: str) -> ast.expr:
        buffer = self._addresses.of_access(node)
        if leaf == "atomic_cas" and self._types[buffer] in FLOAT_POINTERS:
            raise untwinned("tl.atomic_cas on floats", node)
        return self.generic_visit(node)

    def _cast(self, node: ast.Call) -> ast.expr:
        words = {word.arg: word.value for word in node.keywords}
        target = node.args[0] if node.args else words.get("dtype")
        bits = words.get("bitcast", node.args[2] if len(node.args) > 2 else None)
        name = _type_name(target) if target is not None else ""
        if isinstance(bits, ast.Constant) and bits.value is True:
            return self._bitcast(node, name)
        if name not in NARROW or name == "float32":
            # What the compiler computes in is float32: there, only a wider type is rounded by this cast, and there is none.
            return self.generic_visit(node)
        only_stored = self._assigned in self._stored_only and self._whole_value is node
        value = self.visit(node.func.value)
        if only_stored:
            return _to(value, "float64")
        self._made.roundings += 1
        return self._rounded_to(value, name) if self._rounded else _to(value, "float64")

    def _bitcast(self, node: ast.Call, name: str) -> ast.expr:
        inner = node.func.value
        if name not in INTEGER_BITS:
            node.func.value = self.visit(inner)
            return _to(_to(node, "float32"), "float64") if name.startswith("float8") else _to(node, "float64")
        own = _type_name(inner.args[0]) if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.args else ""
        self._made.narrows = True
        if own in NARROW and inner.func.attr == "to":
            # The bits of a value that was just converted: converted again.
            value = _to(self.visit(inner.func.value), "float32")
            node.func.value = value if own == "float32" else _to(value, own)
        elif INTEGER_BITS[name] == 32:
            node.func.value = ast.Call(_expression("_own_float"), [self.visit(inner)], [])
        elif INTEGER_BITS[name] == 64:
            node.func.value = self.visit(inner)
        else:
            node.func.value = ast.Call(_expression("_no_float"), [self.visit(inner)], [])
        return node

    def _function(self, node: ast.Call, name: str, leaf: str) -> ast.expr:
        root = name.partition(".")[0]
        if root not in ("libdevice", "tl", "tl_math", "triton"):
            return node
        if leaf in QUOTIENTS:
            return ast.BinOp(node.args[0], ast.Div(), node.args[1])
        if leaf == "sqrt_rn":
            node.func = _expression("tl.sqrt")
        elif leaf in PRECISE:
            node.func = ast.Attribute(node.func.value, PRECISE[leaf], ast.Load())
        elif "libdevice" in name and (leaf in FLOAT32_FUNCTIONS or leaf.startswith(("float2", "fast_"))):
            raise untwinned(f"{name} has no float64 form", node)
        return node

    def _rounded_to(self, node: ast.expr, kind: str) -> ast.expr:
        """By way of float32, which the hardware rounds to narrower types from; rounding twice moves ties by one part in 2^29."""
        self._made.narrows = True
        value = _to(node, "float32")
        if kind == "float32":
            return _to(value, "float64")
        value = _to(value, kind)
        return _to(_to(value, "float32"), "float64") if kind.startswith("float8") else _to(value, "float64")


def _type_name(node: ast.expr) -> str:
    """`float32` of `tl.float32`; empty for what is no type of Triton's by name."""
    name = dotted(node)
    return name[3:] if name.startswith("tl.") and name.count(".") == 1 else ""


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _to(node: ast.expr, kind: str) -> ast.expr:
    return ast.Call(ast.Attribute(node, "to", ast.Load()), [_expression(f"tl.{kind}")], [])


def _widen_scalar(name: str) -> ast.stmt:
    return ast.parse(f"{name} = {name}.to(tl.float64)").body[0]


def _is_literal(node: ast.expr) -> bool:
    """Numbers, signed, and `float('-inf')`."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=operand):
            return _is_literal(operand)
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant()]):
            return True
    return False


def _names_only_stored(function: ast.FunctionDef) -> set[str]:
    """Names that are used as the value of a store and nowhere else."""
    uses: dict[str, list[bool]] = {}
    for node in ast.walk(function):
        stores = isinstance(node, ast.Call) and dotted(node.func) in STORES
        value = node.args[1] if stores and len(node.args) > 1 else None
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
                uses.setdefault(child.id, []).append(child is value)
    return {name for name, as_value in uses.items() if all(as_value)}
