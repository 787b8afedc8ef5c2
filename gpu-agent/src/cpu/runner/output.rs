//! What a candidate prints: drained so that it never blocks the parent, counted, and all but the end thrown away.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Bytes kept, for messages.
const KEPT_BYTES: usize = 400;

/// The reading end of a candidate's stdout and stderr.
#[derive(Debug)]
pub(super) struct Output {
    pipe: File,
    open: bool,
    seen_bytes: usize,
    tail: Vec<u8>,
}

impl Output {
    /// A pipe: our end, and the child's.
    pub(super) fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok((Self { pipe: File::from(ours), open: true, seen_bytes: 0, tail: Vec::new() }, theirs))
    }

    /// The pipe, while something may still come.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.open.then(|| self.pipe.as_fd())
    }

    /// Bytes printed so far.
    pub(super) fn seen_bytes(&self) -> usize {
        self.seen_bytes
    }

    /// Reads what is there, up to one chunk, so that a process that prints without end cannot hold the parent.
    pub(super) fn drain(&mut self) {
        let mut chunk = [0u8; 4096];
        match self.pipe.read(&mut chunk) {
            Ok(0) => self.open = false,
            Ok(len) => self.keep(&chunk[..len]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.open = false,
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.seen_bytes += bytes.len();
        self.tail.extend_from_slice(bytes);
        let surplus = self.tail.len().saturating_sub(KEPT_BYTES);
        self.tail.drain(..surplus);
    }

    /// The end of what was printed; for a dead process, with the rest of the pipe.
    pub(super) fn last_words(&mut self) -> String {
        const MOST_CHUNKS: usize = 32; // a pipe holds 64 KiB by default
        let mut before = usize::MAX;
        for _ in 0..MOST_CHUNKS {
            if !self.open || before == self.seen_bytes {
                break;
            }
            before = self.seen_bytes;
            self.drain();
        }
        String::from_utf8_lossy(&self.tail).trim_end().to_owned()
    }
}
