//! What is said between the agent and a worker (`python/kernelopt/build/protocol.py` is the other side).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Kind, Order, TwinFacts};

/// Largest JSON part of an answer, in bytes.
const MAX_JSON_BYTES: u32 = 1 << 20;
/// Largest machine code, in bytes.
const MAX_PAYLOAD_BYTES: u32 = 64 << 20;

/// An order as a worker reads it (`order.py`).
#[derive(Debug, Serialize)]
pub(super) struct Request<'a> {
    pub language: &'static str,
    pub source: &'a str,
    pub architecture: u32,
    pub kind: &'static str,
    pub cpu_seconds: u64,
    pub wall_seconds: f64,
    pub entry: &'a str,
    pub signature: &'a [(&'a str, &'a str)],
    pub constants: &'a BTreeMap<String, i64>,
    pub divisible_by_16: &'a BTreeSet<String>,
    pub num_warps: u32,
    pub num_stages: u32,
    pub rounded: bool,
}

impl<'a> Request<'a> {
    /// The request for an order.
    pub(super) fn of(order: &'a Order<'a>, architecture: u32, cpu_seconds: u64, wall: Duration) -> Self {
        let (kind, rounded) = match order.kind {
            Kind::Kernel => ("kernel", false),
            Kind::Twin { rounded } => ("twin", rounded),
        };
        Self {
            language: order.language.name(),
            source: order.source,
            architecture,
            kind,
            cpu_seconds,
            wall_seconds: wall.as_secs_f64(),
            entry: &order.launch.entry,
            signature: order.signature,
            constants: &order.launch.constants,
            divisible_by_16: &order.launch.divisible_by_16,
            num_warps: order.launch.num_warps,
            num_stages: order.launch.num_stages,
            rounded,
        }
    }
}

/// The first that a worker says.
#[derive(Debug, Deserialize)]
pub(super) struct Hello {
    /// Why it cannot compile Triton; it may still compile CUDA.
    pub lacks_triton: Option<String>,
}

/// A worker's answer; machine code travels beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(super) enum Answer {
    /// There is machine code.
    Built(Facts),
    /// The source breaks a rule.
    Refused(Fault),
    /// The compiler said no.
    Compiler(Fault),
    /// The build's process died.
    Crashed(Fault),
    /// It took too long, or too much.
    Stopped(Fault),
    /// The kernel has no float64 twin.
    Untwinned(Fault),
    /// The machine lacks something.
    Environment(Fault),
    /// A fault of ours.
    Internal(Fault),
}

impl Answer {
    /// True where the same order would be answered so again. What was spent (time, memory, a disk), a process that died and a
    /// fault of this machine's or of ours may be otherwise the next time.
    pub(super) const fn is_lasting(&self) -> bool {
        match self {
            Self::Built(_) | Self::Refused(_) | Self::Compiler(_) | Self::Untwinned(_) => true,
            Self::Crashed(_) | Self::Stopped(_) | Self::Environment(_) | Self::Internal(_) => false,
        }
    }
}

/// What is known of machine code; nothing of a module of several kernels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Facts {
    pub entry: String,
    pub shared_bytes: u32,
    pub threads: u32,
    pub hidden_pointers: u32,
    pub registers: u32,
    pub spill_bytes: u32,
    pub twin: Option<TwinFacts>,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Fault {
    pub reason: String,
    pub line: Option<u32>,
}

/// Sends one message.
pub(super) fn send(stream: &UnixStream, message: &impl Serialize, deadline: Instant) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(json.len() + 8);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&0u32.to_le_bytes());
    bytes.extend_from_slice(&json);
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let mut writer = stream;
        let sent = writer.write(rest).map_err(timed_out)?;
        rest = &rest[sent..];
    }
    Ok(())
}

/// Receives one message with its bytes.
pub(super) fn receive<T: for<'de> Deserialize<'de>>(stream: &UnixStream, deadline: Instant) -> io::Result<(T, Vec<u8>)> {
    let mut head = [0u8; 8];
    fill(stream, &mut head, deadline)?;
    let [a, b, c, d, e, f, g, h] = head;
    let (json_bytes, payload_bytes) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    if json_bytes > MAX_JSON_BYTES || payload_bytes > MAX_PAYLOAD_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("an answer of {json_bytes} and {payload_bytes} bytes")));
    }
    let (mut json, mut payload) = (vec![0; json_bytes as usize], vec![0; payload_bytes as usize]);
    fill(stream, &mut json, deadline)?;
    fill(stream, &mut payload, deadline)?;
    Ok((serde_json::from_slice(&json)?, payload))
}

fn fill(mut stream: &UnixStream, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut buffer[filled..]).map_err(timed_out)? {
            0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended")),
            read => filled += read,
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")) } else { Ok(left) }
}

/// A socket's timeout says "try again".
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::Error::new(io::ErrorKind::TimedOut, "no answer in time") } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_bytes_come_back_and_silence_ends() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let soon = || Instant::now() + Duration::from_millis(200);
        let fault = Fault { reason: "no".into(), line: Some(3) };
        send(&ours, &Answer::Refused(fault.clone()), soon()).unwrap();
        let (answer, payload) = receive::<Answer>(&theirs, soon()).unwrap();
        assert_eq!((answer, payload.len()), (Answer::Refused(fault), 0));
        assert_eq!(receive::<Answer>(&theirs, soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
        (&ours).write_all(&[0xff; 8]).unwrap();
        assert_eq!(receive::<Answer>(&theirs, soon()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(ours);
        assert_eq!(receive::<Answer>(&theirs, soon()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
