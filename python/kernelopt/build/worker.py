"""The warm process: everything is imported once, then each order is served by a forked child, which ends with it.

What a child may spoil is its own: its memory, its time, its files, and the worker's scratch folder, which is emptied
before the next order. It cannot speak to the agent. Processes that it leaves behind become the worker's (prctl(2),
PR_SET_CHILD_SUBREAPER, set by the launcher); when some are still alive after a build, the worker ends too, and the agent
kills their common process group.
"""

import contextlib
import gc
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from .order import MOST_REASON_CHARACTERS, BuildFault, Order, Product
from .protocol import MAX_PAYLOAD_BYTES, Channel, Closed

Build = Callable[[Order], Product]
MAX_FACTS_BYTES = 1 << 20


class StraysLeft(Exception):
    """A build has left processes behind."""


class Worker:
    """Serves orders, one at a time."""

    def __init__(self, channel: Channel, scratch: Path, build: Build) -> None:
        self._channel, self._scratch, self._build = channel, scratch, build

    def serve(self) -> None:
        """Until the agent is gone.

        Raises:
            StraysLeft: after the answer was sent.
        """
        gc.collect()
        gc.freeze()  # the children need not copy pages to count references
        with contextlib.suppress(Closed):
            while True:
                order = Order.decode(self._channel.receive())
                message, payload = self._serve(order)
                self._channel.send(message, payload)
                _collect_strays()

    def _serve(self, order: Order) -> tuple[dict, bytes]:
        _empty(self._scratch)
        _empty(self._scratch)
        result, said = (os.memfd_create(name) for name in ("result", "said"))
        try:
            child = os.fork()
            if child == 0:
                self._become_build(order, result, said)
            status = self._wait(child, order.wall_seconds)
            return _conclude(status, result, said, order)
        finally:
            os.close(result)
            os.close(said)

    def _wait(self, child: int, patience_seconds: float) -> int | None:
        """The child's wait status; none where it took too long. A child of an agent that is gone is ended."""
        process = os.pidfd_open(child)
        try:
            poll = select.poll()
            poll.register(process, select.POLLIN)
            poll.register(self._channel.reading, 0)  # its hang-up only
            ready = dict(poll.poll(patience_seconds * 1000))
            if process not in ready:
                signal.pidfd_send_signal(process, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if self._channel.reading in ready and process not in ready:
                raise Closed
            return status if process in ready else None
        finally:
            os.close(process)

    def _become_build(self, order: Order, result: int, said: int) -> None:
        """The child's whole life."""
        status = 1
        try:
            self._channel.close()
            os.dup2(said, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            resource.setrlimit(resource.RLIMIT_CPU, (order.cpu_seconds, order.cpu_seconds + 1))
            facts, payload = self._answer(order)
            text = json.dumps(facts, allow_nan=False).encode()
            os.write(result, len(text).to_bytes(4, "little") + text)
            _write(result, payload)
            status = 0
        finally:
            os._exit(status)

    def _answer(self, order: Order) -> tuple[dict, bytes]:
        try:
            product = self._build(order)
            return {"outcome": "built", **product.facts}, product.cubin
        except BuildFault as fault:
            return fault.message(), b""
        except MemoryError:
            return {"outcome": "stopped", "reason": "out of memory", "line": None}, b""
        except RecursionError:
            return {"outcome": "compiler", "reason": "nested too deeply", "line": None}, b""
        except Exception:
            # A fault of ours: with its place, so that it can be mended.
            return {"outcome": "internal", "reason": traceback.format_exc()[-MOST_REASON_CHARACTERS:], "line": None}, b""


def _conclude(status: int | None, result: int, said: int, order: Order) -> tuple[dict, bytes]:
    """The answer that a child left, or what its end says."""
    if status is None:
        return {"outcome": "stopped", "reason": f"it took longer than {order.wall_seconds:g} s", "line": None}, b""
    if os.waitstatus_to_exitcode(status) == 0 and (answer := _read_answer(result)):
        facts, payload = answer
        if facts.get("outcome") == "compiler" and "PassManager" in facts.get("reason", ""):
            # The passes say what went wrong on stderr only.
            facts["reason"] += "\n" + _tail(said)
        return facts, payload
    code = os.waitstatus_to_exitcode(status)
    if -code == signal.SIGXCPU:
        return {"outcome": "stopped", "reason": f"it took more than {order.cpu_seconds} s of processor time", "line": None}, b""
    tail = _tail(said)
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    kind = "stopped" if code in (-signal.SIGKILL, -signal.SIGXFSZ) or "bad_alloc" in tail or "out of memory" in tail.lower() else "crashed"
    return {"outcome": kind, "reason": f"the build's process ended ({how}): {tail}".strip(" :"), "line": None}, b""


def _read_answer(result: int) -> tuple[dict, bytes] | None:
    """What the child wrote, where it is an answer. Whoever wrote it ran the source: it is looked at with care."""
    size = os.fstat(result).st_size
    if not 4 <= size <= 4 + MAX_FACTS_BYTES + MAX_PAYLOAD_BYTES:
        return None
    length = int.from_bytes(os.pread(result, 4, 0), "little")
    if length > min(MAX_FACTS_BYTES, size - 4) or size - 4 - length > MAX_PAYLOAD_BYTES:
        return None
    try:
        facts = json.loads(os.pread(result, length, 4))
    except (ValueError, RecursionError):
        return None
    return (facts, _read(result, 4 + length, size)) if isinstance(facts, dict) else None


def _read(descriptor: int, start: int, end: int) -> bytes:
    parts = []
    while start < end:
        part = os.pread(descriptor, end - start, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _tail(said: int) -> str:
    """The last of what the child and the compiler's native code printed."""
    size = os.fstat(said).st_size
    return _read(said, max(0, size - 1500), size).decode(errors="replace").strip()


def _empty(folder: Path) -> None:
    """Removes everything that the build before has left."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _collect_strays() -> None:
    """Collects processes that a build left; they end with their parent as a rule.

    Raises:
        StraysLeft: some do not.
    """
    deadline = time.monotonic() + 1.0
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if time.monotonic() > deadline:
                print("a build has left processes behind", file=sys.stderr)
                raise StraysLeft
            time.sleep(0.01)
