"""The official OpenAI client, over a real model that is reached in either dialect."""

import openai
import pytest
from rig import wait_until

SAY = [{"role": "user", "content": "Name three colours."}]
BOTH = pytest.mark.parametrize("model", ["small-openai", "small-anthropic"])


@BOTH
def test_plain(openai_client, model):
    answer = openai_client.chat.completions.create(model=model, messages=SAY, max_tokens=12, temperature=0)
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content.strip()
    assert choice.finish_reason in ("length", "stop")
    usage = answer.usage
    assert usage.prompt_tokens > 5 and 0 < usage.completion_tokens <= 12
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_both_dialects_say_and_count_the_same(openai_client):
    """One model at temperature 0: what differs would be the translation's doing."""
    through = [
        openai_client.chat.completions.create(model=model, messages=SAY, max_tokens=12, temperature=0)
        for model in ("small-openai", "small-anthropic")
    ]
    texts, counts = [a.choices[0].message.content for a in through], [(a.usage.prompt_tokens, a.usage.completion_tokens) for a in through]
    assert texts[0] == texts[1]
    assert counts[0] == counts[1]


@BOTH
def test_stream_says_what_the_plain_answer_says(openai_client, model):
    asked = {"model": model, "messages": SAY, "max_tokens": 12, "temperature": 0}
    plain = openai_client.chat.completions.create(**asked)
    chunks = list(openai_client.chat.completions.create(**asked, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == plain.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [plain.choices[0].finish_reason]
    assert len(chunks) > 3, "a stream comes in pieces"
    assert all(chunk.usage is None for chunk in chunks), "usage was not asked for"


@BOTH
def test_usage_of_a_stream_comes_once_and_last(openai_client, model):
    asked = {"model": model, "messages": SAY, "max_tokens": 8, "stream": True, "stream_options": {"include_usage": True}}
    chunks = list(openai_client.chat.completions.create(**asked))
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens > 5 and 0 < chunks[-1].usage.completion_tokens <= 8


def test_cost_is_that_of_the_tokens(openai_client):
    raw = openai_client.chat.completions.with_raw_response.create(model="small-openai", messages=SAY, max_tokens=8)
    usage = raw.parse().usage
    # A dollar for a million tokens is a thousand billionths for one.
    assert int(raw.headers["x-kernelopt-cost-nanousd"]) == usage.prompt_tokens * 1000 + usage.completion_tokens * 2000


def test_models(openai_client):
    assert {"small-openai", "small-anthropic"} <= {model.id for model in openai_client.models.list()}
    assert openai_client.models.retrieve("small-openai").id == "small-openai"


def test_unknown_model(openai_client):
    with pytest.raises(openai.NotFoundError) as caught:
        openai_client.chat.completions.create(model="absent", messages=SAY, max_tokens=8)
    assert caught.value.response.headers["x-should-retry"] == "false"


def test_wrong_key(openai_client):
    with pytest.raises(openai.AuthenticationError) as caught:
        openai_client.with_options(api_key="sk-wrong").chat.completions.create(model="small-openai", messages=SAY, max_tokens=8)
    assert caught.value.code == "invalid_api_key"


@pytest.mark.parametrize("model", ["small-openai", "small-anthropic", "small-unbounded"])
@pytest.mark.parametrize("stream", [False, True])
def test_too_long(openai_client, model, stream):
    """Found by the gateway where it knows the context, else by the upstream: the caller sees one error."""
    long = [{"role": "user", "content": "one two three four five six " * 1000}]
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client.chat.completions.create(model=model, messages=long, max_tokens=8, stream=stream)
    assert caught.value.code == "context_length_exceeded"


def test_a_caller_who_leaves_frees_the_slot(openai_client, gateway, llama):
    """The one long request: it would run for some ten seconds, and is left after its first words."""
    before = llama.metric("tokens_predicted_total")
    story = [{"role": "user", "content": "Count from one to five hundred, in words."}]
    asked = {"model": "small-openai", "messages": story, "max_tokens": 1000, "extra_body": {"ignore_eos": True}}
    with openai_client.chat.completions.create(**asked, stream=True) as stream:
        for _ in zip(range(3), stream, strict=False):
            pass
        assert llama.metric("requests_processing") == 1
        assert gateway.in_flight() == 1
    wait_until("llama.cpp has let the request go", lambda: llama.metric("requests_processing") == 0, 5)
    wait_until("the gateway has let the request go", lambda: gateway.in_flight() == 0, 2)
    assert llama.metric("tokens_predicted_total") - before < 500
