"""What a Triton kernel of the model's author means to the search: its arguments and its text.

Nothing says what such a kernel computes, so its meaning has no nodes (Rust: `shared::meaning::Meaning::program`). Arguments, what each is
for and what it points to are read from a launch and from the kernel's loads and stores. The truth is the kernel's float64 twin.
"""

import ast
import hashlib
import json
import math
from pathlib import Path

import torch
from torch._inductor.runtime.hints import HeuristicType
from torch._inductor.runtime.triton_helpers import get_constexprs
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

from .build.addresses import ATOMICS, Addresses, dotted
from .build.module import entry_of, stripped
from .build.order import BuildFault
from .build.twin import twin
from .meaning.vocabulary import Unsupported, dtype_name

SIZES = ("i32", "i64")
NUMBERS = ("fp32", "fp64")


def is_user_kernel(kernel: object) -> bool:
    """Whether the model's author wrote it."""
    return isinstance(kernel, CachingAutotuner) and kernel.heuristic_type == HeuristicType.USER_AUTOTUNE


def meaning_of(name: str, kernel: CachingAutotuner, arguments: tuple) -> dict:
    """The meaning of the user's kernel `name`, launched with these arguments, stream left out.

    Raises:
        Unsupported: the search cannot judge it; the message is a sentence for people.
    """
    signature: dict[str, str] = kernel.triton_meta["signature"]
    if kernel.triton_meta.get("reset_to_zero") or kernel.triton_meta.get("restore_value"):
        raise Unsupported("its autotuner prepares its buffers before every launch")
    declared = get_constexprs(kernel.fn)
    names = [name for i, name in enumerate(kernel.fn.arg_names) if i not in declared and name in signature]
    given = dict(zip(names, arguments, strict=False))
    if len(given) != len(names):
        raise Unsupported(f"it is launched with {len(arguments)} arguments, and {len(names)} are described")
    roles, program = _read(kernel, signature)
    _check_overlap(given, roles)
    buffers: dict[str, dict] = {}
    described = [_argument(name, signature[name], value, roles.get(name, "in"), buffers) for name, value in given.items()]
    return {"kernel": name, "arguments": described, "buffers": buffers, "symbols": {}, "nodes": [], "program": program}


def _argument(name: str, kind: str, value: object, role: str, buffers: dict[str, dict]) -> dict:
    if isinstance(value, torch.Tensor):
        if not kind.startswith("*"):
            raise Unsupported(f"its argument {name} is a tensor, described as {kind}")
        entry = {"dtype": dtype_name(value.dtype), "size": [str(n) for n in value.size()], "stride": [str(n) for n in value.stride()]}
        buffers[name] = entry
        names = [name]
        if role == "inout":
            names.append(f"{name}_after")
            buffers[names[1]] = entry | {"mutates": name}
        return {"name": name, "type": kind, "role": role, "buffers": names}
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unsupported(f"its argument {name} is a {type(value).__name__}")
    if kind == "constexpr":  # a size of one, which is passed and is a constant to the compiler
        kind = "i32"
    if isinstance(value, int) and kind in SIZES:
        return {"name": name, "type": kind, "role": "size", "value": str(value)}
    if kind in NUMBERS and math.isfinite(value):
        return {"name": name, "type": kind, "role": "number", "number": float(value)}
    raise Unsupported(f"its argument {name} is {value!r} of type {kind}")


def _read(kernel: CachingAutotuner, signature: dict[str, str]) -> tuple[dict[str, str], str]:
    """The role of each pointer, and what identifies the text."""
    entry = kernel.fn.__name__
    try:
        _, tree = stripped(Path(kernel.filename).read_text())
        function = entry_of(tree, entry)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and dotted(node.func) in ATOMICS:
                raise Unsupported(f"line {node.lineno}: {dotted(node.func)}: its programs depend on each other")
        twin(tree, entry, signature, rounded=False)
        addresses = Addresses.of(function, frozenset(name for name, kind in signature.items() if kind.startswith("*")))
    except BuildFault as fault:
        raise Unsupported(f"line {fault.line or 1}: {fault.reason}") from None
    roles = {name: "inout" if name in addresses.loaded else "out" for name in addresses.stored}
    return roles, _program(tree, entry, kernel.triton_meta["constants"])


def _program(tree: ast.Module, entry: str, constants: dict[str, object]) -> str:
    """Equal for texts that differ in comments, layout, the entry's name, and what an autotuner chooses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
            if len(node.body) > 1 and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
                del node.body[0]
            if node.name == entry:
                node.name = "k"
    text = json.dumps([ast.unparse(tree), sorted((name, repr(value)) for name, value in constants.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _check_overlap(given: dict[str, object], roles: dict[str, str]) -> None:
    """What a kernel writes must be nobody else's memory: each argument is judged in memory of its own."""
    spans = {name: _span(value) for name, value in given.items() if isinstance(value, torch.Tensor)}
    for written in roles:
        for other, (start, end) in spans.items():
            if written in spans and other != written and start < spans[written][1] and spans[written][0] < end:
                raise Unsupported(f"its arguments {written} and {other} share memory")


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte of a tensor, and the one behind its last."""
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()
