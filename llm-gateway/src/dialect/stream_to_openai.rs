//! An Anthropic stream as an OpenAI one.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{answer, usage};
use crate::sse;
use crate::usage::Usage;

/// The state of one stream.
#[derive(Debug)]
pub struct Translation {
    wants_usage: bool,
    id: Value,
    model: Value,
    created: u64,
    /// Of each block that is a tool's call: its number among the calls, and whether arguments came.
    calls: BTreeMap<u64, (usize, bool)>,
}

impl Translation {
    /// At its start.
    pub const fn new(wants_usage: bool) -> Self {
        Self { wants_usage, id: Value::Null, model: Value::Null, created: 0, calls: BTreeMap::new() }
    }

    /// Adds what the caller gets for an event.
    pub fn pass(&mut self, data: &Value, usage: Option<Usage>, out: &mut Vec<Bytes>) {
        let block = data["index"].as_u64().unwrap_or(0);
        match data["type"].as_str().unwrap_or_default() {
            "message_start" => {
                self.id = data["message"]["id"].clone();
                self.model = data["message"]["model"].clone();
                self.created = answer::now();
                out.push(self.delta(&json!({"role": "assistant", "content": "", "refusal": null})));
            }
            "content_block_start" => self.start(block, &data["content_block"], out),
            "content_block_delta" => self.part(block, &data["delta"], out),
            "content_block_stop" => {
                if let Some((index, false)) = self.calls.get(&block).copied() {
                    // A call without arguments: callers parse what they get, and nothing is no JSON.
                    out.push(self.delta(&json!({"tool_calls": [{"index": index, "function": {"arguments": "{}"}}]})));
                }
            }
            "message_delta" => {
                if let Some(stop) = data["delta"]["stop_reason"].as_str() {
                    out.push(
                        self.chunk(
                            json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": answer::finish_reason(stop)}]),
                            None,
                        ),
                    );
                }
            }
            "message_stop" => {
                if self.wants_usage {
                    out.push(self.chunk(json!([]), usage.as_ref()));
                }
                out.push(sse::DONE);
            }
            _ => {}
        }
    }

    fn start(&mut self, block: u64, content: &Value, out: &mut Vec<Bytes>) {
        match content["type"].as_str() {
            Some("tool_use") => {
                let index = self.calls.len();
                self.calls.insert(block, (index, false));
                let function = json!({"name": content["name"], "arguments": ""});
                let call = json!({"index": index, "id": content["id"], "type": "function", "function": function});
                out.push(self.delta(&json!({ "tool_calls": [call] })));
            }
            Some("text") => {
                if let Some(text) = content["text"].as_str().filter(|text| !text.is_empty()) {
                    out.push(self.delta(&json!({ "content": text })));
                }
            }
            _ => {}
        }
    }

    fn part(&mut self, block: u64, delta: &Value, out: &mut Vec<Bytes>) {
        match delta["type"].as_str() {
            Some("text_delta") => out.push(self.delta(&json!({"content": delta["text"]}))),
            Some("thinking_delta") => out.push(self.delta(&json!({"reasoning_content": delta["thinking"]}))),
            Some("input_json_delta") => {
                let text = delta["partial_json"].as_str().unwrap_or_default();
                let Some((index, came)) = self.calls.get_mut(&block).filter(|_| !text.is_empty()) else { return };
                *came = true;
                let call = json!({"index": *index, "function": {"arguments": text}});
                out.push(self.delta(&json!({ "tool_calls": [call] })));
            }
            _ => {}
        }
    }

    fn delta(&self, delta: &Value) -> Bytes {
        self.chunk(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]), None)
    }

    fn chunk(&self, choices: Value, usage: Option<&Usage>) -> Bytes {
        let mut chunk =
            json!({"id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model, "choices": choices});
        if self.wants_usage {
            chunk["usage"] = usage.map_or(Value::Null, usage::openai);
        }
        sse::write(None, chunk.to_string().as_bytes())
    }
}
