//! A job's events as they happen (server-sent events, WHATWG HTML 9.2).

use kernelopt_shared::api::{EventView, JobRow, Problem, SSE_EVENT, SSE_JOB, SSE_PROBLEM};
use kernelopt_shared::message::JobId;
use reqwest::{Method, Response};

use super::{Client, ClientError};

/// Greatest size of one frame, in bytes.
const MOST_FRAME: usize = 64 << 20;

/// One thing that a stream says.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// Something happened.
    Event(EventView),
    /// How far the job is.
    Job(JobRow),
    /// The stream ends early.
    Problem(Problem),
    /// Something that this version does not know.
    Other,
}

/// An open stream.
pub struct Events {
    response: Response,
    server: reqwest::Url,
    lines: Lines,
    frame: Draft,
}

impl Client {
    /// The events of a job after number `after`.
    pub async fn events(&self, id: &JobId, after: u64) -> Result<Events, ClientError> {
        let mut url = self.url(&["jobs", id.as_str(), "events"]);
        url.query_pairs_mut().append_pair("after", &after.to_string());
        let response = self.send(self.request(Method::GET, url)).await?;
        Ok(Events { response, server: self.server.clone(), lines: Lines::default(), frame: Draft::default() })
    }
}

impl Events {
    /// The next frame; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Frame>, ClientError> {
        let strange = |server: &reqwest::Url, what: String| ClientError::Strange { server: server.to_string(), what };
        loop {
            while let Some(line) = self.lines.next() {
                if let Some(frame) = self.frame.take(&line) {
                    return frame.map(Some).map_err(|e| strange(&self.server, format!("an event does not decode: {e}")));
                }
            }
            if self.lines.held() + self.frame.data.len() > MOST_FRAME {
                return Err(strange(&self.server, format!("an event of more than {MOST_FRAME} bytes")));
            }
            match self.response.chunk().await.map_err(|source| ClientError::unreachable(&self.server, source))? {
                Some(piece) => self.lines.add(&piece),
                None => return Ok(None),
            }
        }
    }
}

/// Cuts bytes into lines.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Up to where there is no line end.
    seen: usize,
}

impl Lines {
    fn add(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.start);
        (self.start, self.seen) = (0, self.seen - self.start);
        self.bytes.extend_from_slice(piece);
    }

    const fn held(&self) -> usize {
        self.bytes.len() - self.start
    }

    fn next(&mut self) -> Option<String> {
        let Some(end) = self.bytes[self.seen..].iter().position(|byte| *byte == b'\n').map(|at| self.seen + at) else {
            self.seen = self.bytes.len();
            return None;
        };
        let line = String::from_utf8_lossy(&self.bytes[self.start..end]).trim_end_matches('\r').to_owned();
        (self.start, self.seen) = (end + 1, end + 1);
        Some(line)
    }
}

/// A frame whose lines are still coming.
#[derive(Default)]
struct Draft {
    name: String,
    data: String,
}

impl Draft {
    /// Takes a line; an empty one ends the frame.
    fn take(&mut self, line: &str) -> Option<Result<Frame, serde_json::Error>> {
        if line.is_empty() {
            let Self { name, data } = std::mem::take(self);
            return (!data.is_empty()).then(|| decode(&name, &data));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = value.to_owned(),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // Comments and ids: the numbers are in the data too.
            _ => {}
        }
        None
    }
}

fn decode(name: &str, data: &str) -> Result<Frame, serde_json::Error> {
    match name {
        SSE_EVENT => serde_json::from_str(data).map(Frame::Event),
        SSE_JOB => serde_json::from_str(data).map(Frame::Job),
        SSE_PROBLEM => serde_json::from_str(data).map(Frame::Problem),
        _ => Ok(Frame::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(pieces: &[&[u8]]) -> Vec<Frame> {
        let (mut lines, mut draft, mut found) = (Lines::default(), Draft::default(), Vec::new());
        for piece in pieces {
            lines.add(piece);
            while let Some(line) = lines.next() {
                found.extend(draft.take(&line).map(Result::unwrap));
            }
        }
        found
    }

    #[test]
    fn a_stream_reads_the_same_however_it_is_cut() {
        let text = ": hello\r\n\r\nevent: event\nid: 1\ndata: {\"seq\": 1, \"job\": \"a\", \"active_ms\": 5,\ndata: \"kind\": \"é\", \"body\": {}}\n\nevent: news\ndata: x\n\n";
        let whole = frames(&[text.as_bytes()]);
        assert!(matches!(&whole[..], [Frame::Event(event), Frame::Other] if event.seq == 1 && event.kind == "é"), "{whole:?}");
        for cut in 0..text.len() {
            let (a, b) = text.as_bytes().split_at(cut);
            assert_eq!(frames(&[a, b]), whole, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(frames(&bytes), whole);
    }

    #[test]
    fn a_frame_without_its_end_is_none() {
        assert!(frames(&[b"event: event\ndata: {\"seq\": 1"]).is_empty());
    }
}
