//! A request for a completion, of which the gateway reads what it must know and leaves all else as it came.

use bytes::Bytes;
use serde_json::{Value, json};

use super::object::{Change, Object};
use super::problem::{Fault, Problem};
use super::{Dialect, to_anthropic, to_openai};

/// Most answers that one request may ask for.
const MOST_ANSWERS: u64 = 128;
/// Longest name of a model, in bytes.
const LONGEST_MODEL: usize = 256;

/// A request for a completion.
#[derive(Clone, Debug)]
pub struct Request {
    /// How it is written.
    pub dialect: Dialect,
    /// The model, by the name that the gateway knows it by.
    pub model: String,
    /// The answer is wanted as a stream.
    pub stream: bool,
    /// The stream is to say what it took. In the Anthropic dialect it always does.
    pub wants_usage: bool,
    /// Most tokens of one answer, where the request says.
    pub max_output: Option<u64>,
    /// How many answers are wanted.
    pub answers: u64,
    body: Object,
}

/// What the upstream's body needs that the request does not say.
#[derive(Clone, Copy, Debug)]
pub struct Upstream<'a> {
    /// What it speaks.
    pub dialect: Dialect,
    /// Its own name for the model.
    pub model: &'a str,
    /// Most tokens of one answer; put in where the request does not say, so that what was reserved holds.
    pub max_output: u64,
    /// The field that limits output, of the OpenAI dialect: `max_tokens` or `max_completion_tokens`.
    pub output_field: &'static str,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// It is no JSON object, or what the gateway must know is not there or is something else.
    pub fn read(dialect: Dialect, body: Bytes) -> Result<Self, Problem> {
        let body = Object::read(body)?;
        let model: String = body.parse("model")?.ok_or_else(|| missing("model"))?;
        if model.is_empty() || model.len() > LONGEST_MODEL {
            return Err(Problem::new(Fault::Invalid, format!("a model's name has 1 to {LONGEST_MODEL} bytes")).about("model"));
        }
        if !body.get("messages").is_some_and(|json| json.starts_with('[')) {
            return Err(missing("messages"));
        }
        let limit = |field| -> Result<Option<u64>, Problem> {
            let tokens: Option<u64> = body.parse(field)?;
            match tokens {
                Some(0) => Err(Problem::new(Fault::Invalid, "an answer has at least one token").about(field)),
                tokens => Ok(tokens),
            }
        };
        // Where both stand there, an upstream may take either.
        let max_output = match dialect {
            Dialect::Openai => limit("max_completion_tokens")?.max(limit("max_tokens")?),
            Dialect::Anthropic => Some(limit("max_tokens")?.ok_or_else(|| missing("max_tokens"))?),
        };
        let answers = match dialect {
            Dialect::Openai => body.parse("n")?.unwrap_or(1),
            Dialect::Anthropic => 1,
        };
        if !(1..=MOST_ANSWERS).contains(&answers) {
            return Err(Problem::new(Fault::Invalid, format!("n is 1 to {MOST_ANSWERS}")).about("n"));
        }
        let options: Option<Value> = if dialect == Dialect::Openai { body.parse("stream_options")? } else { None };
        let wants_usage = dialect == Dialect::Anthropic || options.is_some_and(|options| options["include_usage"] == true);
        let stream = body.parse("stream")?.unwrap_or(false);
        Ok(Self { dialect, model, stream, wants_usage, max_output, answers, body })
    }

    /// The request as it came.
    pub const fn body(&self) -> &Object {
        &self.body
    }

    /// What the model will read, for counting.
    ///
    /// # Errors
    /// The conversation cannot be read.
    pub fn prompt(&self) -> Result<Prompt, Problem> {
        let mut prompt = Prompt::default();
        for field in ["system", "messages"] {
            if let Some(value) = self.body.parse::<Value>(field)? {
                prompt.add(value);
            }
        }
        // Tools are read as they are written.
        let written = ["tools", "functions", "response_format"].into_iter().filter_map(|field| self.body.get(field));
        prompt.texts.extend(written.map(str::to_owned));
        Ok(prompt)
    }

    /// The body for an upstream. In its own dialect all that is not named here stays the same bytes.
    ///
    /// # Errors
    /// The other dialect has no counterpart for something that was asked for.
    pub fn for_upstream(&self, to: Upstream<'_>) -> Result<Bytes, Problem> {
        match (self.dialect, to.dialect) {
            (Dialect::Openai, Dialect::Openai) => self.openai_body(to),
            (Dialect::Anthropic, Dialect::Anthropic) => Ok(self.body.with(&[Change::Set("model", json!(to.model).to_string())])),
            (Dialect::Openai, Dialect::Anthropic) => to_anthropic::request(self, to).map(|body| Bytes::from(body.to_string())),
            (Dialect::Anthropic, Dialect::Openai) => to_openai::request(self, to).map(|body| Bytes::from(body.to_string())),
        }
    }

    fn openai_body(&self, to: Upstream<'_>) -> Result<Bytes, Problem> {
        let mut changes = vec![Change::Set("model", json!(to.model).to_string())];
        if self.stream {
            // Usage is always asked for: it is what is settled.
            let mut options: serde_json::Map<String, Value> = self.body.parse("stream_options")?.unwrap_or_default();
            options.insert("include_usage".into(), true.into());
            changes.push(Change::Set("stream_options", Value::Object(options).to_string()));
        }
        changes.extend(self.output_limit(to));
        if to.output_field == "max_completion_tokens" {
            // It says the same, and newer models refuse it.
            changes.push(Change::Remove("max_tokens"));
        }
        Ok(self.body.with(&changes))
    }
}

