//! Messages between the parent, the zygote and a candidate's process, all over sequenced-packet sockets (whole messages, bounded).
//!
//! | from | to | what |
//! |---|---|---|
//! | parent | zygote | [`Request`]: start, settle, reap (JSON, with descriptors) |
//! | zygote | parent | [`Reply`] |
//! | parent | candidate | a command: which slots to launch, and a nonce |
//! | candidate | parent | [`Report`]: ready, done, or why not. Untrusted: decoded strictly, believed in nothing but its nonce |

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use nix::cmsg_space;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Most launches in one command.
pub const MAX_LAUNCHES: usize = 16_384;
/// Most bytes of a zygote's message.
const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// Most bytes of text in a report.
pub(super) const MAX_TEXT_BYTES: usize = 2000;
/// Most descriptors that travel with one message.
const MAX_DESCRIPTORS: usize = 3;
/// `KOpt`, little-endian: the start of every command and report.
const MAGIC: u32 = u32::from_le_bytes(*b"KOpt");
const COMMAND_HEAD_BYTES: usize = 16;
const REPORT_HEAD_BYTES: usize = 24;
/// Most bytes of a command.
pub(super) const MAX_COMMAND_BYTES: usize = COMMAND_HEAD_BYTES + 4 * MAX_LAUNCHES;
/// Most bytes of a report.
pub(super) const MAX_REPORT_BYTES: usize = REPORT_HEAD_BYTES + MAX_TEXT_BYTES;

/// What the parent asks of a zygote.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Fork a process for one candidate. Descriptors: arena, control socket, output pipe.
    Start(Box<Start>),
    /// Answer when the process is stopped or dead.
    Settle {
        /// Which process.
        pid: i32,
    },
    /// Collect a dead process.
    Reap {
        /// Which process.
        pid: i32,
    },
}

/// Everything that a candidate's process needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Start {
    /// Shared library to load.
    pub library: PathBuf,
    /// Nonce of the reports `Walled` and `Ready`.
    pub nonce: u64,
    /// Size of the arena in bytes.
    pub arena_bytes: usize,
    /// Copies of the arguments.
    pub slots: u32,
    /// Distance between copies in bytes.
    pub stride_bytes: usize,
    /// Pointer arguments, as offsets into a slot in bytes.
    pub pointers: Vec<usize>,
    /// Integer arguments.
    pub integers: Vec<i64>,
    /// Denormals count as zero, in operands and results.
    pub flush_denormal: bool,
    /// Memory that the candidate may allocate, in bytes.
    pub memory_bytes: u64,
    /// Stack of its main thread, in bytes.
    pub stack_bytes: u64,
    /// Processor time that it may use in its whole life, in seconds.
    pub cpu_seconds: u64,
    /// Go on without landlock where the kernel has none.
    pub permit_weak_sandbox: bool,
}

/// What a zygote answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// Libraries are loaded, ready to fork.
    Hello,
    /// The candidate's process.
    Started {
        /// Its number.
        pid: i32,
    },
    /// The process is stopped (or dead).
    Settled {
        /// False when it is dead.
        alive: bool,
    },
    /// The process is gone and collected.
    Reaped(Ending),
    /// It could not be done.
    Failed {
        /// Why.
        detail: String,
    },
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ending {
    /// By exit.
    Exited(i32),
    /// By a signal.
    Signaled(i32),
}

/// Kinds of [`Report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum ReportKind {
    /// Loaded and confined for good.
    Ready = 1,
    /// All launches of a command returned; the value is a set of [`disturbance`] bits.
    Done = 2,
    /// The library cannot be loaded; the text says why.
    LoadFailed = 3,
    /// Our own preparations failed; the text says why. Believed only before `Walled`.
    SandboxFailed = 4,
    /// A system call was refused; the value is its number.
    Forbidden = 5,
    /// An allocation failed.
    OutOfMemory = 6,
    /// The first walls stand; from here on the candidate may have a hand in everything that is said.
    Walled = 7,
}

/// What a kernel must leave as it found it; bits of a `Done` report's value.
pub(super) mod disturbance {
    /// Rounding, denormal or exception mode of the main thread.
    pub const FLOAT_MODE: u64 = 1;
    /// Number of threads that OpenMP gives to the next parallel region.
    pub const OPENMP_THREADS: u64 = 2;
}

/// What a candidate's process says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// What it is about.
    pub kind: ReportKind,
    /// Echo of the command's nonce; zero where no command is answered.
    pub nonce: u64,
    /// See [`ReportKind`].
    pub value: u64,
    /// See [`ReportKind`].
    pub text: String,
}

impl Report {
    /// Bytes of a report without text; allocates nothing, so that a signal handler may use it.
    pub(super) fn head(kind: ReportKind, nonce: u64, value: u64) -> [u8; REPORT_HEAD_BYTES] {
        let mut bytes = [0u8; REPORT_HEAD_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&nonce.to_le_bytes());
        bytes[16..].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    /// A report with a text, which is cut to [`MAX_TEXT_BYTES`].
    pub(super) fn with_text(kind: ReportKind, text: &str) -> Vec<u8> {
        let mut bytes = Self::head(kind, 0, 0).to_vec();
        bytes.extend_from_slice(&text.as_bytes()[..text.len().min(MAX_TEXT_BYTES)]);
        bytes
    }

    /// Decodes one message; the error says what is wrong with it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let word = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        let long = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
        let (Some(magic), Some(kind), Some(nonce), Some(value)) = (word(0), word(4), long(8), long(16)) else {
            return Err(format!("a message of {} bytes", bytes.len()));
        };
        if magic != MAGIC {
            return Err("a message that is not one of ours".into());
        }
        let kind = ReportKind::from_number(kind).ok_or_else(|| format!("a message of unknown kind {kind}"))?;
        let text = &bytes[REPORT_HEAD_BYTES..];
        if !text.is_empty() && !matches!(kind, ReportKind::LoadFailed | ReportKind::SandboxFailed) {
            return Err(format!("{} bytes after an answer", text.len()));
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err("a message that is too long".into());
        }
        Ok(Self { kind, nonce, value, text: String::from_utf8_lossy(text).into_owned() })
    }
}

