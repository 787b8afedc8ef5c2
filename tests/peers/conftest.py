"""One llama.cpp, one llmock and one gateway for the whole suite."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest
from rig import Chaos, Gateway, Llama, free_port

# Anything of this in a log, a metric or an answer is a leak.
SECRETS = {name: f"canary-{name.lower()}-{secrets.token_hex(16)}" for name in ("CALLER", "LLAMA", "REFUSED", "CHAOS")}

SETTINGS = """
listen = "127.0.0.1:{port}"

[retry]
first_wait_ms = 200

# Failures are planned here: the breaker, which has its own tests, is to stay shut.
[breaker]
least_attempts = 1000

[[upstreams]]
name = "llama-openai"
dialect = "openai"
url = "{llama}/v1"
credentials = [{{ name = "main", env = "LLAMA" }}]

[[upstreams]]
name = "llama-anthropic"
dialect = "anthropic"
url = "{llama}"
credentials = [{{ name = "main", env = "LLAMA" }}]

[[upstreams]]
name = "llama-refused"
dialect = "openai"
url = "{llama}/v1"
credentials = [{{ name = "wrong", env = "REFUSED" }}]

[[upstreams]]
name = "chaos-openai"
dialect = "openai"
url = "{chaos}/v1"
credentials = [{{ name = "main", env = "CHAOS" }}]
timeouts = {{ connect_ms = 2000, first_byte_ms = 2000, idle_ms = 1000, total_ms = 20000 }}

[[upstreams]]
name = "chaos-anthropic"
dialect = "anthropic"
url = "{chaos}/anthropic"
credentials = [{{ name = "main", env = "CHAOS" }}]
timeouts = {{ connect_ms = 2000, first_byte_ms = 2000, idle_ms = 1000, total_ms = 20000 }}

[[models]]
name = "small-openai"
bytes_per_token = 3.2
context_tokens = 2048
at = [{{ upstream = "llama-openai", model = "smollm2-135m", price = {{ input = 1, output = 2 }} }}]

[[models]]
name = "small-anthropic"
bytes_per_token = 3.2
context_tokens = 2048
at = [{{ upstream = "llama-anthropic", model = "smollm2-135m", price = {{ input = 1, output = 2 }} }}]

# Says nothing of its context: the upstream finds out.
[[models]]
name = "small-unbounded"
bytes_per_token = 3.2
at = [{{ upstream = "llama-openai", model = "smollm2-135m" }}]

[[models]]
name = "refused"
bytes_per_token = 3.2
at = [{{ upstream = "llama-refused", model = "smollm2-135m" }}]

[[models]]
name = "chaos-openai"
bytes_per_token = 3.2
at = [{{ upstream = "chaos-openai", model = "gpt-5" }}]

[[models]]
name = "chaos-anthropic"
bytes_per_token = 3.2
at = [{{ upstream = "chaos-anthropic", model = "claude-sonnet-4-5" }}]

[[keys]]
name = "suite"
env = "CALLER"
limits = {{ concurrent = 16 }}
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peers")


@pytest.fixture(scope="session")
def llama(folder: Path) -> Iterator[Llama]:
    yield from ended(Llama(folder, SECRETS["LLAMA"]))


@pytest.fixture(scope="session")
def chaos(folder: Path) -> Iterator[Chaos]:
    yield from ended(Chaos(folder))


@pytest.fixture(scope="session")
def gateway(folder: Path, llama: Llama, chaos: Chaos) -> Iterator[Gateway]:
    port = free_port()
    settings = folder / "gateway.toml"
    settings.write_text(SETTINGS.format(port=port, llama=llama.url, chaos=chaos.url))
    yield from ended(Gateway(os.environ["KERNELOPT_BINARY"], settings, port, os.environ | SECRETS, folder / "gateway.log"))


def ended(process):
    """Yields it, and ends it however the suite went."""
    try:
        yield process
    finally:
        process.end()


# Without retries of their own: it is the gateway that is looked at.
@pytest.fixture
def openai_client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=SECRETS["CALLER"], max_retries=0, timeout=30) as client:
        yield client


@pytest.fixture
def anthropic_client(gateway: Gateway) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key=SECRETS["CALLER"], max_retries=0, timeout=30) as client:
        yield client
