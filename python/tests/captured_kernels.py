"""Triton kernels of captured files, as orders."""

import ast
import dataclasses
from pathlib import Path

from kernelopt.build.order import Order

CAPTURES = Path(__file__).parents[2] / "tests/fixtures/captures"
SMALL_BLOCKS = {"YBLOCK": 16, "R0_BLOCK": 256}


@dataclasses.dataclass(frozen=True)
class Captured:
    """One kernel: where it was found, its text and what its decorator says."""

    file: str
    name: str
    source: str
    triton_meta: dict
    inductor_meta: dict

    def order(self, kind="kernel", rounded=False, **constants):
        """An order for it with small blocks."""
        names = self.triton_meta["signature"]
        fixed = dict(self.triton_meta["constants"])
        looped = "R0_BLOCK" in names
        blocks = {"XBLOCK": 1 if "r0_numel" in names and not looped else 4 if looped else 128, **SMALL_BLOCKS, **constants}
        (attributes,) = self.triton_meta["configs"]
        return Order(
            language="triton",
            source=self.source,
            architecture=90,
            kind=kind,
            cpu_seconds=60,
            wall_seconds=60,
            entry=self.name,
            signature=tuple((name, kind) for name, kind in names.items() if kind != "constexpr"),
            constants={name: value for name, value in blocks.items() if name in names and name not in fixed} | fixed,
            divisible_by_16=frozenset(list(names)[position[0]] for position in attributes),
            rounded=rounded,
        )


def captured_kernels():
    """Every distinct one."""
    found = {}
    for path in sorted(CAPTURES.glob("cuda-*/*/output_code_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "async_compile.triton":
                source = node.args[1].value
                found.setdefault(source, _read(path, source))
    return list(found.values())


def captured(file, name):
    """The one of a file whose name ends with `name`."""
    return next(kernel for kernel in captured_kernels() if kernel.file == file and kernel.name.endswith(name))


def _read(path, source):
    function = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)][-1]
    words = {word.arg: _literal(word.value) for node in function.decorator_list if isinstance(node, ast.Call) for word in node.keywords}
    return Captured(path.parent.name, function.name, source, words["triton_meta"], words["inductor_meta"])


def _literal(node):
    """A literal in which calls and names stand for nothing."""

    class Nothing(ast.NodeTransformer):
        def visit_Call(self, node):
            return ast.Constant(None)

        visit_Name = visit_Attribute = visit_Call

    return ast.literal_eval(Nothing().visit(node))