impl Request {
    /// What was reserved must hold, so the limit of output stands in the field that the upstream knows.
    fn output_limit(&self, to: Upstream<'_>) -> Option<Change> {
        let [older, newer] = ["max_tokens", "max_completion_tokens"].map(|field| self.body.get(field));
        let set = |json: String| Some(Change::Set(to.output_field, json));
        match (older, newer, to.output_field) {
            (None, None, _) => set(self.max_output.unwrap_or(to.max_output).to_string()),
            (Some(_), _, "max_tokens") | (_, Some(_), "max_completion_tokens") => None,
            (older, newer, _) => set(older.or(newer).unwrap_or_default().to_owned()),
        }
    }
}

fn missing(field: &'static str) -> Problem {
    Problem::new(Fault::Invalid, format!("there is no {field}")).about(field)
}

/// What a model reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Texts of turns, system prompts and tools.
    pub texts: Vec<String>,
    /// How many pictures, recordings and documents there are.
    pub others: u64,
}

impl Prompt {
    fn add(&mut self, value: Value) {
        match value {
            Value::String(text) => self.texts.push(text),
            Value::Array(values) => values.into_iter().for_each(|value| self.add(value)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    match name.as_str() {
                        "image_url" | "source" | "input_audio" | "file" => self.others += 1,
                        "type" | "id" | "tool_use_id" | "tool_call_id" | "cache_control" => {}
                        "input" => self.texts.push(value.to_string()),
                        _ => self.add(value),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dialect: Dialect, body: &str) -> Result<Request, Problem> {
        Request::read(dialect, Bytes::copy_from_slice(body.as_bytes()))
    }

    const UPSTREAM: Upstream<'static> = Upstream { dialect: Dialect::Openai, model: "theirs", max_output: 99, output_field: "max_tokens" };

    #[test]
    fn what_passes_through_stays_the_same_bytes() {
        let request =
            read(Dialect::Openai, r#"{"model":"ours","messages":[ {"role":"user","content":"h\u00e9"} ],"top_p":0.10,"new_thing":{}}"#);
        let body = request.unwrap().for_upstream(UPSTREAM).unwrap();
        let wanted = r#"{"model":"theirs","messages":[ {"role":"user","content":"h\u00e9"} ],"top_p":0.10,"new_thing":{},"max_tokens":99}"#;
        assert_eq!(&body[..], wanted.as_bytes());
    }

    #[test]
    fn a_stream_is_always_asked_for_usage() {
        let request =
            read(Dialect::Openai, r#"{"model":"m","messages":[],"stream":true,"max_completion_tokens":5,"stream_options":{"x":1}}"#)
                .unwrap();
        assert!(request.stream && !request.wants_usage);
        let body = request.for_upstream(UPSTREAM).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["stream_options"], json!({"x": 1, "include_usage": true}));
    }

    #[test]
    fn the_limit_of_output_stands_in_the_field_that_the_upstream_knows() {
        let sent = |written: &str, output_field| {
            let request = read(Dialect::Openai, &format!(r#"{{"model":"m","messages":[]{written}}}"#)).unwrap();
            let body = request.for_upstream(Upstream { output_field, ..UPSTREAM }).unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            (body["max_tokens"].as_u64(), body["max_completion_tokens"].as_u64())
        };
        let (older, newer) = (r#","max_tokens":5"#, r#","max_completion_tokens":7"#);
        assert_eq!(sent("", "max_tokens"), (Some(99), None));
        assert_eq!(sent("", "max_completion_tokens"), (None, Some(99)));
        assert_eq!(sent(older, "max_tokens"), (Some(5), None));
        assert_eq!(sent(older, "max_completion_tokens"), (None, Some(5)));
        assert_eq!(sent(newer, "max_tokens"), (Some(7), Some(7)));
        assert_eq!(sent(newer, "max_completion_tokens"), (None, Some(7)));
    }

    #[test]
    fn what_the_gateway_must_know_is_checked() {
        for (body, field) in [
            (r#"{"messages":[]}"#, "model"),
            (r#"{"model":"","messages":[]}"#, "model"),
            (r#"{"model":7,"messages":[]}"#, "model"),
            (r#"{"model":"m"}"#, "messages"),
            (r#"{"model":"m","messages":"x"}"#, "messages"),
            (r#"{"model":"m","messages":[],"max_tokens":0}"#, "max_tokens"),
            (r#"{"model":"m","messages":[],"max_tokens":-1}"#, "max_tokens"),
            (r#"{"model":"m","messages":[],"max_completion_tokens":1e9}"#, "max_completion_tokens"),
            (r#"{"model":"m","messages":[],"n":0}"#, "n"),
            (r#"{"model":"m","messages":[],"n":129}"#, "n"),
            (r#"{"model":"m","messages":[],"stream":"yes"}"#, "stream"),
        ] {
            let problem = read(Dialect::Openai, body).unwrap_err();
            assert_eq!((problem.fault, problem.param.as_deref()), (Fault::Invalid, Some(field)), "{body}");
        }
        assert_eq!(read(Dialect::Anthropic, r#"{"model":"m","messages":[]}"#).unwrap_err().param.as_deref(), Some("max_tokens"));
    }

    #[test]
    fn of_two_limits_the_greater_is_reserved() {
        let request = read(Dialect::Openai, r#"{"model":"m","messages":[],"max_tokens":5,"max_completion_tokens":9}"#).unwrap();
        assert_eq!(request.max_output, Some(9));
    }

    #[test]
    fn the_prompt_is_what_the_model_reads() {
        let body = json!({"model": "m", "messages": [
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        ]});
        let prompt = read(Dialect::Openai, &body.to_string()).unwrap().prompt().unwrap();
        assert!(prompt.texts.contains(&"look".to_owned()) && prompt.texts.contains(&"{}".to_owned()), "{prompt:?}");
        assert!(prompt.others == 1 && !prompt.texts.concat().contains("AAAA"), "{prompt:?}");
    }
}
