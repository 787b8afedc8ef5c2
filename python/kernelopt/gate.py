"""`python -m kernelopt gate`: the original and the optimised model side by side, judged by the whole model's outputs and time.

This only gathers evidence; the verdict is made elsewhere, from the file written here.
"""

import json
import os
import random
import tempfile
import time
from pathlib import Path

import torch

from .bundle import Bundle
from .compare import VARIANTS, OutputErrors
from .errors import BadInput, OutputFailed, in_short
from .input_sets import CAPTURED
from .runtime import GraphFiles, Inputs, LoadedGraph, environment, load_graphs
from .tensors import bitwise_equal

BLOCK_NS = 2_000_000
"""Least time of a block: the clock's own error is far below it."""
WARM_UP_RUNS = 2
LEAST_ROUNDS, MOST_ROUNDS = 5, 5000
CHECKED_SHARE = 0.25
"""Share of timed blocks whose outputs are compared; which ones is drawn after the block has run."""
BASELINE, OPTIMIZED = 0, 1


def gate(place: Path, optimized: Path, rounds: int | None, seconds: float, seed: int) -> dict:
    """Evidence on the files in `optimized` against the bundle at `place`.

    Args:
        optimized: folder of `output_code_N.py`; a graph without a file there keeps its own.
        rounds: pairs of blocks per input set; when absent, as many as fit into `seconds` in all.

    Raises:
        BadInput: the bundle or an optimised file cannot be used.
    """
    if not optimized.is_dir():
        raise BadInput(f"there is no folder {optimized}", "Give the folder that holds the optimised output_code_N.py files.")
    graphs = load_graphs(Bundle(place))
    variants = [[graph.load() for graph in graphs], [_load_optimized(graph, optimized) for graph in graphs]]
    references = [graph.references() for graph in graphs]
    names = list(graphs[0].input_sets)
    input_sets = [InputSet(name, graphs, variants, references) for name in names]
    measurable = [s for s in input_sets if s.graphs]
    order = random.Random(seed)
    ends = time.monotonic() + seconds
    done = 0
    while done < LEAST_ROUNDS or (done < rounds if rounds else time.monotonic() < ends and done < MOST_ROUNDS):
        for input_set in measurable:
            input_set.measure_pair(order)
        done += 1
    return {"input_sets": [s.to_json() for s in input_sets], "seed": seed, **environment()}


def check_result_place(path: Path) -> None:
    """Checks, before the long work, that a result may be written to `path`.

    Raises:
        OutputFailed: it may not.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _output_failed(path, error) from error


def write_result(path: Path, result: dict) -> None:
    """Writes the evidence, whole or not at all."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(result, file, allow_nan=False)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise _output_failed(path, error) from error


def _output_failed(path: Path, error: OSError) -> OutputFailed:
    return OutputFailed(f"cannot write {path}: {error.strerror or error}", "Choose another path with --out.")


def _load_optimized(graph: GraphFiles, folder: Path) -> LoadedGraph:
    path = folder / graph.code_name
    if not path.exists():
        return graph.load()
    try:
        return graph.load(path.read_bytes().decode())
    except Exception as error:
        raise BadInput(f"{path} does not load: {in_short(error)}") from error


class InputSet:
    """One input set of all graphs: their checked outputs and the times of both variants."""

    def __init__(self, name: str, graphs: list[GraphFiles], variants: list[list[LoadedGraph]], references: list[dict]) -> None:
        self.name = name
        self.distinct = any(graph.input_sets[name]["values"] != graph.input_sets[CAPTURED]["values"] for graph in graphs)
        self.missing: list[dict] = []
        self.graphs: list[_GraphRun] = []
        self.pairs_us: list[list[float]] = []
        self.checked_blocks = 0
        for graph, baseline, optimized, tensors in zip(graphs, *variants, references, strict=True):
            input_set = graph.input_sets[name]
            if input_set["reference"] is None:
                self.missing.append({"graph": graph.index, "reason": input_set["reason"]})
            if input_set["values"] is not None:
                self.graphs.append(_GraphRun(graph, name, [baseline, optimized], tensors))
        # The blocks of both variants must take the least time, so the faster one sets their length.
        self._runs = max(1, -(-BLOCK_NS // max(1, min(self._run_ns(v) for v in (BASELINE, OPTIMIZED))))) if self.graphs else 0

    def _run_ns(self, variant: int) -> int:
        for _ in range(WARM_UP_RUNS):
            nanoseconds = sum(graph.timed_run(variant) for graph in self.graphs)
        return nanoseconds

    def measure_pair(self, order: random.Random) -> None:
        """Times one block of each variant, in random order."""
        times = [0.0, 0.0]
        for variant in order.sample((BASELINE, OPTIMIZED), 2):
            nanoseconds = sum(sum(graph.timed_run(variant) for graph in self.graphs) for _ in range(self._runs))
            times[variant] = nanoseconds / self._runs / 1e3
            if order.random() < CHECKED_SHARE:
                self.checked_blocks += 1
                for graph in self.graphs:
                    graph.check_last(variant)
        self.pairs_us.append(times)

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
            "checked_blocks": self.checked_blocks,
            "runs_per_block": self._runs,
            "pairs_us": self.pairs_us,
        }


class _GraphRun:
    """Both variants of one graph on one input set."""

    def __init__(self, graph: GraphFiles, name: str, variants: list[LoadedGraph], references: dict[str, torch.Tensor]) -> None:
        self.variants = variants
        self.calls = graph.calls_per_run
        self.code_name = graph.code_name
        self.inputs: Inputs = graph.inputs(name)
        self.repeatable = [True, True]
        self._changed: list[set[int]] = [set(), set()]
        self._last: list[list] = [[], []]
        first = [self._checked_outputs(variant) for variant in (BASELINE, OPTIMIZED)]
        self.errors = OutputErrors(graph.index, graph.input_sets[name]["reference"], references, *first)

    def _checked_outputs(self, variant: int) -> tuple[list, list]:
        """Outputs and inputs after a call, and whether a second call on the same inputs gives the same bits."""
        observed = []
        for _ in range(2):
            outputs = self._first_call(variant)
            observed.append((_copies(outputs), _copies(self.inputs.values)))
            self._changed[variant] |= self.inputs.changed()
        first, second = (outputs for outputs, _ in observed)
        self.repeatable[variant] = _same(first, second)
        return observed[0]

    def _first_call(self, variant: int) -> list:
        try:
            return self.variants[variant].timed_call(self.inputs)[1]
        except Exception as error:
            raise BadInput(f"{VARIANTS[variant]} {self.code_name} fails when called: {in_short(error)}") from error

    def timed_run(self, variant: int) -> int:
        """Nanoseconds that this graph takes in one run of the model."""
        total = 0
        for _ in range(self.calls):
            self._last[variant] = []  # freed before the clock starts
            nanoseconds, self._last[variant] = self.variants[variant].timed_call(self.inputs)
            total += nanoseconds
        return total

    def inputs_intact(self) -> bool:
        """Whether the optimised graph wrote no input that the original leaves alone, in the timed runs either."""
        return self._changed[OPTIMIZED] <= self._changed[BASELINE] and not self.inputs.changed() - self._changed[BASELINE]

    def check_last(self, variant: int) -> None:
        """Compares the outputs of the last timed call with the reference."""
        self.errors.observe(variant, self._last[variant])


def _copies(values: list) -> list:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def _same(first: list, second: list) -> bool:
    if len(first) != len(second):
        return False
    pairs = zip(first, second, strict=True)
    return all(bitwise_equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b for a, b in pairs)
