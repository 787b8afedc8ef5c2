//! An OpenAI request as an Anthropic one.
//!
//! What Anthropic has no counterpart for is refused, never left out in silence; left out is only what does not bear on the answer.

use serde_json::{Map, Value, json};

use super::problem::{Fault, Problem};
use super::request::{Request, Upstream};

/// Fields that do not bear on what the model says, or are hints that a provider may pass over.
const LEFT_OUT: [&str; 10] = [
    "metadata",
    "n",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "seed",
    "service_tier",
    "store",
    "stream_options",
    "user",
];
/// Fields that are translated.
const TRANSLATED: [&str; 11] = [
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "model",
    "parallel_tool_calls",
    "stop",
    "stream",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
];

/// Translates a request.
///
/// # Errors
/// Something in it has no counterpart.
pub fn request(request: &Request, to: Upstream<'_>) -> Result<Value, Problem> {
    refuse_what_is_foreign(request)?;
    let body = request.body();
    let mut out = json!({"model": to.model, "max_tokens": request.max_output.unwrap_or(to.max_output)});
    let messages: Vec<Value> = body.parse("messages")?.unwrap_or_default();
    let (system, turns) = conversation(&messages)?;
    out["messages"] = turns.into();
    if !system.is_empty() {
        out["system"] = system.into();
    }
    if request.stream {
        out["stream"] = true.into();
    }
    if let Some(temperature) = body.parse::<f64>("temperature")? {
        if temperature > 1.0 {
            return Err(no_counterpart("temperature", "a temperature above 1"));
        }
        out["temperature"] = body.parse("temperature")?.unwrap_or_default();
    }
    if let Some(top_p) = body.parse::<Value>("top_p")? {
        out["top_p"] = top_p;
    }
    match body.parse::<Value>("stop")? {
        Some(Value::String(stop)) => out["stop_sequences"] = json!([stop]),
        Some(stops) => out["stop_sequences"] = stops,
        None => {}
    }
    if let Some(user) = body.parse::<String>("user")? {
        out["metadata"] = json!({"user_id": user});
    }
    tools(request, &mut out)?;
    Ok(out)
}

fn no_counterpart(param: &str, what: &str) -> Problem {
    Problem::new(Fault::Invalid, format!("{what} has no counterpart at the model's provider (Anthropic)")).about(param)
}

fn refuse_what_is_foreign(request: &Request) -> Result<(), Problem> {
    let body = request.body();
    if request.answers > 1 {
        return Err(no_counterpart("n", "more than one answer"));
    }
    for field in body.names().filter(|field| !LEFT_OUT.contains(field) && !TRANSLATED.contains(field)) {
        let value: Option<Value> = body.parse(field)?;
        let says_nothing = match (field, &value) {
            (_, None) => true,
            ("frequency_penalty" | "presence_penalty", Some(value)) => value.as_f64() == Some(0.0),
            ("logprobs", Some(value)) => value == false,
            ("response_format", Some(value)) => value["type"] == "text",
            ("modalities", Some(value)) => *value == json!(["text"]),
            _ => false,
        };
        if !says_nothing {
            return Err(no_counterpart(field, &format!("{field:?}")));
        }
    }
    Ok(())
}

