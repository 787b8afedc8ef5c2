//! What the gateway must know of an event of an upstream's stream: whether it says something, fails, ends, and what all took.

use serde::Deserialize;
use serde_json::Value;

use super::Dialect;
use super::complaint::Complaint;
use super::usage::{AnthropicTokens, OpenAiTokens};
use crate::sse::Event;
use crate::usage::Usage;

/// What an event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// A comment or a ping: a sign of life.
    Nothing,
    /// A part of the answer.
    Part,
    /// What it took, and nothing else: there because it was asked for.
    UsageOnly,
    /// It failed.
    Failed(Complaint),
    /// The answer is whole.
    End,
}

/// An event that is not what the dialect has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event that is no JSON of the dialect")]
pub struct Corrupt;

/// Reads the events of one stream, in order.
#[derive(Debug)]
pub struct Reading {
    dialect: Dialect,
    openai: Option<OpenAiTokens>,
    anthropic: AnthropicTokens,
    said_bytes: u64,
    parts: u64,
}

impl Reading {
    /// Of a stream in this dialect.
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, openai: None, anthropic: AnthropicTokens::default(), said_bytes: 0, parts: 0 }
    }

    /// Reads an event.
    ///
    /// # Errors
    /// It is none of the dialect's.
    pub fn read(&mut self, event: &[u8]) -> Result<Said, Corrupt> {
        let Event { name, data } = Event::read(event);
        let Some(data) = data else { return Ok(Said::Nothing) };
        if &data[..] == b"[DONE]" {
            return Ok(if self.dialect == Dialect::Openai { Said::End } else { Said::Nothing });
        }
        match self.dialect {
            Dialect::Openai => self.openai(&data),
            Dialect::Anthropic => self.anthropic(name, &data),
        }
    }

    fn openai(&mut self, data: &[u8]) -> Result<Said, Corrupt> {
        let chunk: Chunk = serde_json::from_slice(data).map_err(|_| Corrupt)?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Ok(Said::Failed(Complaint::of(&serde_json::json!({ "error": error })).unwrap_or_default()));
        }
        let choices = chunk.choices.ok_or(Corrupt)?;
        let bytes: u64 = choices.iter().map(Choice::bytes).sum();
        self.said_bytes += bytes;
        self.parts += u64::from(bytes > 0);
        // LiteLLM's last chunk still has one choice that says nothing.
        let says_nothing =
            choices.iter().all(|choice| choice.bytes() == 0 && choice.finish_reason.is_none() && choice.delta.role.is_none());
        match chunk.usage {
            Some(usage) => {
                self.openai = Some(usage);
                Ok(if says_nothing { Said::UsageOnly } else { Said::Part })
            }
            None => Ok(Said::Part),
        }
    }

    fn anthropic(&mut self, name: Option<&[u8]>, data: &[u8]) -> Result<Said, Corrupt> {
        let event: Message = serde_json::from_slice(data).map_err(|_| Corrupt)?;
        let kind = event.kind.as_deref().or_else(|| name.and_then(|name| std::str::from_utf8(name).ok())).unwrap_or_default();
        match kind {
            "ping" => return Ok(Said::Nothing),
            "error" => {
                let complaint = event.error.and_then(|error| Complaint::of(&serde_json::json!({ "error": error })));
                return Ok(Said::Failed(complaint.unwrap_or_default()));
            }
            "message_stop" => return Ok(Said::End),
            _ => {}
        }
        for usage in [event.message.and_then(|message| message.usage), event.usage].into_iter().flatten() {
            self.anthropic.update(usage);
        }
        let bytes = event.delta.map_or(0, |delta| delta.text.0 + delta.partial_json.0 + delta.thinking.0);
        self.said_bytes += bytes;
        self.parts += u64::from(bytes > 0);
        Ok(Said::Part)
    }

    /// What the upstream said that it took, once it did.
    pub fn usage(&self) -> Option<Usage> {
        match self.dialect {
            Dialect::Openai => self.openai.map(OpenAiTokens::usage),
            Dialect::Anthropic => self.anthropic.usage(),
        }
    }

    /// Tokens of the prompt, where the upstream said so much.
    pub fn input(&self) -> Option<u64> {
        match self.dialect {
            Dialect::Openai => self.openai.map(|tokens| tokens.usage().input),
            Dialect::Anthropic => self.anthropic.input(),
        }
    }

    /// Bytes of text that came, and the parts that they came in.
    pub const fn counted(&self) -> (u64, u64) {
        (self.said_bytes, self.parts)
    }
}

#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    usage: Option<OpenAiTokens>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    #[serde(default)]
    finish_reason: Option<Length>,
}

