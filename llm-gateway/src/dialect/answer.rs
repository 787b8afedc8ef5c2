//! Answers that come in one piece: what they took, and each dialect's as the other's.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Value, json};

use super::Dialect;
use super::complaint::Complaint;
use super::usage::{self, AnthropicTokens, OpenAiTokens};
use crate::usage::Usage;

/// Why a body with a good status is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// It is an error all the same.
    #[error("an error with a good status")]
    Complaint(Complaint),
    /// It is no JSON, or not the dialect's.
    #[error("{0}")]
    Corrupt(&'static str),
}

/// What the gateway must know of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What it took, where it says.
    pub usage: Option<Usage>,
    /// Bytes of text in it.
    pub said_bytes: u64,
}

/// Reads an answer.
///
/// # Errors
/// It is none.
pub fn read(dialect: Dialect, body: &[u8]) -> Result<(Told, Value), NoAnswer> {
    let value: Value = serde_json::from_slice(body).map_err(|_| NoAnswer::Corrupt("an answer that is no JSON"))?;
    if let Some(complaint) = value.get("error").and_then(|_| Complaint::of(&value)) {
        return Err(NoAnswer::Complaint(complaint));
    }
    let told = match dialect {
        Dialect::Openai => {
            let choices = value["choices"].as_array().filter(|choices| !choices.is_empty());
            let choices = choices.ok_or(NoAnswer::Corrupt("an answer without choices"))?;
            let tokens = value.get("usage").and_then(|usage| serde_json::from_value::<OpenAiTokens>(usage.clone()).ok());
            let said_bytes = choices.iter().map(|choice| texts(&choice["message"])).sum();
            Told { usage: tokens.map(OpenAiTokens::usage), said_bytes }
        }
        Dialect::Anthropic => {
            let blocks = value["content"].as_array().ok_or(NoAnswer::Corrupt("an answer without content"))?;
            let tokens = value.get("usage").and_then(|usage| serde_json::from_value::<AnthropicTokens>(usage.clone()).ok());
            Told { usage: tokens.and_then(|tokens| tokens.whole()), said_bytes: blocks.iter().map(texts).sum() }
        }
    };
    Ok((told, value))
}

/// Bytes of what the model wrote, of whatever kind.
fn texts(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(values) => values.iter().map(texts).sum(),
        Value::Object(fields) => {
            let written = |(name, value): (&String, &Value)| {
                if matches!(name.as_str(), "role" | "type" | "id" | "signature") { 0 } else { texts(value) }
            };
            fields.iter().map(written).sum()
        }
        _ => 0,
    }
}

/// The answer `value` of an upstream that speaks `from`, for a caller who speaks `to`; `None` where that is the same.
///
/// # Errors
/// It has something that cannot be said there.
pub fn translate(from: Dialect, to: Dialect, value: &Value, usage: Option<&Usage>) -> Result<Option<Bytes>, NoAnswer> {
    let translated = match (from, to) {
        (Dialect::Openai, Dialect::Openai) | (Dialect::Anthropic, Dialect::Anthropic) => return Ok(None),
        (Dialect::Anthropic, Dialect::Openai) => to_openai(value, usage),
        (Dialect::Openai, Dialect::Anthropic) => to_anthropic(value, usage)?,
    };
    Ok(Some(Bytes::from(translated.to_string())))
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Anthropic's `stop_reason` as `finish_reason`.
pub(super) fn finish_reason(stop: &str) -> &'static str {
    match stop {
        "max_tokens" | "model_context_window_exceeded" => "length",
        "tool_use" => "tool_calls",
        "refusal" => "content_filter",
        _ => "stop",
    }
}

/// OpenAI's `finish_reason` as `stop_reason`. That a stop sequence was met cannot be known.
pub(super) fn stop_reason(finish: &str) -> &'static str {
    match finish {
        "length" => "max_tokens",
        "tool_calls" | "function_call" => "tool_use",
        "content_filter" => "refusal",
        _ => "end_turn",
    }
}

fn to_openai(value: &Value, usage: Option<&Usage>) -> Value {
    let (mut said, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
    for block in value["content"].as_array().into_iter().flatten() {
        match block["type"].as_str() {
            Some("text") => said.push_str(block["text"].as_str().unwrap_or_default()),
            Some("thinking") => thought.push_str(block["thinking"].as_str().unwrap_or_default()),
            Some("tool_use") => {
                let function = json!({"name": block["name"], "arguments": block["input"].to_string()});
                calls.push(json!({"id": block["id"], "type": "function", "function": function}));
            }
            _ => {}
        }
    }
    let content = if said.is_empty() && !calls.is_empty() { Value::Null } else { said.into() };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !thought.is_empty() {
        message["reasoning_content"] = thought.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let finish = finish_reason(value["stop_reason"].as_str().unwrap_or_default());
    let mut answer = json!({
        "id": value["id"], "object": "chat.completion", "created": now(), "model": value["model"],
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish}],
    });
    if let Some(usage) = usage {
        answer["usage"] = usage::openai(usage);
    }
    answer
}

