"""`python -m kernelopt gate`: the original and the optimised model side by side, judged by the whole model's outputs and time.

This only gathers evidence; the verdict is made elsewhere, from the file written here.
"""

import json
import os
import random
import tempfile
import time
from pathlib import Path

from . import gpu
from .bundle import Bundle
from .clock import clock_for
from .errors import BadInput, OutputFailed, in_short
from .gate_run import OptimizedFault
from .input_set import InputSet
from .input_sets import CAPTURED
from .other_ways import look_at_other_ways
from .runtime import GraphFiles, LoadedGraph, environment, load_graphs

LEAST_ROUNDS, MOST_ROUNDS = 5, 5000


def gate(place: Path, optimized: Path, rounds: int | None, seconds: float, seed: int) -> dict:
    """Evidence on the files in `optimized` against the bundle at `place`.

    Args:
        optimized: folder of `output_code_N.py`; a graph without a file there keeps its own.
        rounds: triples of blocks per input set; when absent, as many as fit into `seconds` in all.

    Raises:
        BadInput: the bundle or an optimised file cannot be used.
    """
    if not optimized.is_dir():
        raise BadInput(f"there is no folder {optimized}", "Give the folder that holds the optimised output_code_N.py files.")
    bundle = Bundle(place)
    kind = bundle.manifest["device"]["kind"]
    graphs = load_graphs(bundle)
    baseline = [graph.load() for graph in graphs]
    if kind == "cuda":
        _settle(graphs, baseline)
    # Original, optimised, and the original once more: the control, which shows what chance alone does.
    try:
        variants = [baseline, [_load_optimized(graph, optimized) for graph in graphs], [graph.load() for graph in graphs]]
        input_sets = [InputSet(name, graphs, variants, clock_for(kind)) for name in graphs[0].input_sets]
        _measure([s for s in input_sets if s.graphs], rounds, seconds, random.Random(seed))
        look_at_other_ways(input_sets, kind)
        evidence = [s.to_json() for s in input_sets]
    except OptimizedFault as fault:
        # Where the GPU's context is lost, so is the evidence gathered so far; this one fact is enough in any case.
        evidence = [InputSet.lost(name, str(fault)) for name in graphs[0].input_sets]
        return {"input_sets": evidence, "seed": seed, "device_lost": fault.device_lost}
    return {"input_sets": evidence, "seed": seed, **environment(kind)}


def _settle(graphs: list[GraphFiles], loaded: list[LoadedGraph]) -> None:
    """Calls the original once: that is when the compiler chooses among its configurations, and what is loaded later takes its choice."""
    for graph, original in zip(graphs, loaded, strict=True):
        if graph.input_sets[CAPTURED]["values"] is not None:
            original.call(graph.inputs(CAPTURED))


def _measure(input_sets: list[InputSet], rounds: int | None, seconds: float, order: random.Random) -> None:
    ends = time.monotonic() + seconds
    done = 0
    while done < LEAST_ROUNDS or (done < rounds if rounds else time.monotonic() < ends and done < MOST_ROUNDS):
        for input_set in input_sets:
            input_set.measure(order)
        done += 1


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
        raise gpu.explained(error) or OptimizedFault(f"the optimised {path.name} does not load: {in_short(error)}") from error