/// System blocks, and turns that alternate.
fn conversation(messages: &[Value]) -> Result<(Vec<Value>, Vec<Value>), Problem> {
    let (mut system, mut turns): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for (index, message) in messages.iter().enumerate() {
        let wrong = |what: &str| Problem::new(Fault::Invalid, format!("messages[{index}]: {what}")).about("messages");
        let content = &message["content"];
        let (role, blocks) = match message["role"].as_str() {
            Some("system" | "developer") => {
                system.extend(blocks(content).map_err(|what| wrong(&what))?);
                continue;
            }
            Some("user") => ("user", blocks(content).map_err(|what| wrong(&what))?),
            Some("assistant") => ("assistant", assistant(message).map_err(|what| wrong(&what))?),
            Some("tool") => {
                let id = message["tool_call_id"].as_str().ok_or_else(|| wrong("there is no tool_call_id"))?;
                let content = blocks(content).map_err(|what| wrong(&what))?;
                ("user", vec![json!({"type": "tool_result", "tool_use_id": id, "content": content})])
            }
            _ => return Err(wrong("the role is none of system, developer, user, assistant and tool")),
        };
        // All results of one turn's tools are one turn's content.
        match turns.last_mut() {
            Some(last) if last["role"] == role => {
                last["content"].as_array_mut().into_iter().for_each(|all| all.extend(blocks.iter().cloned()))
            }
            _ => turns.push(json!({"role": role, "content": blocks})),
        }
    }
    Ok((system, turns))
}

fn assistant(message: &Value) -> Result<Vec<Value>, String> {
    let mut blocks = if message["content"].is_null() { Vec::new() } else { blocks(&message["content"])? };
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let (Some(id), Some(name)) = (call["id"].as_str(), call["function"]["name"].as_str()) else {
            return Err("a tool call without id or name".into());
        };
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        let input: Map<String, Value> = match arguments.trim() {
            "" => Map::new(),
            text => serde_json::from_str(text).map_err(|_| format!("the arguments of {id:?} are no JSON object"))?,
        };
        blocks.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
    }
    Ok(blocks)
}

/// Content as blocks. Empty texts are left out: Anthropic refuses them.
fn blocks(content: &Value) -> Result<Vec<Value>, String> {
    match content {
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        Value::String(text) => Ok(vec![json!({"type": "text", "text": text})]),
        Value::Array(parts) => parts.iter().map(block).filter(|block| !matches!(block, Ok(block) if block["text"] == "")).collect(),
        _ => Err("the content is neither text nor a list of parts".into()),
    }
}

fn block(part: &Value) -> Result<Value, String> {
    let mut block = match part["type"].as_str() {
        Some("text") => json!({"type": "text", "text": part["text"]}),
        Some("refusal") => json!({"type": "text", "text": part["refusal"]}),
        Some("image_url") => {
            let url = part["image_url"]["url"].as_str().unwrap_or_default();
            let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
            let source = match inline {
                Some((media_type, data)) => json!({"type": "base64", "media_type": media_type, "data": data}),
                None if url.starts_with("https://") || url.starts_with("http://") => json!({"type": "url", "url": url}),
                None => return Err("an image's URL is neither http(s) nor data in base64".into()),
            };
            json!({"type": "image", "source": source})
        }
        kind => return Err(format!("content of type {:?} has no counterpart at the model's provider (Anthropic)", kind.unwrap_or("?"))),
    };
    // Written by callers who know where the request goes; without it nothing is cached there.
    if let Some(mark) = part.get("cache_control") {
        block["cache_control"] = mark.clone();
    }
    Ok(block)
}