fn to_anthropic(value: &Value, usage: Option<&Usage>) -> Result<Value, NoAnswer> {
    let choice = &value["choices"][0];
    let message = &choice["message"];
    let mut blocks = Vec::new();
    for field in ["content", "refusal"] {
        if let Some(text) = message[field].as_str().filter(|text| !text.is_empty()) {
            blocks.push(json!({"type": "text", "text": text}));
        }
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let arguments = call["function"]["arguments"].as_str().filter(|text| !text.trim().is_empty()).unwrap_or("{}");
        let input: Value = serde_json::from_str(arguments).map_err(|_| NoAnswer::Corrupt("a tool call whose arguments are no JSON"))?;
        blocks.push(json!({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": input}));
    }
    Ok(json!({
        "id": value["id"], "type": "message", "role": "assistant", "model": value["model"], "content": blocks,
        "stop_reason": stop_reason(choice["finish_reason"].as_str().unwrap_or_default()), "stop_sequence": null,
        "usage": usage::anthropic(&usage.copied().unwrap_or_default()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(from: Dialect, to: Dialect, value: &Value) -> Value {
        let (told, value) = read(from, value.to_string().as_bytes()).unwrap();
        serde_json::from_slice(&translate(from, to, &value, told.usage.as_ref()).unwrap().unwrap()).unwrap()
    }

    #[test]
    fn an_anthropic_answer_becomes_an_openai_one_with_its_tokens_added_up() {
        let answer = translated(
            Dialect::Anthropic,
            Dialect::Openai,
            &json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "tool_use",
                "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "I call"},
                            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}],
                "usage": {"input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 30, "output_tokens": 7},
            }),
        );
        let choice = &answer["choices"][0];
        assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("tool_calls"), &json!("I call")));
        assert_eq!(
            choice["message"]["tool_calls"],
            json!([{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}])
        );
        assert_eq!((&answer["usage"]["prompt_tokens"], &answer["usage"]["total_tokens"]), (&json!(60), &json!(67)));
        assert_eq!(answer["usage"]["prompt_tokens_details"], json!({"cached_tokens": 30, "cache_write_tokens": 20}));
    }

    #[test]
    fn an_openai_answer_becomes_an_anthropic_one_with_its_tokens_taken_apart() {
        let answer = translated(
            Dialect::Openai,
            Dialect::Anthropic,
            &json!({
                "id": "c", "model": "gpt", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": "I call",
                    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]}}],
                "usage": {"prompt_tokens": 60, "completion_tokens": 7, "total_tokens": 67, "prompt_tokens_details": {"cached_tokens": 30}},
            }),
        );
        assert_eq!(
            answer["content"],
            json!([{"type": "text", "text": "I call"}, {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}])
        );
        assert_eq!(answer["stop_reason"], "tool_use");
        let tokens = json!({"input_tokens": 30, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 30, "output_tokens": 7});
        assert_eq!(answer["usage"], tokens);
    }

    #[test]
    fn every_stop_reason_has_a_counterpart() {
        for (stop, finish) in [
            ("end_turn", "stop"),
            ("stop_sequence", "stop"),
            ("max_tokens", "length"),
            ("tool_use", "tool_calls"),
            ("refusal", "content_filter"),
        ] {
            assert_eq!(finish_reason(stop), finish);
        }
        for (finish, stop) in [("stop", "end_turn"), ("length", "max_tokens"), ("tool_calls", "tool_use"), ("content_filter", "refusal")] {
            assert_eq!(stop_reason(finish), stop);
        }
    }

    #[test]
    fn what_is_no_answer_is_said() {
        let none = |dialect, body: &str| read(dialect, body.as_bytes()).unwrap_err();
        assert!(
            matches!(none(Dialect::Openai, r#"{"error":{"message":"m","type":"server_error"}}"#), NoAnswer::Complaint(c) if c.kind == "server_error")
        );
        for body in ["", "{\"choi", "{}", "[]", r#"{"choices":[]}"#, "<html>"] {
            assert!(matches!(none(Dialect::Openai, body), NoAnswer::Corrupt(_)), "{body}");
        }
        assert!(matches!(none(Dialect::Anthropic, r#"{"choices":[{}]}"#), NoAnswer::Corrupt(_)));
        let bad = json!({"choices": [{"message": {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{"}}]}}]});
        assert!(translate(Dialect::Openai, Dialect::Anthropic, &bad, None).is_err());
    }

    #[test]
    fn a_lie_about_usage_is_no_usage() {
        let usage = |usage: Value| {
            let answer = json!({"choices": [{"message": {"content": "hello"}}], "usage": usage});
            read(Dialect::Openai, answer.to_string().as_bytes()).unwrap().0
        };
        for lie in [
            json!(null),
            json!({"prompt_tokens": -1, "completion_tokens": 2}),
            json!({"prompt_tokens": "many"}),
            json!(7),
            json!({"prompt_tokens": 1e30}),
        ] {
            assert_eq!(usage(lie), Told { usage: None, said_bytes: 5 });
        }
    }
}
