//! An Anthropic request as an OpenAI one.
//!
//! As the other way round: what has no counterpart is refused, and left out is only what does not bear on the answer. Marks for the
//! provider's cache are among that: OpenAI caches by itself.

use serde_json::{Value, json};

use super::problem::{Fault, Problem};
use super::request::{Request, Upstream};

/// Fields that do not bear on what the model says.
const LEFT_OUT: [&str; 3] = ["container", "metadata", "service_tier"];
/// Fields that are translated.
const TRANSLATED: [&str; 10] =
    ["max_tokens", "messages", "model", "stop_sequences", "stream", "system", "temperature", "tool_choice", "tools", "top_p"];

/// Translates a request.
///
/// # Errors
/// Something in it has no counterpart.
pub fn request(request: &Request, to: Upstream<'_>) -> Result<Value, Problem> {
    let body = request.body();
    for field in body.names().filter(|field| !LEFT_OUT.contains(field) && !TRANSLATED.contains(field)) {
        match (field, body.parse::<Value>(field)?) {
            (_, None) => {}
            ("thinking", Some(value)) if value["type"] == "disabled" => {}
            _ => return Err(no_counterpart(field, &format!("{field:?}"))),
        }
    }
    let mut out = json!({"model": to.model});
    out[to.output_field] = request.max_output.unwrap_or(to.max_output).into();
    let mut messages = Vec::new();
    if let Some(system) = body.parse::<Value>("system")? {
        let content = texts(&system).map_err(|what| Problem::new(Fault::Invalid, format!("system: {what}")).about("system"))?;
        messages.push(json!({"role": "system", "content": content}));
    }
    let turns: Vec<Value> = body.parse("messages")?.unwrap_or_default();
    for (index, turn) in turns.iter().enumerate() {
        let wrong = |what: String| Problem::new(Fault::Invalid, format!("messages[{index}]: {what}")).about("messages");
        messages.extend(match turn["role"].as_str() {
            Some("user") => user(&turn["content"]).map_err(wrong)?,
            Some("assistant") => vec![assistant(&turn["content"]).map_err(wrong)?],
            _ => return Err(wrong("the role is neither user nor assistant".into())),
        });
    }
    out["messages"] = messages.into();
    if request.stream {
        out["stream"] = true.into();
        out["stream_options"] = json!({"include_usage": true});
    }
    for field in ["temperature", "top_p"] {
        if let Some(value) = body.parse::<Value>(field)? {
            out[field] = value;
        }
    }
    if let Some(stops) = body.parse::<Value>("stop_sequences")? {
        out["stop"] = stops;
    }
    if let Some(user) = body.parse::<Value>("metadata")?.as_ref().and_then(|metadata| metadata["user_id"].as_str()) {
        out["user"] = user.into();
    }
    tools(request, &mut out)?;
    Ok(out)
}

fn no_counterpart(param: &str, what: &str) -> Problem {
    Problem::new(Fault::Invalid, format!("{what} has no counterpart at the model's provider (OpenAI dialect)")).about(param)
}

/// Text, or blocks of text and nothing else.
fn texts(content: &Value) -> Result<Value, String> {
    match content {
        Value::String(_) => Ok(content.clone()),
        Value::Array(blocks) => blocks.iter().map(part).collect::<Result<Vec<_>, _>>().map(Value::Array),
        _ => Err("the content is neither text nor a list of blocks".into()),
    }
}

