//! Streams: those of the caller's own dialect pass through event by event, others are translated.

use bytes::Bytes;
use serde_json::Value;

use super::reading::Said;
use super::{Dialect, stream_to_anthropic, stream_to_openai};
use crate::sse::Event;
use crate::usage::Usage;

/// What becomes of an upstream's events on their way to the caller.
#[derive(Debug)]
pub enum Passage {
    /// They pass; what the caller did not ask for is taken out.
    Through {
        /// The caller asked for usage.
        wants_usage: bool,
    },
    /// Anthropic's, for a caller who speaks OpenAI's.
    ToOpenAi(stream_to_openai::Translation),
    /// OpenAI's, for a caller who speaks Anthropic's.
    ToAnthropic(stream_to_anthropic::Translation),
}

impl Passage {
    /// From an upstream that speaks `from` to a caller who speaks `to`.
    pub fn new(from: Dialect, to: Dialect, wants_usage: bool) -> Self {
        match (from, to) {
            (Dialect::Anthropic, Dialect::Openai) => Self::ToOpenAi(stream_to_openai::Translation::new(wants_usage)),
            (Dialect::Openai, Dialect::Anthropic) => Self::ToAnthropic(stream_to_anthropic::Translation::default()),
            (Dialect::Openai, Dialect::Openai) | (Dialect::Anthropic, Dialect::Anthropic) => Self::Through { wants_usage },
        }
    }

    /// What the caller gets for an event, added to `out`. `said` is what it is, and `usage` what is known of that.
    pub fn pass(&mut self, event: &Bytes, said: &Said, usage: Option<Usage>, out: &mut Vec<Bytes>) {
        match self {
            Self::Through { wants_usage } => {
                if *wants_usage || *said != Said::UsageOnly {
                    out.push(event.clone());
                }
            }
            Self::ToOpenAi(translation) => data_of(event).into_iter().for_each(|data| translation.pass(&data, usage, out)),
            Self::ToAnthropic(translation) if *said == Said::End => translation.end(usage, out),
            Self::ToAnthropic(translation) => data_of(event).into_iter().for_each(|data| translation.pass(&data, out)),
        }
    }
}

fn data_of(event: &Bytes) -> Option<Value> {
    Event::read(event).data.and_then(|data| serde_json::from_slice(&data).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::reading::Reading;
    use crate::sse;

    /// Sends events through and gives the data of what comes out, `[DONE]` as a text.
    fn passed(from: Dialect, to: Dialect, wants_usage: bool, events: &[Value]) -> Vec<Value> {
        let (mut reading, mut passage, mut out) = (Reading::new(from), Passage::new(from, to, wants_usage), Vec::new());
        for event in events {
            let bytes = match event.as_str() {
                Some(word) => sse::write(None, word.as_bytes()),
                None => sse::write(event["type"].as_str(), event.to_string().as_bytes()),
            };
            let said = reading.read(&bytes).unwrap();
            passage.pass(&bytes, &said, reading.usage(), &mut out);
        }
        let value = |bytes: &Bytes| {
            let data = Event::read(bytes).data.unwrap();
            serde_json::from_slice(&data).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&data)))
        };
        out.iter().map(value).collect()
    }

    fn openai() -> Vec<Value> {
        let chunk = |delta: Value, finish: Value| json!({"id": "c", "model": "gpt", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": null});
        let call = |index: u64, id: Value, arguments: &str| json!({"tool_calls": [{"index": index, "id": id, "function": {"name": "f", "arguments": arguments}}]});
        vec![
            chunk(json!({"role": "assistant", "content": ""}), Value::Null),
            chunk(json!({"content": "I "}), Value::Null),
            chunk(json!({"content": "call"}), Value::Null),
            chunk(call(0, json!("a"), ""), Value::Null),
            chunk(call(0, Value::Null, "{\"x\":1}"), Value::Null),
            chunk(call(1, json!("b"), "{}"), Value::Null),
            chunk(json!({}), json!("tool_calls")),
            json!({"id": "c", "model": "gpt", "choices": [], "usage": {"prompt_tokens": 60, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 30}}}),
            json!("[DONE]"),
        ]
    }

    fn anthropic() -> Vec<Value> {
        vec![
            json!({"type": "message_start", "message": {"id": "m", "model": "claude", "usage": {"input_tokens": 10, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 20, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "ping"}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I call"}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "a", "name": "f", "input": {}}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ""}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"x\":1}"}}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "b", "name": "g", "input": {}}}),
            json!({"type": "content_block_stop", "index": 2}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}),
            json!({"type": "message_stop"}),
        ]
    }

    #[test]
    fn usage_that_was_not_asked_for_is_taken_out() {
        let all = passed(Dialect::Openai, Dialect::Openai, true, &openai());
        assert_eq!(all, openai());
        let without = passed(Dialect::Openai, Dialect::Openai, false, &openai());
        assert!(without.len() == all.len() - 1 && without.iter().all(|chunk| chunk["usage"].is_null()));
        assert_eq!(passed(Dialect::Anthropic, Dialect::Anthropic, true, &anthropic()), anthropic());
    }

    #[test]
    fn an_openai_stream_becomes_an_anthropic_one() {
        let events = passed(Dialect::Openai, Dialect::Anthropic, true, &openai());
        let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        let block = |parts: usize| {
            ["content_block_start"].into_iter().chain(["content_block_delta"].into_iter().cycle().take(parts)).chain(["content_block_stop"])
        };
        let wanted: Vec<&str> = ["message_start"]
            .into_iter()
            .chain(block(2))
            .chain(block(1))
            .chain(block(1))
            .chain(["message_delta", "message_stop"])
            .collect();
        assert_eq!(kinds, wanted);
        assert_eq!(events[5]["content_block"], json!({"type": "tool_use", "id": "a", "name": "f", "input": {}}));
        assert_eq!((&events[6]["index"], &events[6]["delta"]["partial_json"]), (&json!(1), &json!("{\"x\":1}")));
        let last = &events[events.len() - 2];
        assert_eq!(last["delta"]["stop_reason"], "tool_use");
        let tokens = json!({"input_tokens": 30, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 30, "output_tokens": 7});
        assert_eq!(last["usage"], tokens);
    }

    #[test]
    fn an_anthropic_stream_becomes_an_openai_one() {
        let chunks = passed(Dialect::Anthropic, Dialect::Openai, true, &anthropic());
        let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
        assert_eq!(*deltas[0], json!({"role": "assistant", "content": "", "refusal": null}));
        assert_eq!(*deltas[1], json!({"content": "I call"}));
        assert_eq!(
            *deltas[2],
            json!({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]})
        );
        assert_eq!(*deltas[3], json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"x\":1}"}}]}));
        assert_eq!(deltas[4]["tool_calls"][0]["id"], "b");
        assert_eq!(*deltas[5], json!({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}), "callers parse what they get");
        assert_eq!(chunks[6]["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(
            (&chunks[7]["choices"], &chunks[7]["usage"]["prompt_tokens"], &chunks[7]["usage"]["total_tokens"]),
            (&json!([]), &json!(60), &json!(67))
        );
        assert_eq!(chunks[8], "[DONE]");
        assert_eq!(chunks.len(), 9);
        let without = passed(Dialect::Anthropic, Dialect::Openai, false, &anthropic());
        assert!(without.len() == 8 && without.iter().all(|chunk| chunk.get("usage").is_none()));
    }
}
