//! The child's side.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frames::{Frames, Kind, decode};

/// Exit status of a child whose parent is gone.
const ORPHANED: i32 = 3;

/// What a handler can say before it answers.
#[derive(Debug)]
pub struct Progress<'a>(&'a mut Frames);

impl Progress<'_> {
    /// Says what is being done (`verifying`, `measuring`): should the child die, its death has a phase. At most 200 bytes.
    pub fn note(&mut self, phase: &str) {
        // A parent that is gone ends this process anyway.
        let _ = self.0.note(phase);
    }
}

/// Answers requests until the parent closes its end. The socket is this process's standard input.
///
/// The process ends at once when its parent does, even while `handler` waits for a device that does not answer. That is not left to
/// `PR_SET_PDEATHSIG`, which speaks of the parent's thread and not of the parent (prctl(2)): the agent may start a child on one thread and
/// go on on another.
///
/// # Errors
/// Standard input is no socket, a request cannot be read, or an answer cannot be sent.
pub fn serve<Req: DeserializeOwned, Res: Serialize>(mut handler: impl FnMut(Req, &mut Progress<'_>) -> Res) -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // A pipe or a terminal has no peer.
    socket.peer_addr()?;
    end_with_parent(socket.as_fd().try_clone_to_owned()?)?;
    let mut frames = Frames::new(socket)?;
    while let Some((kind, body)) = frames.receive(None)? {
        if kind != Kind::Message {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a note from the parent"));
        }
        let answer = handler(decode(&body)?, &mut Progress(&mut frames));
        frames.send(&answer, None)?;
    }
    Ok(())
}

/// Watches for the end of the parent on a thread of its own.
fn end_with_parent(socket: OwnedFd) -> io::Result<()> {
    let watch = move || {
        // Without events asked for, only a peer that is gone wakes it.
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::empty())];
        while matches!(poll(&mut fds, PollTimeout::NONE), Err(Errno::EINTR) | Ok(0)) {}
        // SAFETY: no preconditions; exit handlers would wait for the device.
        unsafe { libc::_exit(ORPHANED) }
    };
    std::thread::Builder::new().name("parent watch".into()).spawn(watch).map(drop)
}
