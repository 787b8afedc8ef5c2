"""`python -m kernelopt profile`: the time of every kernel inside `call`, beside the time of calls that are not watched."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from .bundle import Bundle
from .input_sets import CAPTURED
from .runtime import GraphFiles, Inputs, LoadedGraph, environment, load_graphs

WARM_UP_CALLS = 3
LEAST_ROUNDS, MOST_ROUNDS = 5, 2000


def profile(place: Path, seconds: float, seed: int) -> dict:
    """Profiles every graph of the bundle at `place` for about `seconds` each.

    Returns:
        `{"graphs": [{"index", "calls_per_run", "call_us": [...], "kernels": {name: {"launches", "us": [...]}}}], "environment"}`.
        `call_us` are calls without instruments; `us` are totals of one kernel over one watched call; the two kinds of
        calls alternate in random order. `watched_call_us` shows what watching costs.
    """
    bundle = Bundle(place)
    order = random.Random(seed)
    graphs = [_profile_graph(graph, seconds, order) for graph in load_graphs(bundle)]
    return {"graphs": graphs, "environment": environment()}


def _profile_graph(graph: GraphFiles, seconds: float, order: random.Random) -> dict:
    loaded, inputs = graph.load(), graph.inputs(CAPTURED)
    for _ in range(WARM_UP_CALLS):
        loaded.timed_call(inputs)
        inputs.changed()
    watched = _WatchedKernels(loaded.module, graph.kernels)
    call_us, watched_us, kernel_us = [], [], {name: [] for name in graph.kernels}
    ends = time.monotonic() + seconds
    while len(call_us) < LEAST_ROUNDS or (time.monotonic() < ends and len(call_us) < MOST_ROUNDS):
        for watching in order.sample([False, True], 2):
            if not watching:
                call_us.append(_call_us(loaded, inputs))
                continue
            with watched:
                watched_us.append(_call_us(loaded, inputs))
            for name, nanoseconds in watched.nanoseconds.items():
                kernel_us[name].append(nanoseconds / 1e3)
    kernels = {name: {"launches": watched.launches[name], "us": kernel_us[name]} for name in graph.kernels}
    return {
        "index": graph.index,
        "calls_per_run": graph.calls_per_run,
        "call_us": call_us,
        "watched_call_us": watched_us,
        "kernels": kernels,
    }


def _call_us(loaded: LoadedGraph, inputs: Inputs) -> float:
    nanoseconds, _ = loaded.timed_call(inputs)
    return nanoseconds / 1e3


class _WatchedKernels:
    """Puts a clock around the kernels of a module inside a `with` block; totals of the last block stay readable."""

    def __init__(self, module: ModuleType, names: list[str]) -> None:
        self._module = module
        self._plain: dict[str, Callable] = {name: getattr(module, name) for name in names}
        self._clocked = {name: self._clock(name, kernel) for name, kernel in self._plain.items()}
        self.nanoseconds: dict[str, int] = {}
        self.launches: dict[str, int] = {}

    def __enter__(self) -> None:
        self.nanoseconds = dict.fromkeys(self._plain, 0)
        self.launches = dict.fromkeys(self._plain, 0)
        vars(self._module).update(self._clocked)

    def __exit__(self, *_: object) -> None:
        vars(self._module).update(self._plain)

    def _clock(self, name: str, kernel: Callable) -> Callable:
        def clocked(*arguments: object) -> None:
            started = time.perf_counter_ns()
            kernel(*arguments)
            self.nanoseconds[name] += time.perf_counter_ns() - started
            self.launches[name] += 1

        return clocked
