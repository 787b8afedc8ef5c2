"""Compares the outputs of two variants of a graph with the float64 reference."""

import torch

from .tensors import same_values

VARIANTS = ("baseline", "optimized")


class OutputErrors:
    """Greatest errors seen so far of every output of one graph, and of every input that the model changes in place."""

    def __init__(
        self,
        graph: int,
        reference: tuple[list, dict[int, torch.Tensor]] | None,
        baseline: tuple[list, list],
        optimized: tuple[list, list],
    ) -> None:
        """
        Args:
            reference: outputs in float64, none where one is no tensor, and inputs after the call by position, of those that change;
                none where there is no reference.
            baseline, optimized: outputs, and inputs after the call, of the first call of each variant.
        """
        self._outputs: list[_Output] = []
        if reference is None:
            return
        outputs, changed = reference
        places = [("output", i, value) for i, value in enumerate(outputs) if value is not None]
        places += [("input", i, value) for i, value in changed.items()]
        for of, index, value in places:
            which = 0 if of == "output" else 1
            self._outputs.append(_Output(graph, of, index, value, _at(baseline[which], index), _at(optimized[which], index)))

    def observe(self, variant: int, outputs: list) -> None:
        """Takes the outputs of a later call of `variant` into account."""
        for output in self._outputs:
            if output.of == "output":
                output.observe(variant, _at(outputs, output.index))

    def to_json(self) -> list[dict]:
        """One entry per output: greatest absolute errors, the reference's greatest magnitude, and where bits or NaN differ."""
        return [output.to_json() for output in self._outputs]


class _Output:
    """One output, or one input that the model changes."""

    def __init__(self, graph: int, of: str, index: int, reference: torch.Tensor, baseline: object, optimized: object) -> None:
        self.of, self.index = of, index
        self._graph = graph
        self._reference = reference.to(torch.float64)
        if isinstance(baseline, torch.Tensor):  # a reference that the processor had to compute
            self._reference = self._reference.to(baseline.device)
        self._baseline_kind = _kind_of_value(baseline) if isinstance(baseline, torch.Tensor) else None
        self._layout = _layout(baseline)
        self._nan_mismatch = False
        self._layout_equal = True
        self._errors: list[float | None] = [None, None]
        self._dtype = baseline.dtype if isinstance(baseline, torch.Tensor) else torch.int64
        for variant, value in enumerate((baseline, optimized)):
            self.observe(variant, value)
        self._equal = self._layout_equal and isinstance(baseline, torch.Tensor) and same_values(baseline, optimized)

    def observe(self, variant: int, value: object) -> None:
        if _layout(value) != self._layout or self._baseline_kind is None:
            self._layout_equal = False
            return
        self._nan_mismatch |= not torch.equal(_kind_of_value(value), self._baseline_kind)
        error = value.to(torch.float64).sub_(self._reference) if value.dtype != torch.float64 else value - self._reference
        error = error.abs_()
        greatest = float(error.masked_fill_(~error.isfinite(), 0.0).max()) if error.numel() else 0.0
        self._errors[variant] = max(greatest, self._errors[variant] or 0.0)

    def to_json(self) -> dict:
        scale = self._reference.abs()
        return {
            "graph": self._graph,
            "of": self.of,
            "index": self.index,
            "dtype": str(self._dtype).removeprefix("torch."),
            "elements": self._reference.numel(),
            "scale": float(scale.masked_fill_(~scale.isfinite(), 0.0).max()) if scale.numel() else 0.0,
            **{f"max_error_{name}": error for name, error in zip(VARIANTS, self._errors, strict=True)},
            "equal": self._equal,
            "layout_equal": self._layout_equal,
            "nan_mismatch": self._nan_mismatch,
        }


def _kind_of_value(value: torch.Tensor) -> torch.Tensor:
    """0 where finite, 1 where NaN, 2 and 3 where infinite; one byte each, since outputs of a GPU may be large."""
    kind = value.isnan().to(torch.uint8)
    if value.is_floating_point():
        kind += value.isposinf().to(torch.uint8).mul_(2)
        kind += value.isneginf().to(torch.uint8).mul_(3)
    return kind


def _layout(value: object) -> tuple:
    return (value.dtype, tuple(value.shape), value.stride(), str(value.device)) if isinstance(value, torch.Tensor) else (type(value),)


def _at(values: list, index: int) -> object:
    return values[index] if index < len(values) else None
