"""`python -m kernelopt profile`: the time of every kernel inside `call`, beside the time of calls that are not watched."""

import random
import time
from pathlib import Path

from .bundle import Bundle
from .clock import Clock, clock_for
from .input_sets import CAPTURED
from .kernel_times import KernelTimes, OnCpu, OnCuda
from .runtime import GraphFiles, Inputs, LoadedGraph, environment, load_graphs

WARM_UP_CALLS = 3
LEAST_ROUNDS, MOST_ROUNDS = 5, 2000


def profile(place: Path, seconds: float, seed: int) -> dict:
    """Profiles every graph of the bundle at `place` for about `seconds` each.

    Returns:
        `{"graphs": [{"index", "calls_per_run", "call_us": [...], "kernels": {name: {"launches", "us": [...]}}}], "environment"}`.
        `call_us` are calls without instruments; `us` are totals of one kernel over one watched call; the two kinds of
        calls alternate in random order. `watched_call_us` shows what watching costs, and `notes` says how kernels were timed.
    """
    bundle = Bundle(place)
    kind = bundle.manifest["device"]["kind"]
    order = random.Random(seed)
    graphs = [_profile_graph(graph, kind, seconds, order) for graph in load_graphs(bundle)]
    return {"graphs": graphs, "environment": environment(kind)}


def _profile_graph(graph: GraphFiles, kind: str, seconds: float, order: random.Random) -> dict:
    loaded, inputs, clock = graph.load(), graph.inputs(CAPTURED), clock_for(kind)
    for _ in range(WARM_UP_CALLS):
        loaded.call(inputs)
        inputs.changed()
    kernels = (OnCuda if kind == "cuda" else OnCpu)(loaded, graph.kernels, inputs, clock)
    call_us: list[float] = []
    ends = time.monotonic() + seconds
    rounds = 0
    while rounds < LEAST_ROUNDS or (time.monotonic() < ends and rounds < MOST_ROUNDS):
        for watching in order.sample([False, True], 2):
            if watching:
                kernels.watch()
            else:
                call_us += _plain_calls(loaded, inputs, clock, kernels)
        rounds += 1
    return {
        "index": graph.index,
        "calls_per_run": graph.calls_per_run,
        "call_us": call_us,
        "watched_call_us": kernels.call_us,
        "kernels": {name: {"launches": kernels.launches[name], "us": kernels.us[name]} for name in graph.kernels},
        "notes": kernels.notes,
    }


def _plain_calls(loaded: LoadedGraph, inputs: Inputs, clock: Clock, kernels: KernelTimes) -> list[float]:
    """Microseconds of as many calls in a row as are watched in a row."""
    for _ in range(clock.lead_in):
        loaded.call(inputs)
    for _ in range(kernels.calls_in_a_row):
        loaded.call(inputs, clock)
    return [lap / 1e3 for lap in clock.laps_ns()]
