"""Assembles the meaning of one generated kernel: its arguments, buffers, symbols and the loop nests that reach them."""

from collections.abc import Iterable

import sympy
from torch._inductor import ir
from torch._inductor.codegen.common import InplacedBuffer, KernelArgs, RemovedArg, SizeArg, TensorArg
from torch._inductor.codegen.triton_utils import signature_of
from torch._inductor.graph import GraphLowering
from torch._inductor.utils import unique
from torch.utils._sympy.numbers import int_oo

from .body import Json, walk
from .expressions import render
from .vocabulary import Unsupported, dtype_name


def simplifier(graph: GraphLowering):
    """Replaces precomputed sizes (`ps0`) by the expressions over size symbols that they stand for."""
    return graph.sizevars.remove_precomputed_replacements


class KernelExport:
    """The export of one kernel instance of `graph`."""

    def __init__(self, graph: GraphLowering) -> None:
        self.graph = graph
        self.simplify = simplifier(graph)
        self.real_names: dict[str, str] = graph.scheduler.mutation_real_name

    def text(self, expr: "sympy.Expr | int") -> str:
        """`expr` in the grammar of meanings, precomputed sizes replaced."""
        return render(self.simplify(sympy.sympify(expr)))

    def meaning(self, kernel: str, arguments: list[Json], nodes: list[Json]) -> Json:
        """Puts the parts together.

        Raises:
            Unsupported: a buffer or a symbol cannot be described.
        """
        pointed_at = {name for argument in arguments for name in argument.get("buffers", ())}
        nodes = self._pruned(nodes, pointed_at)
        buffers = self._buffers(pointed_at, nodes)
        return {
            "kernel": kernel,
            "arguments": arguments,
            "buffers": buffers,
            "symbols": self._symbols(arguments, buffers, nodes),
            "nodes": nodes,
        }

    # ---- arguments ----

    def cpp_arguments(self, args: KernelArgs) -> list[Json]:
        """Arguments of a C++ kernel, in call order."""
        definitions, _, types = args.cpp_argdefs()
        names = [definition.split()[-1].lstrip("*") for definition in definitions]
        return self._arguments(args, zip(names, types, strict=True))

    def triton_arguments(self, args: KernelArgs, kernel: object) -> list[Json]:
        """Arguments of a Triton kernel, in call order; the extents of its range trees come last, constexprs are left out."""
        definitions, _, described, _ = args.python_argdefs()
        typed = []
        for definition, description in zip(definitions, described, strict=True):
            if not isinstance(description, (TensorArg, SizeArg)):
                raise Unsupported(f"its argument {definition.name} is a {type(description).__name__}, which is not supported")
            typed.append((definition.name, str(signature_of(description, size_dtype=kernel.index_dtype))))
        arguments = self._arguments(args, typed)
        for tree in kernel.range_trees:
            if not tree.is_reduction or kernel.inside_reduction:
                extent = SizeArg(f"{tree.prefix}numel", tree.numel)
                c_type = str(signature_of(extent, size_dtype=kernel.index_dtype))
                arguments.append({"name": extent.name, "type": c_type, "role": "size", "value": self.text(tree.numel)})
        return arguments

    def _arguments(self, args: KernelArgs, typed: Iterable[tuple[str, str]]) -> list[Json]:
        reused = {b.inner_name: list(b.other_names) for b in unique(args.inplace_buffers.values()) if isinstance(b, InplacedBuffer)}
        read = {inner: outer for outer, inner in args.input_buffers.items()}
        written = {inner: outer for outer, inner in args.output_buffers.items() if not isinstance(inner, RemovedArg)}
        sizes = {inner: outer for outer, inner in args.sizevars.items()}
        arguments = []
        for name, c_type in typed:
            argument: Json = {"name": name, "type": c_type}
            if name in reused:
                argument |= {"role": "inout", "buffers": reused[name]}
            elif name in read:
                argument |= {"role": "in", "buffers": [read[name]]}
            elif name in written:
                argument |= {"role": "out", "buffers": [written[name]]}
            elif name in sizes:
                argument |= {"role": "size", "value": self.text(sizes[name])}
            else:
                raise Unsupported(f"its argument {name} is neither a buffer nor a size")
            if name not in sizes and "*" not in c_type:
                raise Unsupported(f"its argument {name} is a tensor passed by value")
            arguments.append(argument)
        return arguments

    # ---- nodes and buffers ----

    def _pruned(self, nodes: list[Json], pointed_at: set[str]) -> list[Json]:
        """Nodes that lead to an argument. Nested kernels list the nodes of all their parts."""
        needed, kept = set(pointed_at), []
        for node in reversed(nodes):
            statements = list(walk(node["body"]))
            written = {s["buffer"] for s in statements if s["op"] == "store"}
            if needed & (written | {self.real_names.get(name, name) for name in written}):
                kept.append(node)
                needed |= {s["buffer"] for s in statements if s["op"] == "load"}
        return kept[::-1]

    def _buffers(self, pointed_at: set[str], nodes: list[Json]) -> dict[str, Json]:
        touched = [s["buffer"] for node in nodes for s in walk(node["body"]) if s["op"] in ("load", "store")]
        names = list(dict.fromkeys([*pointed_at, *touched]))
        names += [real for name in names if (real := self.real_names.get(name, name)) not in names]
        buffers = {name: self._buffer(name) for name in sorted(set(names))}
        for name, buffer in buffers.items():
            if name not in pointed_at and buffer.get("mutates", name) not in pointed_at:
                buffer["internal"] = True
        self._keep_shared_storage(buffers)
        return buffers

    def _buffer(self, name: str) -> Json:
        graph = self.graph
        buffer: Json = {"dtype": dtype_name(graph.get_dtype(name))}
        owner = graph.try_get_buffer(name)
        if owner is None:
            raise Unsupported(f"nothing is known of its buffer {name}")
        layout = owner.get_layout()
        if isinstance(layout, ir.NonOwningLayout):
            buffer["alias"] = {"of": layout.view.get_name(), "offset": self.text(layout.view.get_layout().offset)}
        if isinstance(layout, ir.MutationLayoutSHOULDREMOVE):
            layout = layout.real_layout()
        buffer |= {
            "size": [self.text(extent) for extent in layout.size],
            "stride": [self.text(stride) for stride in layout.stride],
            "offset": self.text(layout.offset),
        }
        real = self.real_names.get(name, name)
        if real != name:
            buffer["mutates"] = real
        return buffer

    def _keep_shared_storage(self, buffers: dict[str, Json]) -> None:
        """Keeps an alias only where another buffer of this kernel lies in the same storage; else it says nothing about the kernel."""
        owners = [buffer["alias"]["of"] for buffer in buffers.values() if "alias" in buffer]
        for buffer in list(buffers.values()):
            if "alias" not in buffer:
                continue
            owner = buffer["alias"]["of"]
            if owner not in buffers and owners.count(owner) == 1:
                del buffer["alias"]
            elif owner not in buffers:
                buffers[owner] = self._buffer(owner)

    # ---- symbols ----

    def _symbols(self, arguments: list[Json], buffers: dict[str, Json], nodes: list[Json]) -> dict[str, int]:
        """Values at capture of the size symbols that the meaning names."""
        texts = [argument["value"] for argument in arguments if "value" in argument]
        for buffer in buffers.values():
            texts += [*buffer["size"], *buffer["stride"], buffer["offset"], buffer.get("alias", {}).get("offset", "0")]
        bound: set[str] = set()
        for node in nodes:
            bound |= {axis["var"] for axis in node["iter"] + node["reduce"]}
            texts += [axis["extent"] for axis in node["iter"] + node["reduce"]]
            for statement in walk(node["body"]):
                texts += [statement[key] for key in ("index", "size") if key in statement]
                if statement["op"] == "indirect":
                    bound.add(statement["variable"])
        names = sorted({name for text in texts for name in _names(text)} - bound)
        return {name: self._value_at_capture(name) for name in names}

    def _value_at_capture(self, name: str) -> int:
        known = self.graph.sizevars.backed_var_to_val
        value = next((v for symbol, v in known.items() if symbol.name == name), None)
        if value is None or value in (int_oo, sympy.oo):
            raise Unsupported(f"its size {name} depends on data")
        return int(value)


def _names(text: str) -> set[str]:
    """Variables in a rendered expression."""
    words = set()
    for word in text.replace("(", "( ").replace(")", " ").replace(",", " ").replace("*", " ").split():
        if word.isidentifier():
            words.add(word)
    return words
