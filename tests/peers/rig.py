"""Processes of the suite, each ended by its own id, and what is asked of them besides completions."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
START_S = 60


@dataclass(frozen=True)
class Answer:
    """What came back: status, headers as text, body."""

    status: int
    head: str
    body: str


def ask(url: str, body: dict | None = None, key: str | None = None, method: str | None = None, timeout_s: float = 30) -> Answer:
    """One HTTP exchange without a client library between. An error status is an answer."""
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=timeout_s) as reply:
            return Answer(reply.status, str(reply.headers), reply.read().decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, str(error.headers), error.read().decode())


def wait_until(what: str, holds: Callable[[], bool], within_s: float) -> float:
    """Seconds until it held. Fails, with what was waited for, if it never did."""
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < within_s, f"not within {within_s} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - started


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(url: str) -> bool:
    try:
        return ask(url, timeout_s=2).status == 200
    except OSError:
        return False


class Process:
    """A program, its log, and its end."""

    def __init__(self, name: str, command: list[str], log: Path, env: dict[str, str] | None = None) -> None:
        self.name, self.log = name, log
        with log.open("wb") as sink:
            self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sink, stderr=subprocess.STDOUT, env=env)

    def ready(self, url: Callable[[], str | None]) -> None:
        def up() -> bool:
            assert self.child.poll() is None, f"{self.name} ended: {self.log.read_text()[-2000:]}"
            where = url()
            return where is not None and answers(where)

        wait_until(f"{self.name} is ready", up, START_S)

    def end(self) -> None:
        self.child.stdin.close()
        self.child.terminate()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Llama(Process):
    """The real model."""

    def __init__(self, folder: Path, key: str) -> None:
        self.key = key
        super().__init__("llama.cpp", [sys.executable, str(HERE / "llama.py"), key], folder / "llama.log")
        self.ready(lambda: f"{self.url}/health" if self.url else None)

    @property
    def url(self) -> str | None:
        return next((line for line in self.log.read_text(errors="replace").splitlines() if line.startswith("http://")), None)

    def metric(self, name: str) -> float:
        return sample(ask(f"{self.url}/metrics", key=self.key).body, f"llamacpp:{name}")


class Chaos(Process):
    """llmock: fails as it is told to, and judges its caller."""

    def __init__(self, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        llmock = str(Path(sys.executable).with_name("llmock"))
        super().__init__(
            "llmock", [llmock, "serve", "--host", "127.0.0.1", "--port", str(port), "--stream-chunk-delay-ms", "30"], folder / "llmock.log"
        )
        self.ready(lambda: f"{self.url}/_llmock/scenario")

    def plan(self, *behaviours: dict) -> None:
        """These, once each in order, and nothing of what was before."""
        assert ask(f"{self.url}/_llmock/reset", {}).status == 200
        if behaviours:
            told = ask(f"{self.url}/_llmock/scenario", {"behaviors": list(behaviours)})
            assert told.status == 201, told.body

    def has_heard(self) -> None:
        """Waits until it knows that no request is under way. It takes a retry that overlaps what is retried for another request."""
        assert ask(f"{self.url}/_llmock/requests").status == 200

    def verdict(self) -> dict:
        return json.loads(ask(f"{self.url}/_llmock/verdict").body)

    def assert_clean(self, attempts: int, faults: int) -> None:
        """It found nothing wrong, and not because nothing happened."""
        verdict = self.verdict()
        assert verdict["findings"] == [], ask(f"{self.url}/_llmock/verdict?format=text").body
        assert (verdict["attempts"], verdict["faults_injected"]) == (attempts, faults), verdict


class Gateway(Process):
    """`kernelopt gateway`."""

    def __init__(self, binary: str, settings: Path, port: int, env: dict[str, str], log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        super().__init__("gateway", [binary, "gateway", "--verbose", "--config", str(settings)], log, env)
        self.ready(lambda: f"{self.url}/readyz")

    def metrics(self) -> str:
        return ask(f"{self.url}/metrics").body

    def in_flight(self) -> float:
        return sample(self.metrics(), "kernelopt_gateway_in_flight")


def sample(text: str, name: str) -> float:
    """The sum of a metric over its labels."""
    lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)
