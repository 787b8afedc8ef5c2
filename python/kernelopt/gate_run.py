"""One graph on one input set in the gate, in all its variants."""

import contextlib
from collections.abc import Iterator

import torch

from . import gpu
from .clock import Clock
from .compare import OutputErrors
from .errors import BadInput, in_short
from .runtime import GraphFiles, Inputs, LoadedGraph
from .tensors import bitwise_equal

BASELINE, OPTIMIZED, CONTROL = 0, 1, 2
OF_VARIANT = ("the original", "the optimised", "the original")
CALLS_TO_COMPARE = 2


class OptimizedFault(Exception):
    """The optimised model does not load, fails when called, or faults on the GPU; the message says where and how."""

    def __init__(self, message: str, device_lost: bool = False) -> None:
        super().__init__(message)
        self.device_lost = device_lost
        """The GPU's context is lost with it."""


class GraphRun:
    """All variants of one graph on one input set."""

    def __init__(
        self,
        graph: GraphFiles,
        inputs: Inputs,
        variants: list[LoadedGraph],
        reference: tuple[list, dict[int, torch.Tensor]] | None,
        clock: Clock,
    ) -> None:
        """Calls the original and the optimised graph and compares them with the reference.

        Raises:
            BadInput: one of them fails.
            OptimizedFault: the optimised one faults.
        """
        self.index = graph.index
        self.variants = variants
        self.inputs = inputs
        self.repeatable = [True, True]
        self._calls = graph.calls_per_run
        self._code_name = graph.code_name
        self.clock = clock
        self._changed: list[set[int]] = [set(), set()]
        self._last: list[list] = [[], [], []]
        first = [self._checked_outputs(variant) for variant in (BASELINE, OPTIMIZED)]
        self.plain = [outputs for outputs, _ in first]
        """Outputs of the original and of the optimised graph when they are simply called."""
        self.errors = OutputErrors(graph.index, reference, *first)

    def _checked_outputs(self, variant: int) -> tuple[list, list]:
        """Outputs and inputs after a call, and whether a second call on the same inputs gives the same bits."""
        observed = []
        for _ in range(CALLS_TO_COMPARE):
            after: dict[int, torch.Tensor] = {}
            with self.blaming(variant):
                outputs = self.variants[variant].call(self.inputs)
                self.clock.wait()
            observed.append((copies(outputs), after))
            self._changed[variant] |= self.inputs.changed(after)
        (first, after), (second, _) = observed
        self.repeatable[variant] = same_bits(first, second)
        return first, [after.get(i, value) for i, value in enumerate(self.inputs.values)]

    @contextlib.contextmanager
    def blaming(self, variant: int) -> Iterator[None]:
        """Turns what a variant raises into an error that names it."""
        try:
            yield
        except Exception as error:
            what = f"{OF_VARIANT[variant]} {self._code_name} fails when called: {in_short(error)}"
            if variant == OPTIMIZED and gpu.is_fault(error):
                raise OptimizedFault(what, device_lost=True) from error
            raise gpu.explained(error) or (OptimizedFault(what) if variant == OPTIMIZED else BadInput(what)) from error

    def run(self, variant: int, clock: Clock | None) -> None:
        """All calls of this graph in one run of the model, each a lap of `clock`."""
        with self.blaming(variant):
            for _ in range(self._calls):
                self._last[variant] = []  # freed before the clock starts
                self._last[variant] = self.variants[variant].call(self.inputs, clock)

    def inputs_intact(self) -> bool:
        """Whether the optimised graph wrote no input that the original leaves alone, in the timed runs either."""
        return self._changed[OPTIMIZED] <= self._changed[BASELINE] and not self.inputs.changed() - self._changed[BASELINE]

    def check_last(self, variant: int) -> None:
        """Compares the outputs of the last timed call with the reference."""
        self.errors.observe(variant, self._last[variant])


def copies(values: list) -> list:
    """The values with every tensor in memory of its own."""
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def same_bits(first: list, second: list) -> bool:
    """Whether two lists of outputs are equal bit for bit."""
    if len(first) != len(second):
        return False
    pairs = zip(first, second, strict=True)
    return all(bitwise_equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b for a, b in pairs)
