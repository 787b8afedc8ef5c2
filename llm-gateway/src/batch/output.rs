//! The files that a batch writes: a line for each line of its input, in the order in which they end.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::new_id;

/// A file that lines are added to.
pub struct Output {
    file: std::fs::File,
}

/// What stands in a file already.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Names of its lines.
    pub ids: BTreeSet<String>,
    /// Tokens that its answers took, in and out.
    pub tokens: (u64, u64),
}

#[derive(Deserialize)]
struct Line {
    custom_id: String,
    response: Option<Value>,
}

impl Output {
    /// Opens a file, makes it where there is none, and reads what stands there. A last line that the end of a process has torn is taken away:
    /// its request is asked again.
    ///
    /// # Errors
    /// The disk fails.
    pub fn open(path: &Path) -> io::Result<(Self, Written)> {
        let mut file = std::fs::File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        let (mut written, mut good, mut reader) = (Written::default(), 0u64, BufReader::new(&mut file));
        loop {
            let mut bytes = Vec::new();
            let length = reader.read_until(b'\n', &mut bytes)?;
            let line = Some(&bytes).filter(|bytes| bytes.ends_with(b"\n")).and_then(|bytes| serde_json::from_slice::<Line>(bytes).ok());
            let Some(line) = line else { break };
            good += length as u64;
            written.ids.insert(line.custom_id);
            let tokens = |field: &str| line.response.as_ref().and_then(|response| response["body"]["usage"][field].as_u64()).unwrap_or(0);
            written.tokens.0 += tokens("prompt_tokens");
            written.tokens.1 += tokens("completion_tokens");
        }
        drop(reader);
        file.set_len(good)?;
        file.seek(SeekFrom::End(0))?;
        Ok((Self { file }, written))
    }

    /// Adds a line: an answer, or an error that came as one.
    ///
    /// # Errors
    /// The disk fails.
    pub fn response(&mut self, custom_id: &str, status: u16, request_id: &str, body: &Value) -> io::Result<()> {
        let response = json!({"status_code": status, "request_id": request_id, "body": body});
        self.line(&json!({"id": new_id("batch_req_"), "custom_id": custom_id, "response": response, "error": null}))
    }

    /// Adds a line that was not asked.
    ///
    /// # Errors
    /// The disk fails.
    pub fn error(&mut self, custom_id: &str, code: &str, message: &str) -> io::Result<()> {
        let error = json!({"code": code, "message": message});
        self.line(&json!({"id": new_id("batch_req_"), "custom_id": custom_id, "response": null, "error": error}))
    }

    fn line(&mut self, line: &Value) -> io::Result<()> {
        // One write a line: a kill leaves whole lines, and a torn one at most.
        self.file.write_all(format!("{line}\n").as_bytes())
    }

    /// Everything is on the disk.
    ///
    /// # Errors
    /// It is not.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let (mut output, written) = Output::open(&path).unwrap();
        assert_eq!(written, Written::default());
        output.response("a", 200, "r", &json!({"usage": {"prompt_tokens": 7, "completion_tokens": 3}})).unwrap();
        output.error("b", "batch_expired", "late").unwrap();
        drop(output);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], b"{\"custom_id\": \"c\", \"resp"].concat()).unwrap();
        let (mut output, written) = Output::open(&path).unwrap();
        assert_eq!(written, Written { ids: ["a".to_owned(), "b".to_owned()].into(), tokens: (7, 3) });
        output.error("c", "x", "y").unwrap();
        assert_eq!(Output::open(&path).unwrap().1.ids.len(), 3);
    }
}