impl ReportKind {
    fn from_number(number: u32) -> Option<Self> {
        [Self::Ready, Self::Done, Self::LoadFailed, Self::SandboxFailed, Self::Forbidden, Self::OutOfMemory, Self::Walled]
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }
}

/// Bytes of a command: launch `slots` in this order, then answer with `nonce`.
pub(super) fn encode_command(nonce: u64, slots: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(COMMAND_HEAD_BYTES + 4 * slots.len());
    bytes.extend_from_slice(&MAGIC.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(slots.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(&nonce.to_le_bytes());
    slots.iter().for_each(|slot| bytes.extend_from_slice(&slot.to_le_bytes()));
    bytes
}

/// A command's nonce and slots; none where the bytes are not a command.
pub(super) fn decode_command(bytes: &[u8]) -> Option<(u64, impl Iterator<Item = u32> + '_)> {
    let (head, slots) = bytes.split_at_checked(COMMAND_HEAD_BYTES)?;
    let (magic, rest) = head.split_first_chunk::<4>()?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let nonce = u64::from_le_bytes(rest.try_into().ok()?);
    let whole = u32::from_le_bytes(*magic) == MAGIC && slots.len() == 4 * u32::from_le_bytes(*count) as usize;
    let (slots, _) = slots.as_chunks::<4>();
    whole.then(|| (nonce, slots.iter().map(|slot| u32::from_le_bytes(*slot))))
}

/// A connected pair of sequenced-packet sockets, closed on exec.
pub(super) fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?)
}

/// Sends one JSON message with descriptors.
pub(super) fn send_json(socket: BorrowedFd<'_>, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a message of {} bytes; at most {MAX_MESSAGE_BYTES}", bytes.len()),
        ));
    }
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &rights[..0] } else { &rights[..] };
    sendmsg::<UnixAddr>(socket.as_raw_fd(), &[IoSlice::new(&bytes)], control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Receives one JSON message with its descriptors; none at the end of the stream.
pub(super) fn receive_json<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0u8; MAX_MESSAGE_BYTES];
    let mut space = cmsg_space!([RawFd; MAX_DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = loop {
        match recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC) {
            Err(nix::errno::Errno::EINTR) => {}
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            // SAFETY: the kernel has just made these descriptors for us; nobody else owns them.
            descriptors.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    let (len, truncated) = (received.bytes, received.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC));
    if len == 0 {
        return Ok(None);
    }
    if truncated {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was cut"));
    }
    Ok(Some((serde_json::from_slice(&bytes[..len])?, descriptors)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reports_come_back_as_they_were() {
        let done = Report { kind: ReportKind::Done, nonce: 7, value: 3, text: String::new() };
        assert_eq!(Report::decode(&Report::head(ReportKind::Done, 7, 3)), Ok(done));
        let long = "x".repeat(3 * MAX_TEXT_BYTES);
        let failed = Report::decode(&Report::with_text(ReportKind::LoadFailed, &long)).unwrap();
        assert_eq!(failed.text.len(), MAX_TEXT_BYTES);
    }

    #[test]
    fn malformed_reports_are_named() {
        let mut bytes = Report::head(ReportKind::Done, 1, 0).to_vec();
        assert!(Report::decode(&bytes[..23]).unwrap_err().contains("23 bytes"));
        bytes.push(0);
        assert!(Report::decode(&bytes).unwrap_err().contains("after an answer"));
        bytes[4] = 99;
        assert!(Report::decode(&bytes).unwrap_err().contains("unknown kind 99"));
        bytes[0] = 0;
        assert!(Report::decode(&bytes).unwrap_err().contains("not one of ours"));
    }

    #[test]
    fn descriptors_travel_with_json() {
        let (a, b) = packet_pair().unwrap();
        let (c, d) = packet_pair().unwrap();
        send_json(a.as_fd(), &Request::Reap { pid: 5 }, &[c.as_fd()]).unwrap();
        let (request, descriptors) = receive_json::<Request>(b.as_fd()).unwrap().unwrap();
        assert!(matches!(request, Request::Reap { pid: 5 }));
        send_json(descriptors[0].as_fd(), &Reply::Hello, &[]).unwrap();
        assert!(matches!(receive_json::<Reply>(d.as_fd()).unwrap(), Some((Reply::Hello, _))));
        drop(a);
        assert!(receive_json::<Request>(b.as_fd()).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn commands_come_back_as_they_were(nonce: u64, slots in prop::collection::vec(any::<u32>(), 0..100), cut in 1usize..8) {
            let bytes = encode_command(nonce, &slots);
            let (found, again) = decode_command(&bytes).unwrap();
            prop_assert_eq!((found, again.collect::<Vec<_>>()), (nonce, slots));
            prop_assert!(decode_command(&bytes[..bytes.len() - cut]).is_none());
        }

        #[test]
        fn any_bytes_decode_or_err(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Report::decode(&bytes);
            let _ = decode_command(&bytes);
        }
    }
}
