//! Files of questions and answers, a JSON document on each line: OpenAI's batch input and output, and a plain form that people can write.
//!
//! Every file may come from elsewhere, in any order, cut or with lines of something else: what cannot be used is counted and named.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::language_model::{Answer, NanoUsd, Question, Role, StopReason, TokenUsage, Unanswered};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Longest line, in bytes.
const MAX_LINE_BYTES: usize = 4 << 20;

/// Why a file of answers cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum LinesError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {bytes} bytes; at most {MAX_FILE_BYTES} are read", path.display())]
    Size { path: PathBuf, bytes: u64 },
}

impl UserError for LinesError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::BadInput
    }

    fn remedy(&self) -> Option<String> {
        Some("Answers are lines of JSON: an OpenAI batch results file, or rows {\"kernel\": NAME, \"answer\": TEXT}.".into())
    }
}

/// One line of a file of answers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Line {
    /// The answer to the question with this id.
    Answer(String, Result<Answer, Unanswered>),
    /// An answer about a kernel: to the question of this part, or the next one for a kernel.
    Row { kernel: String, part: Option<String>, text: String },
    /// It cannot be used: why.
    Odd(String),
}

/// Every line of the file at `path`, with its number from one; empty ones left out.
pub(super) fn read(path: &Path) -> Result<Vec<(usize, Line)>, LinesError> {
    let error = |source| LinesError::Io { path: path.into(), source };
    let file = File::open(path).map_err(error)?;
    let bytes = file.metadata().map_err(error)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(LinesError::Size { path: path.into(), bytes });
    }
    let mut reader = BufReader::new(file.take(MAX_FILE_BYTES));
    let (mut lines, mut raw, mut number) = (Vec::new(), Vec::new(), 0);
    loop {
        raw.clear();
        if reader.read_until(b'\n', &mut raw).map_err(error)? == 0 {
            return Ok(lines);
        }
        number += 1;
        match std::str::from_utf8(&raw).map(str::trim) {
            Ok("") => {}
            _ if raw.len() > MAX_LINE_BYTES => lines.push((number, Line::Odd(format!("{} bytes", raw.len())))),
            Ok(text) => lines.push((number, line(text))),
            Err(_) => lines.push((number, Line::Odd("not UTF-8".into()))),
        }
    }
}

/// OpenAI's batch output, as far as it is needed (platform.openai.com/docs/api-reference/batch/request-output).
#[derive(Deserialize)]
struct BatchOutput {
    custom_id: String,
    #[serde(default)]
    response: Option<BatchResponse>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct BatchResponse {
    status_code: u16,
    #[serde(default)]
    body: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    kernel: String,
    answer: String,
    #[serde(default)]
    question: Option<String>,
}

fn line(text: &str) -> Line {
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return Line::Odd(format!("not JSON: {error}")),
    };
    if value.get("custom_id").is_some() {
        return match serde_json::from_value::<BatchOutput>(value) {
            Ok(output) => Line::Answer(output.custom_id.clone(), answer(output)),
            Err(error) => Line::Odd(format!("no line of a batch's results: {error}")),
        };
    }
    match serde_json::from_value::<Row>(value) {
        Ok(Row { kernel, answer, question }) => Line::Row { kernel, part: question, text: answer },
        Err(error) => Line::Odd(format!("neither a line of a batch's results nor a recorded answer: {error}")),
    }
}

/// The answer in a line of a batch's results, or why there is none.
fn answer(output: BatchOutput) -> Result<Answer, Unanswered> {
    let refused = |what: String| Unanswered::Refused { what: what.chars().take(300).collect() };
    let Some(BatchResponse { status_code, body }) = output.response else {
        let error = output.error.map_or_else(|| "the line has no response".to_owned(), |error| error.to_string());
        return Err(refused(format!("the batch's line failed: {error}")));
    };
    if status_code != 200 {
        let message = body.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
        return Err(refused(format!("the batch's line failed with status {status_code}: {message}")));
    }
    let text = body.pointer("/choices/0/message/content").and_then(Value::as_str);
    let Some(text) = text else { return Err(refused("the batch's line holds no text".into())) };
    let count = |pointer: &str| body.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    Ok(Answer {
        text: text.to_owned(),
        stop: match body.pointer("/choices/0/finish_reason").and_then(Value::as_str) {
            Some("length") => StopReason::Length,
            Some("content_filter") => StopReason::Refusal,
            _ => StopReason::End,
        },
        model: body.get("model").and_then(Value::as_str).unwrap_or_default().to_owned(),
        usage: TokenUsage {
            input_tokens: count("/usage/prompt_tokens"),
            cached_input_tokens: count("/usage/prompt_tokens_details/cached_tokens"),
            output_tokens: count("/usage/completion_tokens"),
        },
        cost: NanoUsd::ZERO,
    })
}

/// A question as a line of OpenAI's batch input, with the end of the line.
pub(super) fn request(question: &Question) -> String {
    #[derive(Serialize)]
    struct Message<'a> {
        role: Role,
        content: &'a str,
    }
    let messages: Vec<Message<'_>> = question.turns.iter().map(|turn| Message { role: turn.role, content: &turn.content }).collect();
    let mut body = json!({"model": question.model, "messages": messages, "max_completion_tokens": question.max_output_tokens});
    if let (Some(temperature), Some(body)) = (question.temperature, body.as_object_mut()) {
        body.insert("temperature".into(), json!(temperature));
    }
    format!("{}\n", json!({"custom_id": question.id, "method": "POST", "url": "/v1/chat/completions", "body": body}))
}

/// Ids of the questions in a file of [requests](request); a torn line has none.
pub(super) fn ids(path: &Path) -> Result<BTreeSet<String>, LinesError> {
    let error = |source| LinesError::Io { path: path.into(), source };
    let bytes = std::fs::metadata(path).map_err(error)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(LinesError::Size { path: path.into(), bytes });
    }
    let text = std::fs::read(path).map_err(error)?;
    let id = |line: &[u8]| Some(serde_json::from_slice::<Value>(line).ok()?.get("custom_id")?.as_str()?.to_owned());
    Ok(text.split(|byte| *byte == b'\n').filter_map(id).collect())
}
