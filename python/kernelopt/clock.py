"""Clocks: how long calls take on the device that runs them."""

import time
from typing import Protocol

import torch


class Clock(Protocol):
    """Takes laps. A lap begins at `start` and ends at `stop`, in the order of the device's work."""

    lead_in: int
    """Calls to make before the first lap, so that the device does not start from idle."""

    def start(self) -> None:
        """Begins a lap."""

    def stop(self) -> None:
        """Ends it."""

    def laps_ns(self) -> list[float]:
        """Nanoseconds of every lap since this was last asked; waits until the last one has ended."""

    def wait(self) -> None:
        """Waits until all work is done; errors of that work come out here."""


class CpuClock:
    """The processor's clock: work is done when its call returns."""

    lead_in = 0

    def __init__(self) -> None:
        self._started = 0
        self._laps: list[float] = []

    def start(self) -> None:
        self._started = time.perf_counter_ns()

    def stop(self) -> None:
        self._laps.append(time.perf_counter_ns() - self._started)

    def laps_ns(self) -> list[float]:
        laps, self._laps = self._laps, []
        return laps

    def wait(self) -> None:
        pass


class CudaClock:
    """The GPU's clock: events on the current stream, before and after a call.

    Calls are not waited for one by one, so a lap has the gaps in which the GPU waits for the processor only where the model
    really is bound by its launches.
    """

    lead_in = 1

    def __init__(self) -> None:
        self._running: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._spare: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def start(self) -> None:
        pair = self._spare.pop() if self._spare else (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        self._running.append(pair)
        pair[0].record()

    def stop(self) -> None:
        self._running[-1][1].record()

    def laps_ns(self) -> list[float]:
        self.wait()
        laps = [1e6 * begin.elapsed_time(end) for begin, end in self._running]
        self._spare += self._running
        self._running = []
        return laps

    def wait(self) -> None:
        torch.cuda.synchronize()


def clock_for(kind: str) -> Clock:
    """The clock of a device kind, `cpu` or `cuda`."""
    return CudaClock() if kind == "cuda" else CpuClock()
