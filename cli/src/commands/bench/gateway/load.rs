//! Requests, and how long they take. Bytes are written and read by hand: a client that does more would take the processor that is measured.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::upstream::{LASTS, whole_stream};

/// Connections that ask one request after the other when throughput is measured.
const AT_ONCE: usize = 32;

/// Somebody who can be asked.
#[derive(Clone)]
pub struct Target {
    address: SocketAddr,
    plain: Arc<[u8]>,
    streamed: Arc<[u8]>,
}

impl Target {
    /// The upstream itself.
    pub fn upstream(address: SocketAddr) -> Self {
        Self::at(address, "none")
    }

    /// A gateway, by one of its keys.
    pub fn at(address: SocketAddr, key: &str) -> Self {
        let request = |more: &str| -> Arc<[u8]> {
            let body = format!(
                "{{\"model\":\"bench\",\"messages\":[{{\"role\":\"user\",\"content\":\"Say eight short words that nobody will ever read.\"}}],\"max_tokens\":64{more}}}"
            );
            let head = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            (head + &body).into_bytes().into()
        };
        Self { address, plain: request(""), streamed: request(",\"stream\":true,\"stream_options\":{\"include_usage\":true}") }
    }

    /// One at `http://HOST:PORT`.
    pub fn parse(url: &str, key: Option<&str>) -> Option<Self> {
        let authority = url.strip_prefix("http://")?.trim_end_matches('/').trim_end_matches("/v1");
        let address = std::net::ToSocketAddrs::to_socket_addrs(authority).ok()?.next()?;
        Some(Self::at(address, key.unwrap_or("none")))
    }
}

/// The head of a message: its own length and that of its body; a body in chunks says 0.
pub struct Head {
    pub length: usize,
    pub body: usize,
    good: bool,
}

/// Reads until a head is in the buffer; `None` where the connection ended before.
pub async fn head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Head>> {
    let mut from = 0usize;
    loop {
        if let Some(at) = buffer[from..].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let length = from + at + 4;
            let text = String::from_utf8_lossy(&buffer[..length]).to_ascii_lowercase();
            let field = text.lines().find_map(|line| line.strip_prefix("content-length:"));
            let body = field.and_then(|value| value.trim().parse().ok()).unwrap_or(0);
            return Ok(Some(Head { length, body, good: text.starts_with("http/1.1 200") }));
        }
        from = buffer.len().saturating_sub(3);
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(target: &Target) -> io::Result<Self> {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096) })
    }

    async fn ask(&mut self, target: &Target) -> io::Result<()> {
        self.stream.write_all(&target.plain).await?;
        let head = head(&mut self.stream, &mut self.buffer).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        while self.buffer.len() < head.length + head.body {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        if !head.good {
            return Err(io::Error::other(String::from_utf8_lossy(&self.buffer).into_owned()));
        }
        self.buffer.drain(..head.length + head.body);
        Ok(())
    }
}

/// Both in turn, so many requests a second of each, begun by the clock and not by the last answer. Gives what each took.
pub async fn side_by_side(targets: [&Target; 2], warm_up: Duration, rate: u32, seconds: u64) -> io::Result<[Vec<Duration>; 2]> {
    let step = Duration::from_secs(1) / (2 * rate.max(1));
    let idle: [Arc<Mutex<Vec<Connection>>>; 2] = Default::default();
    let warm = (warm_up.as_secs_f64() / step.as_secs_f64()) as usize;
    let count = (seconds * 2 * u64::from(rate)) as usize;
    let (began, mut asked) = (Instant::now(), Vec::with_capacity(warm + count));
    for number in 0..warm + count {
        let due = began + step * u32::try_from(number).unwrap_or(u32::MAX);
        tokio::time::sleep_until(due.into()).await;
        let (target, idle) = (targets[number % 2].clone(), idle[number % 2].clone());
        asked.push(tokio::spawn(async move {
            let free = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut connection = match free {
                Some(connection) => connection,
                None => Connection::open(&target).await?,
            };
            let sent = Instant::now();
            connection.ask(&target).await?;
            let took = sent.elapsed();
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            Ok::<_, io::Error>(took)
        }));
    }
    let mut took = [Vec::new(), Vec::new()];
    for (number, asked) in asked.into_iter().enumerate() {
        let time = asked.await.map_err(io::Error::other)??;
        if number >= warm {
            took[number % 2].push(time);
        }
    }
    Ok(took)
}