impl Choice {
    fn bytes(&self) -> u64 {
        let Delta { content, reasoning_content, reasoning, refusal, tool_calls, .. } = &self.delta;
        let calls: u64 = tool_calls.iter().flatten().filter_map(|call| call.function.as_ref()).map(|f| f.name.0 + f.arguments.0).sum();
        content.0 + reasoning_content.0 + reasoning.0 + refusal.0 + calls
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta {
    role: Option<Length>,
    content: Length,
    reasoning_content: Length,
    reasoning: Length,
    refusal: Length,
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Deserialize)]
struct ToolCall {
    function: Option<Function>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function {
    name: Length,
    arguments: Length,
}

#[derive(Deserialize)]
struct Message {
    #[serde(rename = "type")]
    kind: Option<String>,
    message: Option<MessageStart>,
    delta: Option<AnthropicDelta>,
    usage: Option<AnthropicTokens>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct MessageStart {
    usage: Option<AnthropicTokens>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnthropicDelta {
    text: Length,
    partial_json: Length,
    thinking: Length,
}

/// Length of a text in bytes; the text itself is not kept. Null has none.
#[derive(Clone, Copy, Default)]
struct Length(u64);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Length;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text or null")
            }

            fn visit_str<E>(self, text: &str) -> Result<Length, E> {
                Ok(Length(text.len() as u64))
            }

            fn visit_unit<E>(self) -> Result<Length, E> {
                Ok(Length(0))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn openai(reading: &mut Reading, data: &str) -> Said {
        reading.read(format!("data: {data}\n\n").as_bytes()).unwrap()
    }

    #[test]
    fn an_openai_stream_is_read() {
        let mut reading = Reading::new(Dialect::Openai);
        let delta =
            r#"{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"h\u00e9"},"finish_reason":null}],"usage":null}"#;
        assert_eq!(openai(&mut reading, delta), Said::Part);
        assert_eq!(openai(&mut reading, r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#), Said::Part);
        assert_eq!((reading.counted(), reading.usage()), ((3, 1), None));
        let usage = r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":3}}}"#;
        assert_eq!(openai(&mut reading, usage), Said::UsageOnly);
        let usage = reading.usage().unwrap();
        assert_eq!((usage.input, usage.cached_input, usage.output), (5, 3, 2));
        assert_eq!(openai(&mut reading, "[DONE]"), Said::End);
        assert_eq!(reading.read(b": ping\n\n"), Ok(Said::Nothing));
    }

    #[test]
    fn a_usage_chunk_may_have_an_empty_choice_or_come_with_the_end() {
        let mut reading = Reading::new(Dialect::Openai);
        let usage = r#""usage":{"prompt_tokens":5,"completion_tokens":2}}"#;
        let litellm = format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":null}}],{usage}"#);
        assert_eq!(openai(&mut reading, &litellm), Said::UsageOnly);
        let finish = format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"stop"}}],"timings":{{}},{usage}"#);
        assert_eq!(openai(&mut reading, &finish), Said::Part);
    }

    #[test]
    fn errors_and_noise_are_told_apart() {
        let mut reading = Reading::new(Dialect::Openai);
        assert!(
            matches!(openai(&mut reading, r#"{"error":{"message":"overloaded","type":"server_error"}}"#), Said::Failed(c) if c.kind == "server_error")
        );
        for data in ["{\"choi", "[]", "7", "{}", r#"{"choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":1}}"#] {
            assert_eq!(reading.read(format!("data: {data}\n\n").as_bytes()), Err(Corrupt), "{data}");
        }
    }

    #[test]
    fn an_anthropic_stream_is_read() {
        let mut reading = Reading::new(Dialect::Anthropic);
        let mut read = |name: &str, data: &str| reading.read(format!("event: {name}\ndata: {data}\n\n").as_bytes()).unwrap();
        let start = r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":5,"cache_read_input_tokens":3,"cache_creation_input_tokens":2,"output_tokens":1}}}"#;
        assert_eq!(read("message_start", start), Said::Part);
        assert_eq!(read("ping", r#"{"type":"ping"}"#), Said::Nothing);
        assert_eq!(
            read("content_block_delta", r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}"#),
            Said::Part
        );
        assert_eq!(
            read("message_delta", r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#),
            Said::Part
        );
        assert_eq!(read("message_stop", r#"{"type":"message_stop"}"#), Said::End);
        let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        assert!(matches!(read("error", error), Said::Failed(c) if c.kind == "overloaded_error"));
        let usage = reading.usage().unwrap();
        assert_eq!((usage.input, usage.cached_input, usage.cache_write, usage.output), (10, 3, 2, 9));
        assert_eq!(reading.counted(), (5, 1));
    }
}
