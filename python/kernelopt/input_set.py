"""One input set in the gate: what all variants of all graphs give on it, and how long they take."""

import random

from .clock import Clock
from .gate_run import BASELINE, CONTROL, OPTIMIZED, GraphRun
from .input_sets import CAPTURED
from .reference import NoReference
from .runtime import GraphFiles, LoadedGraph

BLOCK_NS = 2_000_000
"""Least time of a block: the clock's own error is far below it."""
WARM_UP_RUNS = 2
CHECKED_SHARE = 0.25
"""Share of timed blocks whose outputs are compared; which ones is drawn after the block has run."""


class InputSet:
    """One input set of all graphs: their checked outputs and the times of all variants."""

    def __init__(self, name: str, graphs: list[GraphFiles], variants: list[list[LoadedGraph]], clock: Clock) -> None:
        """Calls every variant until its times are those of a warm device.

        Raises:
            BadInput: a graph fails when it is called.
            OptimizedFault: the optimised model faults.
        """
        self.name = name
        self.distinct = any(graph.input_sets[name]["values"] != graph.input_sets[CAPTURED]["values"] for graph in graphs)
        self.missing: list[dict] = []
        self.graphs: list[GraphRun] = []
        self.faults: list[str] = []
        self.notes: list[str] = []
        self._clock = clock
        self._pairs_us: list[list[float]] = []
        self._control_us: list[list[float]] = []
        self._checked_blocks = 0
        for graph, *loaded in zip(graphs, *variants, strict=True):
            self._add(graph, loaded)
        # The blocks of all variants must take the least time, so the fastest one sets their length.
        self._runs = max(1, -(-BLOCK_NS // max(1, min(self._run_ns(v) for v in (BASELINE, OPTIMIZED, CONTROL))))) if self.graphs else 0

    def _add(self, graph: GraphFiles, variants: list[LoadedGraph]) -> None:
        if graph.input_sets[self.name]["values"] is None:
            self.missing.append({"graph": graph.index, "reason": graph.input_sets[self.name]["reason"]})
            return
        inputs = graph.inputs(self.name)
        try:
            reference = graph.references.outputs(self.name, inputs.values)
        except NoReference as no:
            self.missing.append({"graph": graph.index, "reason": str(no)})
            reference = None
        self.graphs.append(GraphRun(graph, inputs, variants, reference, self._clock))

    def _run_ns(self, variant: int) -> int:
        for _ in range(WARM_UP_RUNS):
            for graph in self.graphs:
                graph.run(variant, self._clock)
            laps = self._laps(variant)
        return int(sum(laps))

    def _laps(self, variant: int) -> list[float]:
        with self.graphs[0].blaming(variant):
            return self._clock.laps_ns()

    def measure(self, order: random.Random) -> None:
        """Times one block of each variant, in random order."""
        times = [0.0, 0.0, 0.0]
        for variant in order.sample((BASELINE, OPTIMIZED, CONTROL), 3):
            for runs, clock in ((self._clock.lead_in, None), (self._runs, self._clock)):
                for _ in range(runs):
                    for graph in self.graphs:
                        graph.run(variant, clock)
            times[variant] = sum(self._laps(variant)) / self._runs / 1e3
            if variant != CONTROL and order.random() < CHECKED_SHARE:
                self._checked_blocks += 1
                for graph in self.graphs:
                    graph.check_last(variant)
        self._pairs_us.append([times[BASELINE], times[OPTIMIZED]])
        self._control_us.append([times[BASELINE], times[CONTROL]])

    def to_json(self) -> dict:
        """Evidence of this input set."""
        outputs = [output for graph in self.graphs for output in graph.errors.to_json()]
        return {
            "name": self.name,
            "distinct": self.distinct,
            "outputs": outputs,
            "nan_mismatch": any(output["nan_mismatch"] for output in outputs),
            "repeatable": {
                "baseline": all(graph.repeatable[BASELINE] for graph in self.graphs),
                "optimized": all(graph.repeatable[OPTIMIZED] for graph in self.graphs),
            },
            "inputs_intact": all(graph.inputs_intact() for graph in self.graphs),
            "missing": self.missing,
            "faults": self.faults,
            "notes": self.notes,
            "checked_blocks": self._checked_blocks,
            "runs_per_block": self._runs,
            "pairs_us": self._pairs_us,
            "control_us": self._control_us,
        }

    @staticmethod
    def lost(name: str, fault: str) -> dict:
        """What is left to say of an input set when the optimised model took the device down."""
        return {
            "name": name,
            "distinct": False,
            "outputs": [],
            "nan_mismatch": False,
            "repeatable": {"baseline": True, "optimized": False},
            "inputs_intact": True,
            "missing": [],
            "faults": [fault],
            "notes": [],
            "checked_blocks": 0,
            "runs_per_block": 0,
            "pairs_us": [],
            "control_us": [],
        }
