//! Which release of RabbitMQ answers. The client keeps it to itself, so it is asked once more, before any login.

use std::time::Duration;

use lapin::uri::AMQPScheme;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::options::RabbitOptions;

/// What a client begins with (AMQP 0-9-1, section 4.2.2).
const HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";
/// The server's properties are a table of field names and values; this is the name and type of one.
const FIELD: &[u8] = b"\x07versionS";
/// Most of the server's first frame that is read; RabbitMQ's has about 500 bytes.
const MOST_BYTES: u64 = 4096;

/// `3.10.8`; `None` where it cannot be had, as behind TLS.
pub async fn version(options: &RabbitOptions) -> Option<String> {
    timeout(options.connect_timeout, ask(options)).await.ok().flatten()
}

async fn ask(options: &RabbitOptions) -> Option<String> {
    let uri = options.target().ok()?.uri;
    if uri.scheme == AMQPScheme::AMQPS {
        return None;
    }
    let mut stream = TcpStream::connect((uri.authority.host.as_str(), uri.authority.port)).await.ok()?;
    stream.write_all(HEADER).await.ok()?;
    let (mut read, mut frame) = (stream.take(MOST_BYTES), Vec::new());
    loop {
        // A server that says no more has said what it had to.
        let more = timeout(Duration::from_secs(2), read.read_buf(&mut frame)).await.ok()?.ok()?;
        match find(&frame) {
            None if more > 0 => {}
            found => return found,
        }
    }
}

fn find(frame: &[u8]) -> Option<String> {
    let at = frame.windows(FIELD.len()).position(|window| window == FIELD)? + FIELD.len();
    let length = u32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?) as usize;
    let text = frame.get(at + 4..)?.get(..length.min(40))?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-+".contains(byte);
    text.iter().all(plain).then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_once_it_is_whole() {
        let frame = b"\x07productS\x00\x00\x00\x08RabbitMQ\x07versionS\x00\x00\x00\x063.10.8";
        assert_eq!(find(frame).as_deref(), Some("3.10.8"));
        (0..frame.len()).for_each(|cut| assert_eq!(find(&frame[..cut]), None));
        assert_eq!(find(b"\x07versionS\x00\x00\x00\x03\x1b[m"), None);
    }
}
