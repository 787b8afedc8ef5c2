"""Times of single kernels inside the calls of their graph."""

import abc
import time
from collections.abc import Callable
from types import ModuleType

import torch
from torch.profiler import ProfilerActivity

from .clock import Clock
from .errors import in_short
from .runtime import Inputs, LoadedGraph

SPIN_CYCLES_PER_NS = 4.0
"""More than any GPU has: a spin of this many cycles per nanosecond of the processor's work outlasts that work."""

TRACE_ATTEMPTS = 2
"""Traces that may fail before events take their place: the first one in a process may miss launches."""


class KernelTimes(abc.ABC):
    """Watched calls of one graph, and what was seen in them."""

    calls_in_a_row = 1

    def __init__(self, loaded: LoadedGraph, names: list[str], inputs: Inputs, clock: Clock) -> None:
        self._loaded, self._inputs, self._clock = loaded, inputs, clock
        self._names = names
        self.us: dict[str, list[float]] = {name: [] for name in names}
        """Per kernel: total of its launches in each watched call."""
        self.launches = dict.fromkeys(names, 0)
        self.call_us: list[float] = []
        """Watched calls as a whole."""
        self.notes: list[str] = []

    @abc.abstractmethod
    def watch(self) -> None:
        """Watches one or more calls."""


class OnCpu(KernelTimes):
    """Kernels return when they are done, so the clock is read around them."""

    def __init__(self, loaded: LoadedGraph, names: list[str], inputs: Inputs, clock: Clock) -> None:
        super().__init__(loaded, names, inputs, clock)
        self._watched = _Instead(loaded.module, names, _ClockedCall)

    def watch(self) -> None:
        with self._watched as kernels:
            self._loaded.call(self._inputs, self._clock)
        self.call_us += [lap / 1e3 for lap in self._clock.laps_ns()]
        for name, kernel in kernels.items():
            self.us[name].append(kernel.nanoseconds / 1e3)
            self.launches[name] = kernel.launches


class OnCuda(KernelTimes):
    """Triton kernels are timed by the device's own trace (CUPTI, through torch's profiler), which costs them nothing.

    Where it gives nothing (no permission, another profiler at work), events are put around every launch, behind work that keeps the
    device busy until all launches are queued. C++ kernels in the same file are timed as on the processor.
    """

    calls_in_a_row = 10

    def __init__(self, loaded: LoadedGraph, names: list[str], inputs: Inputs, clock: Clock) -> None:
        super().__init__(loaded, names, inputs, clock)
        triton = [name for name in names if hasattr(getattr(loaded.module, name), "run")]
        self._functions = {name: _function_name(getattr(loaded.module, name), name) for name in triton}
        self._host = _Instead(loaded.module, [name for name in names if name not in triton], _ClockedCall)
        self._events = _Instead(loaded.module, triton, _EventsAround)
        self._with_events()  # counts the launches, which tells which times of a trace belong together
        self._attempts = TRACE_ATTEMPTS
        self.us = {name: [] for name in names}
        self.call_us = []

    def watch(self) -> None:
        while self._attempts:
            reason = self._with_trace()
            if reason is None:
                return
            self._attempts -= 1
            if not self._attempts:
                self.notes.append(f"kernels are timed by events around their launches, since the profiler gives nothing: {reason}")
        for _ in range(self.calls_in_a_row):
            self._with_events()

    def _with_trace(self) -> str | None:
        """Watches some calls in a trace; a sentence where that fails, and then nothing is kept."""
        host: list[dict[str, _ClockedCall]] = []
        try:
            with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as trace:
                for _ in range(self.calls_in_a_row):
                    with self._host as kernels:
                        self._loaded.call(self._inputs, self._clock)
                    host.append(dict(kernels))
                laps = self._clock.laps_ns()
            seen = _durations_ns(trace)
        except (RuntimeError, AssertionError) as error:
            return in_short(error)
        times = {}
        for name, function in self._functions.items():
            expected = self.launches[name] * self.calls_in_a_row
            found = seen.get(function, [])
            if len(found) != expected:
                return f"{len(found)} launches of {function} are in the trace instead of {expected}"
            times[name] = _totals(found, self.launches[name], self.calls_in_a_row)
        for name, totals in times.items():
            self.us[name] += [total / 1e3 for total in totals]
        self._keep(laps, host)
        return None

    def _with_events(self) -> None:
        started = time.perf_counter_ns()
        self._loaded.call(self._inputs)
        enqueued = time.perf_counter_ns() - started
        self._clock.wait()
        torch.cuda._sleep(int(SPIN_CYCLES_PER_NS * enqueued))
        with self._host as host, self._events as events:
            self._loaded.call(self._inputs, self._clock)
        self._keep(self._clock.laps_ns(), [dict(host)])
        for name, kernel in events.items():
            self.launches[name] = kernel.launches
            self.us[name].append(kernel.total_us())

    def _keep(self, laps: list[float], host: list[dict[str, "_ClockedCall"]]) -> None:
        self.call_us += [lap / 1e3 for lap in laps]
        for kernels in host:
            for name, kernel in kernels.items():
                self.launches[name] = kernel.launches
                self.us[name].append(kernel.nanoseconds / 1e3)


def _function_name(kernel: object, name: str) -> str:
    """Name of a Triton kernel on the device."""
    return getattr(getattr(kernel, "fn", None), "__name__", name)


def _durations_ns(trace: torch.profiler.profile) -> dict[str, list[int]]:
    """Durations of everything that ran on the device, by name, in order of start."""
    events = [e for e in trace.profiler.kineto_results.events() if e.device_type() == torch.autograd.DeviceType.CUDA]
    found: dict[str, list[int]] = {}
    for event in sorted(events, key=lambda e: e.start_ns()):
        found.setdefault(event.name(), []).append(event.duration_ns())
    return found


def _totals(durations: list[int], launches: int, calls: int) -> list[int]:
    """Sums over the launches of each call; launches lie in order of time."""
    return [sum(durations[call * launches : (call + 1) * launches]) for call in range(calls)]


class _Instead:
    """Stands in for kernels of a module inside a `with` block, which gets the stand-ins by name."""

    def __init__(self, module: ModuleType, names: list[str], stand_in: Callable[[object], object]) -> None:
        self._module = module
        self._plain = {name: getattr(module, name) for name in names}
        self._stand_in = stand_in

    def __enter__(self) -> dict[str, object]:
        standing = {name: self._stand_in(kernel) for name, kernel in self._plain.items()}
        vars(self._module).update(standing)
        return standing

    def __exit__(self, *_: object) -> None:
        vars(self._module).update(self._plain)


class _ClockedCall:
    """A C++ kernel with a clock."""

    def __init__(self, kernel: Callable) -> None:
        self._kernel = kernel
        self.nanoseconds = 0
        self.launches = 0

    def __call__(self, *arguments: object) -> None:
        started = time.perf_counter_ns()
        self._kernel(*arguments)
        self.nanoseconds += time.perf_counter_ns() - started
        self.launches += 1


class _EventsAround:
    """A Triton kernel with events before and after each launch."""

    def __init__(self, kernel: object) -> None:
        self._kernel = kernel
        self._pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @property
    def launches(self) -> int:
        return len(self._pairs)

    def run(self, *arguments: object, **options: object) -> object:
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        result = self._kernel.run(*arguments, **options)
        after.record()
        self._pairs.append((before, after))
        return result

    def total_us(self) -> float:
        """Total of the launches, once they are done."""
        return sum(1e3 * before.elapsed_time(after) for before, after in self._pairs)