/// Requests a second that come back when 32 connections ask without a pause.
pub async fn throughput(target: &Target, warm_up: Duration, seconds: u64) -> io::Result<f64> {
    let begins = Instant::now() + warm_up;
    let ends = begins + Duration::from_secs(seconds);
    let asking = (0..AT_ONCE).map(|_| {
        let target = target.clone();
        tokio::spawn(async move {
            let (mut connection, mut answered) = (Connection::open(&target).await?, 0u64);
            while Instant::now() < ends {
                connection.ask(&target).await?;
                answered += u64::from(Instant::now() >= begins);
            }
            Ok::<_, io::Error>(answered)
        })
    });
    let asking: Vec<_> = asking.collect();
    let mut answered = 0;
    for asked in asking {
        answered += asked.await.map_err(io::Error::other)??;
    }
    Ok(answered as f64 / seconds as f64)
}

/// What came of streams that were open at a time.
pub struct Streamed {
    /// From sending to the first event, of each.
    pub first_event: Vec<Duration>,
    /// Streams of which every byte came.
    pub complete: usize,
}

/// So many streams at a time.
pub async fn streams(target: &Target, count: usize) -> io::Result<Streamed> {
    let wanted = Arc::new(whole_stream());
    // One after the other, and yet all at a time: a stream lasts longer than it takes to begin them all. Were they begun at once, the last
    // one's first event would say how fast the others can be begun.
    let step = LASTS / 2 / u32::try_from(count).unwrap_or(u32::MAX).max(1);
    let began = Instant::now();
    let streams = (0u32..).take(count).map(|number| {
        let (target, wanted) = (target.clone(), wanted.clone());
        tokio::spawn(async move {
            tokio::time::sleep_until((began + step * number).into()).await;
            stream(&target, &wanted).await
        })
    });
    let streams: Vec<_> = streams.collect();
    let mut all = Streamed { first_event: Vec::new(), complete: 0 };
    for streamed in streams {
        // A stream that broke is one that is not complete.
        if let Ok((first, complete)) = streamed.await.map_err(io::Error::other)? {
            all.first_event.push(first);
            all.complete += usize::from(complete);
        }
    }
    Ok(all)
}

async fn stream(target: &Target, wanted: &str) -> io::Result<(Duration, bool)> {
    let mut connection = Connection::open(target).await?;
    let sent = Instant::now();
    connection.stream.write_all(&target.streamed).await?;
    let Connection { stream, buffer } = &mut connection;
    let head = head(stream, buffer).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let mut first = None;
    loop {
        if first.is_none() && buffer.len() > head.length {
            first = Some(sent.elapsed());
        }
        if buffer.ends_with(b"\r\n0\r\n\r\n") || stream.read_buf(buffer).await? == 0 {
            break;
        }
    }
    let said = dechunked(&buffer[head.length..]);
    Ok((first.ok_or(io::ErrorKind::UnexpectedEof)?, said.as_deref() == Some(wanted.as_bytes())))
}

fn dechunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let line = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..line]).ok()?, 16).ok()?;
        bytes = bytes.get(line + 2..)?;
        if length == 0 {
            return Some(all);
        }
        all.extend_from_slice(bytes.get(..length)?);
        bytes = bytes.get(length + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together() {
        assert_eq!(dechunked(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").as_deref(), Some(&b"abcde"[..]));
        assert_eq!(dechunked(b"3\r\nab"), None);
    }
}
