"""The official Anthropic client, over a real model that is reached in either dialect."""

import anthropic
import pytest

SAY = [{"role": "user", "content": "Name three colours."}]
BOTH = pytest.mark.parametrize("model", ["small-openai", "small-anthropic"])


@BOTH
def test_plain(anthropic_client, model):
    answer = anthropic_client.messages.create(model=model, messages=SAY, max_tokens=12)
    assert answer.type == "message" and answer.role == "assistant"
    assert answer.content[0].type == "text" and answer.content[0].text.strip()
    assert answer.stop_reason in ("max_tokens", "end_turn")
    assert answer.usage.input_tokens > 0 and 0 < answer.usage.output_tokens <= 12


@BOTH
def test_stream_says_what_the_plain_answer_says(anthropic_client, model):
    asked = {"model": model, "messages": SAY, "max_tokens": 12, "extra_body": {"temperature": 0}}
    plain = anthropic_client.messages.create(**asked)
    with anthropic_client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        whole = stream.get_final_message()
    assert text == plain.content[0].text == whole.content[0].text
    assert whole.stop_reason == plain.stop_reason
    assert 0 < whole.usage.output_tokens <= 12


@BOTH
def test_events_of_a_stream_are_in_order(anthropic_client, model):
    events = [event.type for event in anthropic_client.messages.create(model=model, messages=SAY, max_tokens=8, stream=True)]
    shape = [kind for i, kind in enumerate(events) if kind != "ping" and (i == 0 or kind != events[i - 1])]
    assert shape == ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"]
    assert events.count("content_block_delta") > 1


@BOTH
def test_a_system_prompt_counts(anthropic_client, model):
    bare = anthropic_client.messages.create(model=model, system="Be brief.", messages=SAY, max_tokens=4)
    long = anthropic_client.messages.create(model=model, system="Be brief. " * 40, messages=SAY, max_tokens=4)
    read = [a.usage.input_tokens + (a.usage.cache_read_input_tokens or 0) for a in (bare, long)]
    assert read[1] - read[0] > 60


def test_unknown_model(anthropic_client):
    with pytest.raises(anthropic.NotFoundError) as caught:
        anthropic_client.messages.create(model="absent", messages=SAY, max_tokens=8)
    assert caught.value.body["error"]["type"] == "not_found_error"


def test_wrong_key(anthropic_client):
    with pytest.raises(anthropic.AuthenticationError) as caught:
        anthropic_client.with_options(api_key="sk-wrong").messages.create(model="small-openai", messages=SAY, max_tokens=8)
    assert caught.value.body["error"]["type"] == "authentication_error"


@pytest.mark.parametrize("model", ["small-openai", "small-anthropic", "small-unbounded"])
def test_too_long(anthropic_client, model):
    long = [{"role": "user", "content": "one two three four five six " * 1000}]
    with pytest.raises(anthropic.BadRequestError) as caught:
        anthropic_client.messages.create(model=model, messages=long, max_tokens=8)
    assert caught.value.body["error"]["type"] == "invalid_request_error"
