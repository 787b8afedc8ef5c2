"""How a launch's grid follows from the kernel's constants, read from the user's own grid function.

A grid function is `lambda meta: (triton.cdiv(n, meta["BLOCK"]),)`, or a `def` that returns such a tuple. It is found in its file by
the positions that Python keeps of its instructions, and read as a tree. What does not hang on `meta` is a number, and is evaluated;
what does may be made of sums, products, quotients, remainders, `triton.cdiv`, `min` and `max`. Anything else is not known.
"""

import ast
import contextlib
import linecache
from collections.abc import Callable, Iterator

import triton
from triton.runtime.jit import KernelInterface

from .patching import replaced

OPERATORS = {ast.Add: "({} + {})", ast.Sub: "({} - {})", ast.Mult: "({}*{})", ast.FloorDiv: "FloorDiv({}, {})", ast.Mod: "Mod({}, {})"}
EVALUATED = {
    "CeilDiv": lambda a, b: -(-a // b),
    "FloorDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "Min": min,
    "Max": max,
    "__builtins__": {},
}
FUNCTIONS = {triton.cdiv: "CeilDiv", min: "Min", max: "Max"}


class NotKnown(Exception):
    """The grid is made in a way that is not read."""


class GridWatch:
    """The grids that kernels were launched with while a model ran as it was written, not compiled."""

    def __init__(self) -> None:
        # By name of the kernel's function; for each grid function its three extents as expressions, or none where they are not known.
        self._seen: dict[str, list[list[str] | None]] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator["GridWatch"]:
        """Watches launches inside the `with` block."""
        index = KernelInterface.__getitem__

        def watched(kernel: KernelInterface, grid: object) -> Callable:
            self.see(kernel, grid)
            return index(kernel, grid)

        with replaced(KernelInterface, "__getitem__", watched):
            yield self

    def see(self, kernel: object, grid: object) -> None:
        """Takes down what `kernel[grid]` says."""
        while not hasattr(kernel, "__name__") and hasattr(kernel, "fn"):
            kernel = kernel.fn  # an autotuner around a function
        try:
            extents = expressions(grid)
        except NotKnown:
            extents = None
        seen = self._seen.setdefault(getattr(kernel, "__name__", ""), [])
        if extents not in seen:
            seen.append(extents)

    def of(self, function: str) -> list[str] | None:
        """The extents of the grid of the kernel `function`; none where they are not known, or differ between its launches."""
        seen = self._seen.get(function, [])
        return seen[0] if len(seen) == 1 else None

    def name(self, entry: dict) -> None:
        """Writes the grid of an entry's launch as expressions, where they are known and give what was seen."""
        launch = entry["launch"]
        extents = self.of(launch["entry"])
        sizes = {a["name"]: int(a["value"]) for a in entry["meaning"]["arguments"] if a["role"] == "size"}
        if extents is not None and evaluated(extents, sizes | launch["constants"]) == launch["grid"]:
            launch["grid"] = extents


def expressions(grid: Callable) -> list[str]:
    """The extents along x, y and z of a grid function, over names of the kernel's parameters, as `shared::meaning::Expr` reads them.

    Raises:
        NotKnown: the function is not found, or holds something else.
    """
    function = _definition(grid)
    names = [argument.arg for argument in function.args.args]
    body = function.body
    if isinstance(function, ast.FunctionDef):
        statements = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        if len(statements) != 1 or not isinstance(statements[0], ast.Return):
            raise NotKnown
        body = statements[0].value
    if len(names) != 1 or not isinstance(body, ast.Tuple | ast.List) or not 1 <= len(body.elts) <= 3:
        raise NotKnown
    extents = [_Extent(grid, names[0]).text(element) for element in body.elts]
    return extents + ["1"] * (3 - len(extents))


def evaluated(extents: list[str], values: dict[str, int]) -> list[str] | None:
    """The extents as numbers, where every name has one of `values`; none where one has not."""
    try:
        return [str(eval(extent, dict(EVALUATED), values)) for extent in extents]
    except (NameError, ZeroDivisionError):
        return None


class _Extent:
    """One extent of a grid function, whose parameter is `meta`."""

    def __init__(self, grid: Callable, meta: str) -> None:
        cells = zip(grid.__code__.co_freevars, grid.__closure__ or (), strict=True)
        self._names = {name: cell.cell_contents for name, cell in cells}
        self._globals = grid.__globals__
        self._meta = meta

    def text(self, node: ast.expr) -> str:
        """The extent as an expression."""
        if not any(isinstance(part, ast.Name) and part.id == self._meta for part in ast.walk(node)):
            value = self._value(node)
            if not isinstance(value, int):
                raise NotKnown
            return str(int(value))
        match node:
            case ast.Subscript(value=ast.Name(id=self._meta), slice=ast.Constant(value=str(name))):
                return name
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
                return OPERATORS[type(operator)].format(self.text(left), self.text(right))
            case ast.Call(func=func, args=[first, second], keywords=[]):
                found = next((name for function, name in FUNCTIONS.items() if function is self._value(func)), None)
                if found is not None:
                    return f"{found}({self.text(first)}, {self.text(second)})"
        raise NotKnown

    def _value(self, node: ast.expr) -> object:
        """What a part without `meta` is worth: a piece of the model's own code, which has just run."""
        try:
            return eval(compile(ast.Expression(node), "<grid>", "eval"), self._globals, self._names)
        except Exception:
            raise NotKnown from None


def _definition(grid: Callable) -> ast.Lambda | ast.FunctionDef:
    """The one definition in the function's file that holds all of its instructions."""
    code = getattr(grid, "__code__", None)
    if code is None:
        raise NotKnown
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError, RecursionError):
        raise NotKnown from None
    places = [place for place in code.co_positions() if None not in place and place[2:] != (0, 0)]
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda | ast.FunctionDef) and _holds(node, code, places)]
    if len(found) != 1:
        raise NotKnown
    return found[0]


def _holds(node: ast.Lambda | ast.FunctionDef, code: object, places: list[tuple[int, int, int, int]]) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name == code.co_name and node.lineno == code.co_firstlineno
    body = node.body
    start, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    if code.co_name != "<lambda>" or node.lineno != code.co_firstlineno or not places:
        return False
    return all(start <= (line, column) and (end_line, end_column) <= end for line, end_line, column, end_column in places)
