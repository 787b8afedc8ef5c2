//! A provider that does as it is told: answers, paces, stalls, cuts, lies. Real bytes over real sockets.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub head: String,
    pub body: Value,
    /// How many came before it.
    pub number: usize,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// What to do, in order.
#[derive(Clone, Debug)]
pub enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    /// Nothing more, and the connection stays.
    Stall,
    /// The connection ends, whatever was promised.
    Cut,
}

pub type Play = Vec<Step>;

/// An answer with a body.
pub fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Play {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n", body.len());
    vec![Step::Send([head.as_bytes(), body.as_bytes()].concat())]
}

pub fn ok(body: &Value) -> Play {
    answer(200, &[], &body.to_string())
}

pub fn error(status: u16, headers: &[(&str, &str)], message: &str) -> Play {
    answer(status, headers, &json!({"error": {"message": message, "type": "x", "code": null}}).to_string())
}

/// A completion of these words.
pub fn completion(text: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "theirs",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    })
}

pub fn message(text: &str) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "theirs", "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 4, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 0, "output_tokens": 3},
    })
}

pub fn delta(text: &str) -> String {
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "model": "theirs", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]});
    format!("data: {chunk}\n\n")
}

pub fn finish() -> String {
    let finish = json!({"id": "c", "model": "theirs", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage =
        json!({"id": "c", "model": "theirs", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}});
    format!("data: {finish}\n\ndata: {usage}\n\ndata: [DONE]\n\n")
}

pub fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

/// The head of a stream.
pub fn stream_head() -> Step {
    Step::Send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec())
}

pub fn chunk(text: &str) -> Step {
    Step::Send(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes())
}

pub fn end() -> Step {
    Step::Send(b"0\r\n\r\n".to_vec())
}

/// A whole stream, event by event.
pub fn stream(events: &[String]) -> Play {
    [stream_head()].into_iter().chain(events.iter().map(|event| chunk(event))).chain([end()]).collect()
}

type Script = dyn Fn(&Asked) -> Play + Send + Sync;

/// A provider that runs.
#[derive(Clone)]
pub struct Upstream {
    pub port: u16,
    pub asked: Arc<Mutex<Vec<Asked>>>,
    /// Requests that are being answered.
    pub busy: Arc<AtomicUsize>,
    /// Requests whose caller hung up before the answer was whole.
    pub hung_up: Arc<AtomicUsize>,
    pub connections: Arc<AtomicUsize>,
}

impl Upstream {
    pub async fn start(script: impl Fn(&Asked) -> Play + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let new = Self { port, asked: Arc::default(), busy: Arc::default(), hung_up: Arc::default(), connections: Arc::default() };
        let (upstream, script): (Self, Arc<Script>) = (new.clone(), Arc::new(script));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (upstream, script) = (upstream.clone(), script.clone());
                upstream.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let _ = upstream.serve(stream, &*script).await;
                });
            }
        });
        new
    }

    pub fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    pub fn last(&self) -> Asked {
        self.asked.lock().unwrap().last().unwrap().clone()
    }

    async fn serve(&self, mut stream: TcpStream, script: &Script) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut buffer = Vec::new();
        loop {
            let head_ends = loop {
                if let Some(at) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                    break at + 4;
                }
                if stream.read_buf(&mut buffer).await? == 0 {
                    return Ok(());
                }
            };
            let head = String::from_utf8_lossy(&buffer[..head_ends]).into_owned();
            let length =
                head.lines().filter_map(|line| line.split_once(": ")).find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length: usize = length.map_or(0, |(_, length)| length.parse().unwrap());
            while buffer.len() < head_ends + length {
                if stream.read_buf(&mut buffer).await? == 0 {
                    return Ok(());
                }
            }
            let body = serde_json::from_slice(&buffer[head_ends..head_ends + length]).unwrap_or(Value::Null);
            buffer.drain(..head_ends + length);
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let asked = {
                let mut all = self.asked.lock().unwrap();
                let asked = Asked { path, head, body, number: all.len() };
                all.push(asked.clone());
                asked
            };
            self.busy.fetch_add(1, Ordering::SeqCst);
            let played = self.play(&mut stream, script(&asked)).await;
            self.busy.fetch_sub(1, Ordering::SeqCst);
            match played {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    self.hung_up.fetch_add(1, Ordering::SeqCst);
                    return Err(error);
                }
            }
        }
    }

    /// True where the connection goes on.
    async fn play(&self, stream: &mut TcpStream, play: Play) -> io::Result<bool> {
        for step in play {
            match step {
                Step::Send(bytes) => stream.write_all(&bytes).await?,
                Step::Cut => return Ok(false),
                Step::Pause(time) => tokio::select! {
                    () = tokio::time::sleep(time) => {}
                    gone = gone(stream) => return Err(gone),
                },
                Step::Stall => return Err(gone(stream).await),
            }
        }
        Ok(true)
    }
}

/// Waits for the caller to hang up.
async fn gone(stream: &TcpStream) -> io::Error {
    loop {
        let _ = stream.readable().await;
        let mut byte = [0];
        match stream.try_read(&mut byte) {
            Ok(0) => return io::ErrorKind::ConnectionReset.into(),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return error,
        }
    }
}
