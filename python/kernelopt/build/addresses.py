"""Which buffers a kernel reads and writes, found from the addresses of its loads and stores."""

import ast
import dataclasses

from .order import BuildFault

ATOMICS = frozenset(f"tl.atomic_{name}" for name in ("add", "and", "cas", "max", "min", "or", "xchg", "xor"))
STORES = ATOMICS | {"tl.store"}
LOAD = "tl.load"
# Calls that leave the buffer of an address as it is.
_SAME_BUFFER = frozenset({"tl.make_block_ptr", "tl.advance", "tl.multiple_of", "tl.max_contiguous", "tl.broadcast_to"})
_SAME_BUFFER_METHODS = frozenset({"advance", "broadcast_to", "to"})


def dotted(node: ast.expr) -> str:
    """`tl.load` of the expression `tl.load`, `triton.language` written out as `tl`; empty for anything but names and attributes."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    name = ".".join([node.id, *reversed(names)])
    return "tl." + name.removeprefix("triton.language.") if name.startswith("triton.language.") else name


def untwinned(reason: str, node: ast.AST) -> BuildFault:
    """This construct has no float64 form."""
    return BuildFault("untwinned", reason, getattr(node, "lineno", None))


@dataclasses.dataclass(frozen=True)
class Addresses:
    """Buffers of one function.

    Attributes:
        pointers: pointer parameters.
        stored: those that something is written to.
        loaded: those that are read, by a load or as part of an atomic.
        read_back: those from which a load may see what the kernel itself has stored.
    """

    pointers: frozenset[str]
    aliases: dict[str, str]
    stored: frozenset[str]
    loaded: frozenset[str]
    read_back: frozenset[str]

    @classmethod
    def of(cls, function: ast.FunctionDef, pointers: frozenset[str]) -> "Addresses":
        """Looks at a function's loads and stores.

        Raises:
            BuildFault: the buffer of one cannot be told.
        """
        found = cls(pointers, {}, frozenset(), frozenset(), frozenset())
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and not _is_load(node.value):
                buffer = found.buffer(node.value)
                if buffer:
                    found.aliases[node.targets[0].id] = buffer
        accesses = list(_accesses(function, found))
        stored = {access.buffer for access in accesses if access.writes}
        loaded = {access.buffer for access in accesses if access.reads}
        return dataclasses.replace(
            found, stored=frozenset(stored), loaded=frozenset(loaded), read_back=frozenset(_read_back(accesses, stored))
        )

    def buffer(self, node: ast.expr) -> str | None:
        """The pointer parameter that an address is made of: the additive spine only, since an index may hold loaded values."""
        match node:
            case ast.Name(id=name):
                return name if name in self.pointers else self.aliases.get(name)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                return self.buffer(left) or self.buffer(right)
            case ast.Call(func=func, args=[first, *_]) if dotted(func) in _SAME_BUFFER:
                return self.buffer(first)
            case ast.Call(func=func, keywords=words) if dotted(func) in _SAME_BUFFER:
                return next((self.buffer(word.value) for word in words if word.arg == "base"), None)
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in _SAME_BUFFER_METHODS:
                return self.buffer(value)
            case ast.Subscript(value=value):
                return self.buffer(value)
        return None

    def of_access(self, node: ast.Call) -> str:
        """The buffer of a load or store.

        Raises:
            BuildFault: it cannot be told.
        """
        address = node.args[0] if node.args else next((word.value for word in node.keywords if word.arg == "pointer"), None)
        buffer = self.buffer(address) if address is not None else None
        if buffer is None:
            raise untwinned(f"{ast.unparse(node)[:80]}: the buffer cannot be told", node)
        return buffer


@dataclasses.dataclass(frozen=True)
class _Access:
    buffer: str
    reads: bool
    writes: bool
    place: tuple[int, int]
    loops: tuple[int, ...]


def _is_load(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func) == LOAD


def _accesses(node: ast.AST, addresses: Addresses, loops: tuple[int, ...] = ()):
    """Loads and stores below `node`, with the loops that they stand in."""
    if isinstance(node, ast.Call):
        name = dotted(node.func)
        if name == LOAD or name in STORES:
            place = (node.lineno, node.col_offset)
            yield _Access(addresses.of_access(node), name != "tl.store", name != LOAD, place, loops)
    inner = (*loops, id(node)) if isinstance(node, ast.For | ast.While) else loops
    for child in ast.iter_child_nodes(node):
        yield from _accesses(child, addresses, inner)


def _read_back(accesses: list[_Access], stored: set[str]) -> set[str]:
    """Buffers with a load behind a store, in the text or by way of a loop around both."""
    found = set()
    for load in accesses:
        if not load.reads or load.writes or load.buffer not in stored:
            continue
        stores = [access for access in accesses if access.writes and access.buffer == load.buffer]
        if any(store.place < load.place or set(store.loops) & set(load.loops) for store in stores):
            found.add(load.buffer)
    return found
