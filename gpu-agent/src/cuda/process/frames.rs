//! Messages of bounded length over a stream socket, with an end to waiting.
//!
//! A frame is a kind (one byte), a length (four, little-endian) and JSON. JSON, because what travels (targets, their meanings) has
//! types that only a self-describing format can carry.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use kernelopt_shared::stop::Stop;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cpu::waiting::poll_timeout;

/// Most bytes of a message.
pub(super) const MAX_MESSAGE_BYTES: usize = 256 << 20;
/// Most bytes of a progress note.
pub(super) const MAX_NOTE_BYTES: usize = 200;
const HEAD_BYTES: usize = 5;
/// Time between two looks for a stop.
const STOP_LOOK: Duration = Duration::from_millis(100);
/// Bytes that are made room for before they have come.
const CHUNK_BYTES: usize = 1 << 20;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A request or an answer.
    Message = 1,
    /// What the child is doing: plain text.
    Note = 2,
}

/// One end of the socket.
#[derive(Debug)]
pub(super) struct Frames {
    socket: UnixStream,
    stop: Option<Stop>,
}

impl Frames {
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, stop: None })
    }

    /// From now on waiting ends with [`io::ErrorKind::ConnectionAborted`] once `stop` is asked.
    pub(super) fn ends_with(&mut self, stop: Stop) {
        self.stop = Some(stop);
    }

    /// Sends a message before `deadline`; no deadline, no end.
    pub(super) fn send(&mut self, message: &impl Serialize, deadline: Option<Instant>) -> io::Result<()> {
        let mut frame = vec![0; HEAD_BYTES];
        serde_json::to_writer(&mut frame, message)?;
        self.write_frame(Kind::Message, frame, deadline)
    }

    /// Sends a note.
    pub(super) fn note(&mut self, text: &str) -> io::Result<()> {
        let mut frame = vec![0; HEAD_BYTES];
        frame.extend_from_slice(&text.as_bytes()[..text.floor_char_boundary(MAX_NOTE_BYTES)]);
        self.write_frame(Kind::Note, frame, None)
    }

    fn write_frame(&mut self, kind: Kind, mut frame: Vec<u8>, deadline: Option<Instant>) -> io::Result<()> {
        let length = frame.len() - HEAD_BYTES;
        if length > MAX_MESSAGE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, too_long(length)));
        }
        frame[0] = kind as u8;
        frame[1..HEAD_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
        let mut sent = 0;
        while sent < frame.len() {
            match self.socket.write(&frame[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::POLLOUT, deadline)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next frame before `deadline`; none at the end of the stream.
    pub(super) fn receive(&mut self, deadline: Option<Instant>) -> io::Result<Option<(Kind, Vec<u8>)>> {
        let mut head = [0; HEAD_BYTES];
        let kind = match self.read_exactly(&mut head, deadline)? {
            0 => return Ok(None),
            HEAD_BYTES => kind_of(head[0])?,
            _ => return Err(cut()),
        };
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let most = if kind == Kind::Note { MAX_NOTE_BYTES } else { MAX_MESSAGE_BYTES };
        if length > most {
            return Err(invalid(too_long(length)));
        }
        let mut body = Vec::new();
        // Room is made as bytes come, so that a length alone costs nothing.
        while body.len() < length {
            let have = body.len();
            body.resize((have + CHUNK_BYTES).min(length), 0);
            if self.read_exactly(&mut body[have..], deadline)? < body.len() - have {
                return Err(cut());
            }
        }
        Ok(Some((kind, body)))
    }

    /// Reads until `bytes` is full or the stream ends; says how many came.
    fn read_exactly(&mut self, bytes: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.socket.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::POLLIN, deadline)?,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Waits until the socket may be ready; an early return is no error.
    fn wait(&self, what: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
        /// Where there is no deadline, as long as at once can be waited.
        const LONG: Duration = Duration::from_secs(3600);
        if self.stop.as_ref().is_some_and(Stop::asked) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "a stop was asked for"));
        }
        let longest = if self.stop.is_some() { STOP_LOOK } else { LONG };
        let left = deadline.map_or(LONG, |deadline| deadline.saturating_duration_since(Instant::now()));
        let mut fds = [PollFd::new(self.socket.as_fd(), what)];
        match poll(&mut fds, poll_timeout(left.min(longest))) {
            Ok(0) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Decodes a message.
pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))
}

fn kind_of(byte: u8) -> io::Result<Kind> {
    [Kind::Message, Kind::Note]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
        .ok_or_else(|| invalid(format!("a frame of unknown kind {byte}")))
}

fn too_long(length: usize) -> String {
    format!("a message of {length} bytes; at most {MAX_MESSAGE_BYTES}")
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a message was cut")
}

fn invalid(detail: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Frames, UnixStream) {
        let (a, b) = UnixStream::pair().unwrap();
        (Frames::new(a).unwrap(), b)
    }

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(50))
    }

    #[test]
    fn messages_larger_than_the_socket_arrive_whole() {
        let (mut a, b) = pair();
        let message: Vec<u64> = (0..500_000).collect();
        let expected = message.clone();
        let reader = std::thread::spawn(move || Frames::new(b).unwrap().receive(None).unwrap().unwrap());
        a.send(&message, Some(Instant::now() + Duration::from_secs(20))).unwrap();
        let (kind, body) = reader.join().unwrap();
        assert_eq!((kind, decode::<Vec<u64>>(&body).unwrap()), (Kind::Message, expected));
    }

    #[test]
    fn silence_and_a_full_socket_end_at_the_deadline() {
        let (mut a, _b) = pair();
        assert_eq!(a.receive(soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(a.send(&"x".repeat(4 << 20), soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_stop_ends_the_waiting() {
        let (mut a, _b) = pair();
        let stop = Stop::default();
        a.ends_with(stop.clone());
        let asker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            stop.ask();
        });
        let error = a.receive(Some(Instant::now() + Duration::from_secs(60))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        asker.join().unwrap();
    }

    #[test]
    fn what_is_no_frame_is_named() {
        let say = |bytes: &[u8]| {
            let (mut a, mut b) = pair();
            b.write_all(bytes).unwrap();
            drop(b);
            a.receive(soon()).map_err(|error| error.to_string())
        };
        assert!(say(&[9, 0, 0, 0, 0]).unwrap_err().contains("unknown kind 9"));
        assert!(say(&[1, 255, 255, 255, 255]).unwrap_err().contains("4294967295 bytes"));
        assert!(say(&[2, 201, 0, 0, 0]).unwrap_err().contains("201 bytes"));
        assert!(say(&[1, 9, 0, 0, 0, b'x']).unwrap_err().contains("cut"));
        assert!(say(&[1, 9]).unwrap_err().contains("cut"));
        assert!(say(&[]).unwrap().is_none());
    }
}