fn part(block: &Value) -> Result<Value, String> {
    match block["type"].as_str() {
        Some("text") => Ok(json!({"type": "text", "text": block["text"]})),
        Some("image") => {
            let source = &block["source"];
            let url = match (source["type"].as_str(), source["media_type"].as_str(), source["data"].as_str(), source["url"].as_str()) {
                (Some("base64"), Some(media_type), Some(data), _) => format!("data:{media_type};base64,{data}"),
                (Some("url"), _, _, Some(url)) => url.to_owned(),
                _ => return Err("an image that is neither base64 nor a URL".into()),
            };
            Ok(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        kind => Err(format!("a block of type {:?} has no counterpart at the model's provider (OpenAI dialect)", kind.unwrap_or("?"))),
    }
}

/// A user's turn: results of tools are messages of their own, before the rest.
fn user(content: &Value) -> Result<Vec<Value>, String> {
    let Value::Array(blocks) = content else { return Ok(vec![json!({"role": "user", "content": texts(content)?})]) };
    let (results, rest): (Vec<&Value>, Vec<&Value>) = blocks.iter().partition(|block| block["type"] == "tool_result");
    let mut messages = Vec::new();
    for result in results {
        let id = result["tool_use_id"].as_str().ok_or("a result without tool_use_id")?;
        let content = result.get("content").map_or_else(|| Ok("".into()), texts)?;
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
    }
    if !rest.is_empty() || messages.is_empty() {
        let parts = rest.into_iter().map(part).collect::<Result<Vec<_>, _>>()?;
        messages.push(json!({"role": "user", "content": parts}));
    }
    Ok(messages)
}

/// A turn of the model's. What it thought is its provider's own and cannot be shown to another.
fn assistant(content: &Value) -> Result<Value, String> {
    let Value::Array(blocks) = content else { return Ok(json!({"role": "assistant", "content": texts(content)?})) };
    let (mut said, mut calls) = (String::new(), Vec::new());
    for block in blocks {
        match block["type"].as_str() {
            Some("text") => said.push_str(block["text"].as_str().unwrap_or_default()),
            Some("tool_use") => {
                let function = json!({"name": block["name"], "arguments": block["input"].to_string()});
                calls.push(json!({"id": block["id"], "type": "function", "function": function}));
            }
            Some("thinking" | "redacted_thinking") => {}
            kind => return Err(format!("a block of type {:?} in a turn of the model's", kind.unwrap_or("?"))),
        }
    }
    let mut message = json!({"role": "assistant", "content": if said.is_empty() { Value::Null } else { said.into() }});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    Ok(message)
}

fn tools(request: &Request, out: &mut Value) -> Result<(), Problem> {
    let body = request.body();
    if let Some(tools) = body.parse::<Vec<Value>>("tools")? {
        let tool = |tool: &Value| {
            let own = tool.get("type").is_none_or(|kind| kind == "custom") && tool["name"].is_string();
            if !own {
                return Err(no_counterpart("tools", "a tool of the provider's own"));
            }
            let mut function = json!({"name": tool["name"], "parameters": tool["input_schema"]});
            if let Some(description) = tool.get("description") {
                function["description"] = description.clone();
            }
            Ok(json!({"type": "function", "function": function}))
        };
        out["tools"] = tools.iter().map(tool).collect::<Result<Vec<_>, Problem>>()?.into();
    }
    if let Some(choice) = body.parse::<Value>("tool_choice")? {
        out["tool_choice"] = match choice["type"].as_str() {
            Some("auto") => "auto".into(),
            Some("none") => "none".into(),
            Some("any") => "required".into(),
            Some("tool") => json!({"type": "function", "function": {"name": choice["name"]}}),
            _ => return Err(no_counterpart("tool_choice", "this choice")),
        };
        if choice["disable_parallel_tool_use"] == true {
            out["parallel_tool_calls"] = false.into();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::dialect::Dialect;

    fn translated(body: &Value) -> Result<Value, Problem> {
        let request = Request::read(Dialect::Anthropic, Bytes::from(body.to_string()))?;
        super::request(&request, Upstream { dialect: Dialect::Openai, model: "gpt", max_output: 99, output_field: "max_completion_tokens" })
    }

    #[test]
    fn a_whole_conversation_is_translated() {
        let body = json!({
            "model": "m", "max_tokens": 10, "stream": true, "stop_sequences": ["END"], "thinking": {"type": "disabled"},
            "metadata": {"user_id": "u"}, "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "look"},
                                              {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "I call"},
                                                   {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "one"}, {"type": "text", "text": "and?"}]},
            ],
            "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true},
        });
        assert_eq!(
            translated(&body).unwrap(),
            json!({
                "model": "gpt", "max_completion_tokens": 10, "stream": true, "stream_options": {"include_usage": true}, "stop": ["END"], "user": "u",
                "messages": [
                    {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
                    {"role": "user", "content": [{"type": "text", "text": "look"},
                                                  {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
                    {"role": "assistant", "content": "I call", "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]},
                    {"role": "tool", "tool_call_id": "a", "content": "one"},
                    {"role": "user", "content": [{"type": "text", "text": "and?"}]},
                ],
                "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
                "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": false,
            })
        );
    }

    #[test]
    fn what_has_no_counterpart_is_refused() {
        for (field, value) in [
            ("top_k", json!(5)),
            ("thinking", json!({"type": "enabled", "budget_tokens": 1024})),
            ("tools", json!([{"type": "web_search_20250305", "name": "web_search"}])),
            ("something_new", json!(1)),
            ("messages", json!([{"role": "user", "content": [{"type": "document"}]}])),
            ("messages", json!([{"role": "system", "content": "x"}])),
            ("system", json!(7)),
        ] {
            let mut body = json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]});
            body[field] = value;
            let problem = translated(&body).unwrap_err();
            assert_eq!((problem.fault, problem.param.as_deref()), (Fault::Invalid, Some(field)), "{}", problem.message);
        }
    }
}
