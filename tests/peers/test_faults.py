"""llmock fails on purpose and then judges its caller, which is the gateway: the clients do not retry by themselves here."""

import time

import anthropic
import openai
import pytest

SAY = [{"role": "user", "content": "Name three colours."}]


class ThroughOpenai:
    """Each dialect has its own client, provider and model."""

    provider, model, error, status_error = "openai", "chaos-openai", openai.APIError, openai.APIStatusError

    def __init__(self, openai_client, _anthropic_client):
        self.client = openai_client

    def plain(self) -> str:
        return self.client.chat.completions.create(model=self.model, messages=SAY, max_tokens=16).choices[0].message.content

    def stream(self) -> str:
        chunks = self.client.chat.completions.create(model=self.model, messages=SAY, max_tokens=16, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


class ThroughAnthropic:
    provider, model, error, status_error = "anthropic", "chaos-anthropic", anthropic.APIError, anthropic.APIStatusError

    def __init__(self, _openai_client, anthropic_client):
        self.client = anthropic_client

    def plain(self) -> str:
        return self.client.messages.create(model=self.model, messages=SAY, max_tokens=16).content[0].text

    def stream(self) -> str:
        with self.client.messages.stream(model=self.model, messages=SAY, max_tokens=16) as stream:
            return "".join(stream.text_stream)


@pytest.fixture(params=[ThroughOpenai, ThroughAnthropic], ids=["openai", "anthropic"])
def caller(request, openai_client, anthropic_client):
    return request.param(openai_client, anthropic_client)


def fails(caller, type: str, /, **words) -> dict:
    return {"type": type, "match": {"provider": caller.provider}} | words


def test_nothing_wrong(caller, chaos):
    chaos.plan()
    assert caller.plain() and caller.stream()
    chaos.assert_clean(attempts=2, faults=0)


@pytest.mark.parametrize("status", [429, 503, 529])
def test_retry_after_is_waited_for(caller, chaos, status):
    chaos.plan(fails(caller, "fail", status=status, retry_after=1, times=2))
    started = time.monotonic()
    assert caller.plain()
    assert time.monotonic() - started >= 2
    chaos.assert_clean(attempts=3, faults=2)


def test_retry_after_holds_for_everybody(caller, chaos):
    """The first is told to wait. The second, another request, does not knock in between."""
    chaos.plan(fails(caller, "fail", status=429, retry_after=1.5))
    started = time.monotonic()
    assert caller.plain()
    assert caller.stream()
    assert time.monotonic() - started >= 1.5
    chaos.assert_clean(attempts=3, faults=1)


@pytest.mark.parametrize("status", [500, 503, 529])
def test_a_failure_without_a_hint_is_tried_again(caller, chaos, status):
    chaos.plan(fails(caller, "fail", status=status))
    assert caller.plain()
    chaos.assert_clean(attempts=2, faults=1)


def test_failures_without_end_are_given_up_in_time(caller, chaos):
    """Four attempts in all, each later than the last, and an error that says whose fault it was."""
    chaos.plan(fails(caller, "fail", status=500, times=None))
    with pytest.raises(caller.status_error) as caught:
        caller.plain()
    assert caught.value.status_code == 502
    chaos.assert_clean(attempts=4, faults=4)


@pytest.mark.parametrize("status", [400, 422])
def test_a_wrong_request_is_not_tried_again(caller, chaos, status):
    chaos.plan(fails(caller, "fail", status=status))
    with pytest.raises(caller.status_error) as caught:
        caller.plain()
    assert caught.value.status_code == 400
    chaos.assert_clean(attempts=1, faults=1)


@pytest.mark.parametrize("kind", ["truncate", "disconnect", "malformed"])
def test_a_cut_stream_is_an_error(caller, chaos, kind):
    """Half an answer must not look whole. The caller learns of it and asks again, as a caller should."""
    chaos.plan(fails(caller, "stream_fault", kind=kind, after_chunks=4))
    with pytest.raises(caller.error):
        caller.stream()
    chaos.has_heard()
    assert caller.stream()
    chaos.assert_clean(attempts=2, faults=1)


@pytest.mark.parametrize("kind", ["truncate", "disconnect"])
def test_a_stream_that_is_cut_before_it_began_is_tried_again(caller, chaos, kind):
    chaos.plan(fails(caller, "stream_fault", kind=kind, after_chunks=0))
    assert caller.stream()
    chaos.assert_clean(attempts=2, faults=1)


def test_a_stalled_stream_is_an_error(caller, chaos):
    chaos.plan(fails(caller, "stream_fault", kind="stall", after_chunks=4, stall_seconds=8))
    started = time.monotonic()
    with pytest.raises(caller.error):
        caller.stream()
    assert 1 <= time.monotonic() - started < 5, "idle_ms is 1000"
    chaos.has_heard()
    assert caller.stream()
    chaos.assert_clean(attempts=2, faults=1)


def test_a_slow_first_token_is_waited_for(caller, chaos):
    chaos.plan(fails(caller, "slow_first_token", seconds=1.2))
    assert caller.stream()
    assert chaos.verdict()["attempts"] == 1


def test_a_first_token_that_is_too_slow_is_asked_for_again(caller, chaos):
    chaos.plan(fails(caller, "slow_first_token", seconds=8))
    started = time.monotonic()
    assert caller.stream()
    assert 2 <= time.monotonic() - started < 6, "first_byte_ms is 2000"
    assert chaos.verdict()["attempts"] == 2
