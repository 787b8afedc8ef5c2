//! The lines of a batch.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::ENDPOINT;
use super::document::LineError;
use crate::dialect::{Dialect, Request};

/// Most lines of a batch.
const MOST_LINES: u64 = 50_000;
/// Longest line, in bytes.
const LONGEST_LINE: u64 = 32 << 20;
/// Longest `custom_id`, in bytes.
const LONGEST_ID: usize = 512;
/// Most errors that are told.
const MOST_ERRORS: usize = 100;

/// A line that can be asked.
#[derive(Clone, Debug)]
pub struct Line {
    /// The caller's name for it.
    pub custom_id: String,
    /// What it asks.
    pub request: Request,
}

#[derive(Deserialize)]
struct Written {
    custom_id: String,
    method: String,
    url: String,
    body: Value,
}

/// A file's lines, one after the other.
pub struct Lines {
    from: BufReader<std::fs::File>,
    number: u64,
}

impl Lines {
    /// Of this file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { from: BufReader::with_capacity(1 << 16, std::fs::File::open(path)?), number: 0 })
    }

    /// The next line that is not empty; what is wrong with it, where it cannot be asked.
    ///
    /// # Errors
    /// The disk fails.
    pub fn next_line(&mut self) -> io::Result<Option<Result<Line, LineError>>> {
        loop {
            let mut bytes = Vec::new();
            if (&mut self.from).take(LONGEST_LINE + 1).read_until(b'\n', &mut bytes)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if bytes.len() as u64 > LONGEST_LINE {
                return Ok(Some(Err(self.wrong("line_too_long", format!("a line has at most {LONGEST_LINE} bytes"), None))));
            }
            if !bytes.trim_ascii().is_empty() {
                return Ok(Some(self.line(bytes)));
            }
        }
    }

    fn line(&self, bytes: Vec<u8>) -> Result<Line, LineError> {
        let written: Written = serde_json::from_slice(&bytes)
            .map_err(|_| self.wrong("invalid_json_line", "the line is no JSON object with custom_id, method, url and body", None))?;
        if written.custom_id.is_empty() || written.custom_id.len() > LONGEST_ID {
            return Err(self.wrong("invalid_custom_id", format!("a custom_id has 1 to {LONGEST_ID} bytes"), Some("custom_id")));
        }
        if written.method != "POST" {
            return Err(self.wrong("invalid_method", "the method is POST", Some("method")));
        }
        if written.url != ENDPOINT {
            return Err(self.wrong("mismatched_url", format!("the url is the batch's endpoint, {ENDPOINT}"), Some("url")));
        }
        let request = Request::read(Dialect::Openai, Bytes::from(written.body.to_string()));
        let request = request.map_err(|problem| self.wrong("invalid_request", problem.message, Some("body")))?;
        if request.stream {
            return Err(self.wrong("invalid_request", "lines of a batch are not streamed", Some("body")));
        }
        Ok(Line { custom_id: written.custom_id, request })
    }

    fn wrong(&self, code: &str, message: impl Into<String>, param: Option<&str>) -> LineError {
        LineError { code: code.into(), message: message.into(), param: param.map(Into::into), line: Some(self.number) }
    }
}

/// Looks through all lines: how many there are, or what is wrong with them.
///
/// # Errors
/// The disk fails.
pub fn check(path: &Path) -> io::Result<Result<u64, Vec<LineError>>> {
    let (mut lines, mut ids, mut errors) = (Lines::open(path)?, BTreeSet::new(), Vec::new());
    while let Some(line) = lines.next_line()? {
        match line {
            Err(error) => errors.push(error),
            Ok(line) => {
                if !ids.insert(line.custom_id) {
                    errors.push(lines.wrong("duplicate_custom_id", "another line has the same custom_id", Some("custom_id")));
                }
            }
        }
        if ids.len() as u64 > MOST_LINES {
            errors.push(lines.wrong("too_many_tasks", format!("a batch has at most {MOST_LINES} lines"), None));
        }
        if errors.len() >= MOST_ERRORS || ids.len() as u64 > MOST_LINES {
            break;
        }
    }
    if ids.is_empty() && errors.is_empty() {
        errors.push(LineError { code: "empty_file".into(), message: "there is no line".into(), param: None, line: None });
    }
    Ok(if errors.is_empty() { Ok(ids.len() as u64) } else { Err(errors) })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;

    use super::*;

    fn checked(lines: &[String]) -> Result<u64, Vec<(Option<u64>, String)>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(lines.join("\n").as_bytes()).unwrap();
        check(file.path()).unwrap().map_err(|errors| errors.into_iter().map(|error| (error.line, error.code)).collect())
    }

    fn line(id: &str) -> Value {
        json!({"custom_id": id, "method": "POST", "url": ENDPOINT, "body": {"model": "m", "messages": []}})
    }

    #[test]
    fn lines_are_checked_before_any_is_asked() {
        assert_eq!(checked(&[line("a").to_string(), String::new(), line("b").to_string(), String::new()]), Ok(2));
        assert_eq!(checked(&[]), Err(vec![(None, "empty_file".into())]));
        let with = |field: &str, value: Value| {
            let mut line = line("x");
            line[field] = value;
            line.to_string()
        };
        let bad = [
            line("a").to_string(),
            line("a").to_string(),
            "{".into(),
            with("method", json!("GET")),
            with("url", json!("/v1/embeddings")),
            with("body", json!({"messages": []})),
            with("body", json!({"model": "m", "messages": [], "stream": true})),
            with("custom_id", json!("")),
        ];
        let codes = [
            "duplicate_custom_id",
            "invalid_json_line",
            "invalid_method",
            "mismatched_url",
            "invalid_request",
            "invalid_request",
            "invalid_custom_id",
        ];
        let wanted: Vec<_> = codes.iter().enumerate().map(|(at, code)| (Some(at as u64 + 2), (*code).to_owned())).collect();
        assert_eq!(checked(&bad), Err(wanted));
    }
}
