//! An upstream that answers at once, on a thread of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Events of a stream, and the time between two.
const EVENTS: u32 = 60;
const PACE: Duration = Duration::from_millis(50);
/// Time that a stream takes.
pub const LASTS: Duration = PACE.saturating_mul(EVENTS);

/// It lives as long as the process.
pub struct Upstream {
    pub address: SocketAddr,
}

impl Upstream {
    /// Listens at this port of the loopback interface; 0 chooses one.
    pub fn start(port: u16) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("upstream".into()).spawn(move || runtime.block_on(accept(listener)))?;
        Ok(Self { address })
    }
}

async fn accept(listener: std::net::TcpListener) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        // A connection that ends is the caller's matter.
        tokio::spawn(async move { serve(stream).await.ok() });
    }
}

async fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let answer = answer();
    let mut buffer = Vec::with_capacity(8192);
    loop {
        let Some(head) = super::load::head(&mut stream, &mut buffer).await? else { return Ok(()) };
        while buffer.len() < head.length + head.body {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        let body = &buffer[head.length..head.length + head.body];
        let streamed = is_streamed(body);
        buffer.drain(..head.length + head.body);
        if !streamed {
            stream.write_all(&answer).await?;
            continue;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").await?;
        for number in 0..EVENTS {
            stream.write_all(&chunk(&event(number))).await?;
            tokio::time::sleep(PACE).await;
        }
        let last = [chunk(&usage()), chunk("data: [DONE]\n\n"), b"0\r\n\r\n".to_vec()].concat();
        stream.write_all(&last).await?;
    }
}

fn is_streamed(body: &[u8]) -> bool {
    body.windows(13).any(|bytes| bytes == b"\"stream\":true")
}

fn answer() -> Vec<u8> {
    let body = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"Eight short words that nobody will ever read."},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":9,"total_tokens":21}}"#;
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn event(number: u32) -> String {
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word{number}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

fn usage() -> String {
    "data: {\"id\":\"c\",\"model\":\"bench\",\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":50,\"total_tokens\":62}}\n\n".into()
}

/// What a whole stream is.
pub fn whole_stream() -> String {
    (0..EVENTS).map(event).chain([usage(), "data: [DONE]\n\n".into()]).collect()
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}
