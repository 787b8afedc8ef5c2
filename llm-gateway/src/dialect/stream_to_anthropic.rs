//! An OpenAI stream as an Anthropic one.
//!
//! What the prompt took is known only at the end of an OpenAI stream, so `message_start` says nothing of it and the last `message_delta`, whose
//! counts are cumulative, says all.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{answer, usage};
use crate::sse;
use crate::usage::Usage;

/// The state of one stream.
#[derive(Debug, Default)]
pub struct Translation {
    started: bool,
    /// The block that is open, and how many there were before it.
    open: Option<Block>,
    blocks: u64,
    finish: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Text,
    Thinking,
    /// A tool's call, by its number in the OpenAI stream.
    Call(u64),
}

impl Translation {
    /// Adds what the caller gets for a chunk.
    pub fn pass(&mut self, chunk: &Value, out: &mut Vec<Bytes>) {
        if !self.started {
            self.started = true;
            let message = json!({
                "id": chunk["id"], "type": "message", "role": "assistant", "model": chunk["model"], "content": [],
                "stop_reason": null, "stop_sequence": null, "usage": usage::anthropic(&Usage::default()),
            });
            out.push(event("message_start", json!({ "message": message })));
        }
        let choice = &chunk["choices"][0];
        let delta = &choice["delta"];
        for field in ["reasoning_content", "reasoning"] {
            if let Some(text) = delta[field].as_str().filter(|text| !text.is_empty()) {
                self.part(
                    Block::Thinking,
                    &json!({"type": "thinking", "thinking": "", "signature": ""}),
                    json!({"type": "thinking_delta", "thinking": text}),
                    out,
                );
            }
        }
        for field in ["content", "refusal"] {
            if let Some(text) = delta[field].as_str().filter(|text| !text.is_empty()) {
                self.part(Block::Text, &json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": text}), out);
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let block = Block::Call(call["index"].as_u64().unwrap_or(0));
            let start = json!({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": {}});
            let text = call["function"]["arguments"].as_str().unwrap_or_default();
            self.part(block, &start, json!({"type": "input_json_delta", "partial_json": text}), out);
        }
        if let Some(finish) = choice["finish_reason"].as_str() {
            self.finish = Some(answer::stop_reason(finish));
        }
    }

    /// Adds the end: all that took is known now.
    pub fn end(&mut self, usage: Option<Usage>, out: &mut Vec<Bytes>) {
        self.close(out);
        let delta = json!({"stop_reason": self.finish.unwrap_or("end_turn"), "stop_sequence": null});
        out.push(event("message_delta", json!({"delta": delta, "usage": usage::anthropic(&usage.unwrap_or_default())})));
        out.push(event("message_stop", json!({})));
    }

    fn part(&mut self, block: Block, start: &Value, delta: Value, out: &mut Vec<Bytes>) {
        if self.open != Some(block) {
            self.close(out);
            self.open = Some(block);
            out.push(event("content_block_start", json!({"index": self.blocks, "content_block": start})));
        }
        if delta["partial_json"] != "" {
            out.push(event("content_block_delta", json!({"index": self.blocks, "delta": delta})));
        }
    }

    fn close(&mut self, out: &mut Vec<Bytes>) {
        if self.open.take().is_some() {
            out.push(event("content_block_stop", json!({"index": self.blocks})));
            self.blocks += 1;
        }
    }
}

fn event(name: &str, mut data: Value) -> Bytes {
    data["type"] = name.into();
    sse::write(Some(name), data.to_string().as_bytes())
}
