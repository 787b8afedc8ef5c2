"""Other ways to call the optimised model, all of which must give what a plain call gives.

- New values at addresses that were used before: nothing may be kept from one call to the next.
- On a second stream: no kernel may be launched on another one.
- As a CUDA graph, captured once and replayed on other values: nothing may be decided on the processor in between.

Only what the original itself does the same way is asked of the optimised model; a way that the original does not go is a note.
"""

from collections.abc import Callable, Iterator

import torch

from . import gpu
from .errors import in_short
from .gate_run import BASELINE, OF_VARIANT, OPTIMIZED, GraphRun, copies, same_bits
from .input_set import InputSet
from .input_sets import CAPTURED

SPIN_CYCLES = 20_000_000
"""About 10 ms in which a stream does nothing: time enough for work on any other stream to overtake it."""


def look_at_other_ways(input_sets: list[InputSet], kind: str) -> None:
    """Adds to `faults` and `notes` of every input set, and takes the outputs into account like those of any call.

    Raises:
        OptimizedFault: the optimised model faults.
    """
    _new_values(input_sets)
    if kind != "cuda":
        return
    for input_set in input_sets:
        for run in input_set.graphs:
            _compare("on a second stream", input_set, run, lambda variant, run=run: _on_second_stream(run, variant))
    # Last, since a failed capture may leave the allocator in a state in which nothing should be measured.
    _replays(input_sets)


def _compare(way: str, input_set: InputSet, run: GraphRun, call: Callable[[int], list]) -> None:
    """Calls both variants in some other way and compares each with its own plain call."""
    found = []
    for variant in (BASELINE, OPTIMIZED):
        try:
            found.append(call(variant))
        except Exception as error:
            if gpu.is_fault(error):
                with run.blaming(variant):
                    raise
            said, where = f"graph {run.index} fails {way}: {in_short(error)}", (input_set.notes, input_set.faults)
            where[variant].append(f"{OF_VARIANT[variant]} {said}")
            return
    equal = [same_bits(outputs, plain) for outputs, plain in zip(found, run.plain, strict=True)]
    if all(run.repeatable) and not equal[BASELINE]:
        input_set.notes.append(f"the original graph {run.index} gives other outputs {way}")
        return
    run.errors.observe(OPTIMIZED, found[OPTIMIZED])
    if not all(run.repeatable):
        input_set.notes.append(f"graph {run.index} does not repeat its own outputs, so its errors alone were looked at {way}")
    elif not equal[OPTIMIZED]:
        input_set.faults.append(f"the optimised graph {run.index} gives other outputs {way} than in a plain call; the original does not")


# ---- new values at the same addresses ----


def _pairs(input_sets: list[InputSet]) -> Iterator[tuple[InputSet, GraphRun, GraphRun]]:
    """Every input set, with each of its graphs and the same graph on the captured inputs, whose memory can hold its values."""
    captured = {run.index: run for input_set in input_sets if input_set.name == CAPTURED for run in input_set.graphs}
    for input_set in input_sets:
        for run in input_set.graphs:
            held = captured.get(run.index)
            if held is not None and _fits(run, held):
                yield input_set, run, held


def _fits(run: GraphRun, held: GraphRun) -> bool:
    pairs = list(zip(run.inputs.values, held.inputs.values, strict=True))
    tensors = [(a, b) for a, b in pairs if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)]
    numbers = [(a, b) for a, b in pairs if not isinstance(a, torch.Tensor)]
    same_form = all(a.shape == b.shape and a.stride() == b.stride() for a, b in tensors)
    return same_form and len(tensors) + len(numbers) == len(pairs) and all(a == b for a, b in numbers)


class _Borrowed:
    """Puts the values of one run into the inputs of another inside a `with` block."""

    def __init__(self, held: GraphRun, run: GraphRun) -> None:
        self._held, self._run = held.inputs, run.inputs
        self._positions = [i for i in held.inputs.own if not torch._debug_has_internal_overlap(held.inputs.values[i])]

    def __enter__(self) -> None:
        self._held.restore()
        self._kept = [self._held.values[i].clone() for i in self._positions]
        self.put()

    def put(self) -> None:
        """Writes the values, also over what a call left there."""
        self._held.restore()
        self._run.restore()
        for i in self._positions:
            if self._run is not self._held:
                self._held.values[i].copy_(self._run.values[i])

    def __exit__(self, *_: object) -> None:
        for i, kept in zip(self._positions, self._kept, strict=True):
            self._held.values[i].copy_(kept)
        self._held.restore()


def _new_values(input_sets: list[InputSet]) -> None:
    for input_set, run, held in _pairs(input_sets):
        if run is held:
            continue
        borrowed = _Borrowed(held, run)

        def call(variant: int, run: GraphRun = run, held: GraphRun = held, borrowed: _Borrowed = borrowed) -> list:
            with borrowed:
                outputs = copies(list(run.variants[variant].module.call(list(held.inputs.values))))
                run.clock.wait()
            return outputs

        _compare("with new values at the same addresses", input_set, run, call)


# ---- streams and graphs ----


def _on_second_stream(run: GraphRun, variant: int) -> list:
    """Outputs of a call on another stream, whose inputs come into being there, late: work on any other stream finds zeros."""
    inputs = run.inputs
    inputs.restore()
    own = [inputs.values[i] for i in inputs.own if not torch._debug_has_internal_overlap(inputs.values[i])]
    kept = [value.clone() for value in own]
    for value in own:
        value.zero_()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SPIN_CYCLES)
        for value, original in zip(own, kept, strict=True):
            value.copy_(original)
        outputs = list(run.variants[variant].module.call(list(inputs.values)))
    torch.cuda.synchronize()
    inputs.restore()
    return outputs


def _replays(input_sets: list[InputSet]) -> None:
    """Captures each graph once, on the captured inputs, and replays it on the values of every input set."""
    for input_set, run, held in _pairs(input_sets):
        borrowed = _Borrowed(held, run)

        def call(variant: int, held: GraphRun = held, borrowed: _Borrowed = borrowed) -> list:
            recorded = torch.cuda.CUDAGraph()
            held.inputs.restore()
            # The outer context brings the current stream back where a failed capture does not.
            with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(recorded):
                outputs = list(held.variants[variant].module.call(list(held.inputs.values)))
            with borrowed:
                recorded.replay()
                borrowed.put()
                recorded.replay()
                torch.cuda.synchronize()
                return copies(outputs)

        _compare("when replayed as a CUDA graph", input_set, run, call)
        if any("CUDA graph" in said and "fails" in said for said in input_set.notes + input_set.faults):
            return
