"""Watches the compiler generate code and records what each generated kernel means.

The nodes are read when code generation starts: after all fusion and loop merging, before a backend edits bodies in place
(the C++ backend legalises bfloat16, the Triton backend inserts casts).
"""

import contextlib
import functools
import json
import re
from collections.abc import Iterator

from torch._inductor.codegen.common import KernelArgs
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.codegen.triton_combo_kernel import ComboKernel
from torch._inductor.loop_body import LoopBody
from torch._inductor.scheduler import BaseSchedulerNode, Scheduler, SchedulerNode
from torch._inductor.virtualized import V

from ..patching import replaced
from .body import Json, export_node
from .kernel import KernelExport, simplifier
from .vocabulary import Unsupported

NOT_SEEN = "it was not made from loops that the exporter saw: a template, or a kernel that the user wrote"
DEFINITION = re.compile(r"^(\w+) = async_compile\.\w+\(", re.MULTILINE)


class KernelRecorder:
    """Records the kernels of one graph while it is compiled."""

    def __init__(self) -> None:
        self._nodes: dict[str, Json | Unsupported] = {}
        self._instances: dict[str, list[Json | Unsupported]] = {}

    def entries(self, code: str) -> list[Json]:
        """One `KernelEntry` for every kernel that the generated file `code` defines, in its order."""
        return [self._entry(name) for name in DEFINITION.findall(code)]

    def _entry(self, name: str) -> Json:
        instances = self._instances.get(name)
        if instances is None:
            return {"kernel": name, "meaning": None, "reason": NOT_SEEN}
        failure = next((i for i in instances if isinstance(i, Unsupported)), None)
        if failure is None and len({_canonical(i) for i in instances}) > 1:
            failure = Unsupported("it is used at several places, and means different things there")
        if failure is not None:
            return {"kernel": name, "meaning": None, "reason": str(failure)}
        return {"kernel": name, "meaning": instances[0]}

    @contextlib.contextmanager
    def watching(self) -> Iterator["KernelRecorder"]:
        """Records every kernel generated inside the `with` block."""
        with (
            replaced(Scheduler, "codegen", self._watch_scheduler(Scheduler.codegen)),
            replaced(CppScheduling, "define_kernel", self._watch_cpp(CppScheduling.define_kernel)),
            replaced(TritonScheduling, "define_kernel", self._watch_triton(TritonScheduling.define_kernel)),
        ):
            yield self

    # ---- the three hooks ----

    def _watch_scheduler(self, codegen):
        @functools.wraps(codegen)
        def watched(scheduler: Scheduler):
            simplify = simplifier(V.graph)
            for node in _leaves(scheduler.nodes):
                self._nodes[node.get_name()] = _export(node, simplify)
            return codegen(scheduler)

        return watched

    def _watch_cpp(self, define_kernel):
        @functools.wraps(define_kernel)
        def watched(scheduling: CppScheduling, src_code: str, nodes: list, kernel_args: KernelArgs | None = None):
            name = define_kernel(scheduling, src_code, nodes, kernel_args)
            args = scheduling.kernel_group.args if kernel_args is None else kernel_args
            self._record(name, nodes, lambda export: export.cpp_arguments(args))
            return name

        return watched

    def _watch_triton(self, define_kernel):
        @functools.wraps(define_kernel)
        def watched(scheduling: TritonScheduling, src_code: str, node_schedule: list, kernel: object):
            name = define_kernel(scheduling, src_code, node_schedule, kernel)

            def arguments(export: KernelExport) -> list[Json]:
                if isinstance(kernel, ComboKernel):
                    raise Unsupported("it is a combination of several kernels")
                if getattr(kernel, "mix_order_reduction", False):
                    raise Unsupported("it reduces in two orders at once and leaves partial sums to the wrapper")
                return export.triton_arguments(kernel.args, kernel)

            self._record(name, node_schedule, arguments)
            return name

        return watched

    def _record(self, name: str, schedule: list, arguments) -> None:
        try:
            export = KernelExport(V.graph)
            exported = export.meaning(name, arguments(export), self._exported_nodes(schedule))
        except Unsupported as reason:
            exported = reason
        self._instances.setdefault(name, []).append(exported)

    def _exported_nodes(self, schedule: list) -> list[Json]:
        exported = []
        for node in _leaves(schedule):
            found = self._nodes.get(node.get_name(), Unsupported("it was scheduled after the exporter looked"))
            if isinstance(found, Unsupported):
                raise found
            exported.append(found)
        return exported


def _leaves(nodes: list) -> Iterator[BaseSchedulerNode]:
    """Scheduler nodes in order, fused ones taken apart, a backend's markers left out."""
    for node in nodes:
        if not isinstance(node, BaseSchedulerNode):
            continue
        inner = list(node.get_nodes())
        if inner == [node]:
            yield node
        else:
            yield from _leaves(inner)


def _export(node: BaseSchedulerNode, simplify) -> "Json | Unsupported":
    body = getattr(node, "_body", None)
    if not isinstance(node, SchedulerNode) or not isinstance(body, LoopBody):
        return Unsupported("it was made from a template")
    try:
        return export_node(node.get_name(), body, V.graph.get_dtype, simplify)
    except Unsupported as reason:
        return reason


def _canonical(meaning: Json) -> str:
    """Text that is equal for two meanings that differ in the names of buffers, symbols and nodes only.

    The extents of buffers are left out: what a kernel touches follows from its loops.
    """
    loops = [{key: value for key, value in node.items() if key != "name"} for node in meaning["nodes"]]
    buffers = {name: {k: v for k, v in b.items() if k not in ("size", "stride")} for name, b in meaning["buffers"].items()}
    text = json.dumps([meaning["arguments"], loops])
    words = dict.fromkeys(re.findall(r"\w+", text) + list(buffers))
    new_names = {word: f"%{i}" for i, word in enumerate(w for w in words if w in buffers or w in meaning["symbols"])}

    def renamed(text: str) -> str:
        return re.sub(r"\w+", lambda word: new_names.get(word[0], word[0]), text)

    return renamed(text) + json.dumps(sorted((renamed(name), renamed(json.dumps(b))) for name, b in buffers.items()))
