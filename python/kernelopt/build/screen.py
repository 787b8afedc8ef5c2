"""A first look at a Triton source, before any of it runs.

Defence in depth: the wall is the sandbox around the process. This look keeps out what no kernel needs, and says where it is: Python
that runs when the module is loaded, and names by which Triton's compiler, which evaluates attributes and calls of the
host's Python while it compiles, could be led elsewhere.
"""

import ast
import importlib
from types import ModuleType

from .order import MAX_SOURCE_BYTES, refused

# What may be imported: names of each module; None stands for the module itself.
IMPORTS: dict[str, frozenset[str | None]] = {
    "triton": frozenset({None, "cdiv", "jit", "language", "next_power_of_2"}),
    "triton.language": frozenset({None, "math"}),
    "triton.language.extra": frozenset({"libdevice"}),
    "triton.language.extra.cuda": frozenset({"libdevice"}),
    "torch._inductor.runtime": frozenset({"triton_helpers"}),
    "torch._inductor.runtime.triton_helpers": frozenset({"libdevice", "math"}),
    "math": frozenset({None, "ceil", "e", "exp", "floor", "inf", "log", "log2", "nan", "pi", "sqrt"}),
}
# Imported by the compiler's own text for its decorators only: they are left out together.
DECORATOR_IMPORTS: dict[str, frozenset[str]] = {
    "torch._inductor.runtime": frozenset({"triton_heuristics"}),
    "torch._inductor.runtime.hints": frozenset({"AutotuneHint", "DeviceProperties", "ReductionHint", "TileHint"}),
}
# Modules that an attribute may be taken from.
OPEN_MODULES = frozenset(
    {
        "math",
        "triton.language",
        "triton.language.extra",
        "triton.language.extra.cuda",
        "triton.language.extra.cuda.libdevice",
        "triton.language.extra.libdevice",
        "triton.language.math",
        "torch._inductor.runtime.triton_helpers",
    }
)
TRITON_ITSELF = frozenset({"cdiv", "jit", "language", "next_power_of_2"})
# Python's own functions that Triton's compiler knows how to call.
BUILTINS = frozenset({"abs", "bool", "float", "int", "isinstance", "len", "max", "min", "range", "tuple"})
CONSTANT_CALLS = frozenset({"float", "int", "max", "min"})


def parse(source: str) -> ast.Module:
    """The source's tree.

    Raises:
        BuildFault: it is no Python, or too much of it.
    """
    if len(source) > MAX_SOURCE_BYTES:
        raise refused(f"{len(source)} characters of source; at most {MAX_SOURCE_BYTES} are compiled", 1)
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise refused(f"not Python: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise refused(f"not Python: {error}", 1) from None


def keep(tree: ast.Module) -> list[ast.stmt]:
    """The statements that make up the module, in order: imports, constants and `@triton.jit` functions, every one looked at. What
    serves the compiler's decorators only is left out.

    Raises:
        BuildFault: something else is there; the line is said.
    """
    kept, names = [], set()
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    modules: dict[str, ModuleType] = {}
    defined: set[str] = set()
    for node in tree.body:
        _defined_once(node, defined)
        match node:
            case ast.Import() | ast.ImportFrom():
                if not _for_decorators(node):
                    names |= _import(node, modules)
                    kept.append(node)
            case ast.FunctionDef():
                _Body(functions | names, modules).check(node)
                kept.append(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                _constant(value, names, modules)
                if isinstance(node, ast.AnnAssign):
                    _constant(node.annotation, names, modules)
                names.add(name)
                kept.append(node)
            case ast.Expr(value=ast.Constant()):
                pass  # a docstring
            case ast.Expr(value=ast.Call() as call) if ast.unparse(call) == "triton_helpers.set_driver_to_gpu()":
                pass  # there is no driver here
            case _:
                raise refused("only imports, constants and @triton.jit functions may stand in a module", node.lineno)
    return kept


def _defined_once(node: ast.stmt, defined: set[str]) -> None:
    """A kernel that is something else further down is none."""
    match node:
        case ast.FunctionDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            if name in defined:
                raise refused(f"{name} is defined twice", node.lineno)
            defined.add(name)


def is_jit(decorator: ast.expr) -> bool:
    """True for `@triton.jit` and `@triton.jit(...)`."""
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(target) in ("triton.jit", "jit")


def _is_heuristic(decorator: ast.expr) -> bool:
    """True for the compiler's own `@triton_heuristics.reduction(...)`, which is left out."""
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func).startswith("triton_heuristics.")


def _takes_constants(call: ast.Call) -> bool:
    return not call.args and all(word.arg is not None and isinstance(word.value, ast.Constant) for word in call.keywords)


def _for_decorators(node: ast.Import | ast.ImportFrom) -> bool:
    known = DECORATOR_IMPORTS.get(node.module or "", frozenset()) if isinstance(node, ast.ImportFrom) else frozenset()
    # The compiler imports its helpers and its heuristics in one line; what is imported for nothing is left out as well.
    node.names = [alias for alias in node.names if alias.name not in known]
    return not node.names


def _import(node: ast.Import | ast.ImportFrom, modules: dict[str, ModuleType]) -> set[str]:
    """Names that the statement binds; `modules` learns those of modules."""
    bound = set()
    for alias in node.names:
        if isinstance(node, ast.Import):
            place, name = alias.name, None
            # Without `as`, Python binds the package.
            value = importlib.import_module(place if alias.asname else place.split(".")[0]) if _allowed(place, name) else None
            binding = alias.asname or place.split(".")[0]
        else:
            place, name = (node.module or "" if node.level == 0 else "."), alias.name
            value = _member(place, name) if _allowed(place, name) else None
            binding = alias.asname or name
        if value is None:
            raise refused(f"import of {place}{f'.{name}' if name else ''}: not one of those that a kernel needs", node.lineno)
        if isinstance(value, ModuleType):
            modules[binding] = value
        bound.add(binding)
    return bound


def _member(place: str, name: str) -> object:
    """As `from place import name` does: an attribute, or else a submodule."""
    module = importlib.import_module(place)
    return getattr(module, name) if hasattr(module, name) else importlib.import_module(f"{place}.{name}")


def _allowed(place: str, name: str | None) -> bool:
    return name in IMPORTS.get(place, frozenset())


def _constant(node: ast.expr, names: set[str], modules: dict[str, ModuleType]) -> None:
    """A value that is known without running anything: numbers, earlier constants, arithmetic, `tl.constexpr(...)`, `math`."""
    for part in ast.walk(node):
        match part:
            case ast.Constant() | ast.Tuple() | ast.List() | ast.UnaryOp() | ast.BinOp() | ast.operator() | ast.unaryop():
                pass
            case ast.expr_context() | ast.keyword():
                pass
            case ast.Name(id=name) if name in names or name in CONSTANT_CALLS:
                pass
            case ast.Attribute():
                _attribute(part, modules)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=root), attr=name)) if root in modules:
                if not (modules[root].__name__ == "math" or name in ("constexpr", "cdiv", "next_power_of_2")):
                    raise refused(f"{ast.unparse(part.func)}: a constant is made of numbers", part.lineno)
            case ast.Call(func=ast.Name(id=name)) if name in CONSTANT_CALLS:
                pass
            case _:
                text = ast.unparse(node)
                raise refused(f"{text[:60]}: a module's constants are made of numbers", node.lineno)


