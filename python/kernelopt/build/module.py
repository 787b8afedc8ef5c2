"""Triton source to a loaded module."""

import ast
import dataclasses
import linecache
from types import ModuleType

from .order import BuildFault
from .screen import is_jit, keep, parse


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a decorator of the compiler says of its kernel; by default what it says of most.

    They are `_create_compile_options` of torch 2.11 (torch/_inductor/runtime/triton_heuristics.py): with the same ones, Triton makes
    the machine code that Inductor itself would launch.
    """

    debug: bool = True
    """`assert_indirect_indexing`: device assertions are kept."""
    enable_fp_fusion: bool = True
    launch_pdl: bool = False
    launch_cooperative_grid: bool = False
    disable_ftz: bool = False


def stripped(source: str) -> tuple[str, ast.Module]:
    """The source without what serves the compiler's decorators, each remaining line where it was, and its tree.

    Raises:
        BuildFault: the screen refuses it.
    """
    kept = keep(parse(source))
    for node in kept:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [decorator for decorator in node.decorator_list if is_jit(decorator)]
    lines = source.splitlines()
    text = [""] * len(lines)
    for node in kept:
        if isinstance(node, ast.Import | ast.ImportFrom):
            text[node.lineno - 1] += ("; " if text[node.lineno - 1] else "") + ast.unparse(node)
            continue
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                text[decorator.lineno - 1] = "@" + ast.unparse(decorator)
        end = node.end_lineno or node.lineno
        text[node.lineno - 1 : end] = lines[node.lineno - 1 : end]
    return "\n".join(text) + "\n", ast.Module(kept, [])


def entry_of(tree: ast.Module, name: str) -> ast.FunctionDef:
    """The kernel's function.

    Raises:
        BuildFault: there is none of that name.
    """
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise BuildFault("compiler", f"the source has no @triton.jit function {name}")


def settings(source: str, name: str) -> Settings:
    """What the compiler's own decorator of function `name` says; without one, the defaults."""
    found: dict[str, object] = {}
    for node in parse(source).body:
        if not (isinstance(node, ast.FunctionDef) and node.name == name):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).startswith("triton_heuristics."):
                for word in decorator.keywords:
                    if word.arg in ("triton_meta", "inductor_meta"):
                        found |= _literals(word.value)
    names = {field.name for field in dataclasses.fields(Settings)} - {"debug"}
    values = {name: bool(found[name]) for name in names & found.keys()}
    return Settings(debug=bool(found.get("assert_indirect_indexing", True)), **values)


def is_users(source: str, name: str) -> bool:
    """Whether the compiler's decorator of function `name` says that the model's author wrote it."""
    functions = (node for node in parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name)
    decorators = (decorator for node in functions for decorator in node.decorator_list)
    return any(isinstance(d, ast.Call) and ast.unparse(d.func) == "triton_heuristics.user_autotune" for d in decorators)


def _literals(node: ast.expr) -> dict[str, object]:
    """The entries of a dictionary display whose keys and values are literals; the others are left out."""
    found = {}
    for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
            found[str(key.value)] = value.value
    return found


PLACE = "/kernelopt/source.py"
"""A file that is not there, and always the same: its name becomes part of the machine code."""


def load(text: str) -> ModuleType:
    """Runs a module that the screen has passed. Triton finds its functions' text where Python keeps that of files.

    Raises:
        BuildFault: it raises.
    """
    linecache.cache[PLACE] = (len(text), None, text.splitlines(keepends=True), PLACE)
    module = ModuleType("kernelopt_source")
    try:
        exec(compile(text, PLACE, "exec"), vars(module))
    except MemoryError:
        raise
    except Exception as error:
        raise BuildFault("compiler", f"{type(error).__name__}: {error}", _line_in(error)) from None
    return module


def _line_in(error: BaseException) -> int | None:
    """Line of the source in which an error arose."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == PLACE:
            found = trace.tb_lineno
        trace = trace.tb_next
    return found