fn tools(request: &Request, out: &mut Value) -> Result<(), Problem> {
    let body = request.body();
    if let Some(tools) = body.parse::<Vec<Value>>("tools")? {
        let tool = |tool: &Value| {
            let function = &tool["function"];
            let name = function["name"].as_str().filter(|_| tool["type"] == "function");
            let name = name.ok_or_else(|| no_counterpart("tools", "a tool that is no function"))?;
            let schema = function.get("parameters").cloned().unwrap_or_else(|| json!({"type": "object", "properties": {}}));
            let mut translated = json!({"name": name, "input_schema": schema});
            if let Some(description) = function.get("description") {
                translated["description"] = description.clone();
            }
            Ok(translated)
        };
        out["tools"] = tools.iter().map(tool).collect::<Result<Vec<_>, Problem>>()?.into();
    }
    let mut choice = match body.parse::<Value>("tool_choice")? {
        None => None,
        Some(Value::String(word)) => Some(match word.as_str() {
            "auto" => json!({"type": "auto"}),
            "none" => json!({"type": "none"}),
            "required" => json!({"type": "any"}),
            _ => return Err(no_counterpart("tool_choice", &format!("{word:?}"))),
        }),
        Some(named) => match named["function"]["name"].as_str() {
            Some(name) => Some(json!({"type": "tool", "name": name})),
            None => return Err(no_counterpart("tool_choice", "a choice that is no function")),
        },
    };
    if body.parse("parallel_tool_calls")? == Some(false) && out.get("tools").is_some() {
        choice.get_or_insert_with(|| json!({"type": "auto"}))["disable_parallel_tool_use"] = true.into();
    }
    if let Some(choice) = choice {
        out["tool_choice"] = choice;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::dialect::Dialect;

    fn translated(body: &Value) -> Result<Value, Problem> {
        let request = Request::read(Dialect::Openai, Bytes::from(body.to_string()))?;
        super::request(&request, Upstream { dialect: Dialect::Anthropic, model: "claude", max_output: 99, output_field: "max_tokens" })
    }

    #[test]
    fn a_whole_conversation_is_translated() {
        let body = json!({
            "model": "m", "stream": true, "temperature": 0.5, "stop": "END", "user": "u", "seed": 1, "parallel_tool_calls": false,
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
                                              {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
                    {"id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}]},
                {"role": "tool", "tool_call_id": "a", "content": "one"},
                {"role": "tool", "tool_call_id": "b", "content": "two"},
                {"role": "user", "content": "and?"},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
            "tool_choice": "required",
        });
        let text = |text: &str| json!({"type": "text", "text": text});
        let result = |id: &str, said: &str| json!({"type": "tool_result", "tool_use_id": id, "content": [text(said)]});
        assert_eq!(
            translated(&body).unwrap(),
            json!({
                "model": "claude", "max_tokens": 99, "stream": true, "temperature": 0.5, "stop_sequences": ["END"],
                "metadata": {"user_id": "u"}, "system": [text("be brief")],
                "messages": [
                    {"role": "user", "content": [
                        {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]},
                    {"role": "assistant", "content": [
                        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
                        {"type": "tool_use", "id": "b", "name": "g", "input": {}}]},
                    {"role": "user", "content": [result("a", "one"), result("b", "two"), text("and?")]},
                ],
                "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
                "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
            })
        );
    }

    #[test]
    fn what_has_no_counterpart_is_refused() {
        for (field, value) in [
            ("n", json!(2)),
            ("temperature", json!(1.5)),
            ("logprobs", json!(true)),
            ("response_format", json!({"type": "json_object"})),
            ("frequency_penalty", json!(0.5)),
            ("reasoning_effort", json!("high")),
            ("something_new", json!(1)),
            ("tools", json!([{"type": "web_search"}])),
            ("tool_choice", json!("sometimes")),
        ] {
            let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
            body[field] = value;
            let problem = translated(&body).unwrap_err();
            assert_eq!((problem.fault, problem.param.as_deref()), (Fault::Invalid, Some(field)), "{}", problem.message);
        }
        let said_nothing = json!({"model": "m", "messages": [], "frequency_penalty": 0, "logprobs": false, "response_format": {"type": "text"}, "logit_bias": null});
        assert!(translated(&said_nothing).is_ok());
    }

    #[test]
    fn messages_that_are_none_are_named() {
        for message in [
            json!({"role": "narrator", "content": "x"}),
            json!({"role": "user", "content": 7}),
            json!({"role": "user", "content": [{"type": "input_audio"}]}),
            json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}),
            json!({"role": "tool", "content": "x"}),
            json!({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "[1"}}]}),
        ] {
            let problem = translated(&json!({"model": "m", "messages": [{"role": "user", "content": "x"}, message]})).unwrap_err();
            assert!(problem.message.starts_with("messages[1]: "), "{}", problem.message);
        }
    }
}