def _attribute(node: ast.Attribute, modules: dict[str, ModuleType]) -> None:
    """An attribute of a module must lie in one that is open, and must not be one that is not; no attribute is private."""
    chain: list[str] = []
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        chain.append(root.attr)
        root = root.value
    chain.reverse()
    for name in chain:
        if name.startswith("_"):
            raise refused(f"{ast.unparse(node)}: private names", node.lineno)
    value: object = modules.get(root.id) if isinstance(root, ast.Name) else None
    for name in chain:
        if not isinstance(value, ModuleType):
            return
        if value.__name__ not in OPEN_MODULES and not (value.__name__ == "triton" and name in TRITON_ITSELF):
            raise refused(f"{ast.unparse(node)}: {value.__name__} is not open to kernels", node.lineno)
        value = getattr(value, name, None)
    if isinstance(value, ModuleType) and value.__name__ not in OPEN_MODULES:
        raise refused(f"{ast.unparse(node)}: {value.__name__} is not open to kernels", node.lineno)


class _Body(ast.NodeVisitor):
    """Looks at a function: what it names, and what its head evaluates."""

    def __init__(self, names: set[str], modules: dict[str, ModuleType]) -> None:
        self._names, self._modules = names, modules

    def check(self, node: ast.FunctionDef) -> None:
        if not any(map(is_jit, node.decorator_list)):
            raise refused(f"{node.name} is not @triton.jit", node.lineno)
        for decorator in node.decorator_list:
            if not (is_jit(decorator) or _is_heuristic(decorator)):
                raise refused(f"@{ast.unparse(decorator)[:60]}: a kernel is @triton.jit and nothing else", decorator.lineno)
            if is_jit(decorator) and isinstance(decorator, ast.Call) and not _takes_constants(decorator):
                raise refused("@triton.jit takes constants by name", decorator.lineno)
        arguments = node.args
        if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
            raise refused(f"{node.name}: a kernel's parameters have names", node.lineno)
        for default in [*arguments.defaults, *filter(None, arguments.kw_defaults)]:
            _constant(default, self._names, self._modules)
        parameters = [*arguments.args, *arguments.kwonlyargs]
        for annotation in [node.returns, *(parameter.annotation for parameter in parameters)]:
            if annotation is not None:
                _constant(annotation, self._names, self._modules)
        local = {parameter.arg for parameter in parameters}
        local |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        self._names = self._names | local
        # A local of the same name hides a module, and then says nothing of it.
        self._modules = {name: module for name, module in self._modules.items() if name not in local}
        for statement in node.body:
            self.visit(statement)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        _attribute(node, self._modules)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id not in self._names and node.id not in BUILTINS:
            raise refused(f"{node.id} is not defined in the source", node.lineno)
        module = self._modules.get(node.id)
        if module is not None and module.__name__ not in OPEN_MODULES and module.__name__ != "triton":
            raise refused(f"{module.__name__} is not open to kernels", node.lineno)

    def _no_definitions(self, node: ast.stmt | ast.expr) -> None:
        raise refused(f"{type(node).__name__} inside a kernel", node.lineno)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _no_definitions
    visit_Import = visit_ImportFrom = visit_Global = visit_Nonlocal = _no_definitions
    visit_Try = visit_With = visit_Await = visit_Yield = visit_YieldFrom = _no_definitions
