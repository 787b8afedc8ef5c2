//! Waiting with an end.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Waits until something can be read; false when the time is over.
pub(crate) fn readable(fd: BorrowedFd<'_>, patience: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        match poll(&mut fds, poll_timeout(left)) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) => {}
            Ok(_) => return Ok(true),
        }
    }
}

/// Milliseconds for poll(2), rounded up, so that waiting never spins.
pub(crate) fn poll_timeout(left: Duration) -> PollTimeout {
    let millis = left.as_micros().div_ceil(1000);
    PollTimeout::try_from(i32::try_from(millis).unwrap_or(i32::MAX)).unwrap_or(PollTimeout::MAX)
}
