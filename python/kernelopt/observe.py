"""Stands in for a kernel while a model is captured: takes down how it is launched and what its arguments hold."""

import torch

from .distributions import distribution
from .launch import NoLaunch, launch_of
from .meaning.vocabulary import Unsupported
from .user_kernels import is_user_kernel, meaning_of


class ObservedKernel:
    """A kernel of a generated module. C++ kernels are called; Triton kernels have a method `run`, which also takes the stream.

    Args:
        entry: the `KernelEntry`, which gets `distributions`, and for a Triton kernel `launch`; or `no_launch`, a sentence that says
            why there is none.
    """

    def __init__(self, entry: dict, kernel: object) -> None:
        self._entry = entry
        self._kernel = kernel

    def __call__(self, *arguments: object) -> object:
        self._observe(arguments)
        return self._kernel(*arguments)

    def run(self, *arguments: object, **options: object) -> object:
        if is_user_kernel(self._kernel):
            self._observe_user_kernel(arguments)
        self._observe(arguments)
        self._observe_launch(arguments)
        return self._kernel.run(*arguments, **options)

    def _observe(self, arguments: tuple) -> None:
        entry = self._entry
        if "distributions" in entry or entry["meaning"] is None:
            return
        fault = _fault(entry["meaning"], arguments)
        if fault is not None:
            entry |= {"meaning": None, "reason": f"it is called with other arguments than its meaning has: {fault}"}
            return
        entry["distributions"] = {}
        for argument, value in zip(entry["meaning"]["arguments"], arguments, strict=False):
            if argument["role"] in ("in", "inout"):
                found = distribution(value)
                if found is not None:
                    entry["distributions"][argument["name"]] = found

    def _observe_user_kernel(self, arguments: tuple) -> None:
        entry = self._entry
        if "left_alone" in entry:
            return
        try:
            meaning = meaning_of(entry["kernel"], self._kernel, arguments)
            if (entry["meaning"] or meaning) != meaning:
                raise Unsupported("it is launched with other arguments at another place")
            entry["meaning"] = meaning
            entry.pop("reason", None)
        except Unsupported as reason:
            entry |= {"meaning": None, "reason": str(reason), "left_alone": True}

    def _observe_launch(self, arguments: tuple) -> None:
        entry = self._entry
        if "no_launch" in entry:
            return
        try:
            launch = launch_of(self._kernel, arguments)
            if entry.setdefault("launch", launch) != launch:
                raise NoLaunch("it is launched with different grids at different places")
        except NoLaunch as reason:
            entry.pop("launch", None)
            entry["no_launch"] = str(reason)


def _fault(meaning: dict, arguments: tuple) -> str | None:
    """What of a launch contradicts the meaning, if anything."""
    described = meaning["arguments"]
    if "program" in meaning:
        return None  # made from a launch
    if len(described) != len(arguments):
        return f"{len(arguments)} instead of {len(described)}"
    for argument, value in zip(described, arguments, strict=True):
        if isinstance(value, torch.Tensor) != (argument["role"] != "size"):
            return f"{argument['name']} is a {type(value).__name__}"
        if isinstance(value, torch.Tensor):
            expected = meaning["buffers"][argument["buffers"][-1]]["dtype"]
            if str(value.dtype).removeprefix("torch.") != expected:
                return f"{argument['name']} is {value.dtype}"
    return None
