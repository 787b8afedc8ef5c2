//! The thread that starts every server of this process.
//!
//! Linux sends a child's parent-death signal when the *thread* that forked it ends (prctl(2)), and a test's threads come and go: a runtime
//! ends idle ones after seconds. So all servers are children of one thread, which lives as long as the process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};

type Order = (Command, Sender<io::Result<Child>>);

/// Starts `command` in a process group of its own; the kernel kills it when this process ends.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    static KEEPER: OnceLock<Sender<Order>> = OnceLock::new();
    let parent = getpid();
    command.process_group(0);
    // SAFETY: between fork and exec the closure makes two system calls and no allocation. The account is already changed by then, which
    // matters: a change of account clears the signal.
    unsafe {
        command.pre_exec(move || {
            set_pdeathsig(Signal::SIGKILL)?;
            // The parent may have ended before the signal was asked for.
            if getppid() == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
        });
    }
    let keeper = KEEPER.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in orders {
                // Nobody waits any more where the asking thread panicked meanwhile; the child must not outlive that.
                if let Err(unheard) = answer.send(command.spawn())
                    && let Ok(mut child) = unheard.0
                {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        });
        sender
    });
    let (answer, child) = channel();
    keeper.send((command, answer)).map_err(io::Error::other)?;
    child.recv().map_err(io::Error::other)?
}
