//! One processor for every thread of a runner, and there it stays.
//!
//! Left to the scheduler, the threads of a process that is stopped and continued can wake on one and the same processor, and
//! stay together: on a busy host one process is then a hundred times slower than its twin for as long as it lives. Bound from
//! outside, since a candidate that may call `sched_setaffinity` could also bind the processes that it competes with.

use std::fs;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// The threads of one process that have a place.
#[derive(Debug, Default)]
pub(super) struct Places {
    bound: Vec<i32>,
}

impl Places {
    /// Binds the threads of process `pid`, which is stopped, to `processors` in the order of their making, where there are any
    /// that are not bound yet. A process of one thread is left to the scheduler: the threads that it makes next would all begin on
    /// its processor.
    pub(super) fn bind(&mut self, pid: i32, processors: &[usize]) {
        let threads = threads(pid);
        if threads == self.bound || threads.len() < 2 || processors.is_empty() {
            return;
        }
        for (thread, processor) in threads.iter().zip(processors.iter().cycle()) {
            let mut set = CpuSet::new();
            // A thread that is gone, or a processor that was taken offline, leaves the scheduler to decide, as before.
            let _ = set.set(*processor).and_then(|()| sched_setaffinity(Pid::from_raw(*thread), &set));
        }
        self.bound = threads;
    }
}

/// Numbers of the threads of process `pid`, least first; none for a process that is gone.
fn threads(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let mut threads: Vec<i32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    threads
}

/// How long the threads of process `pid` have waited, ready to run, for a processor, all together
/// (Documentation/scheduler/sched-stats.rst: second field of `schedstat`). `None` where this kernel does not count it.
pub(super) fn run_delay(pid: i32) -> Option<Duration> {
    let delays = threads(pid).into_iter().map(|thread| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    });
    delays.sum::<Option<u64>>().map(Duration::from_nanos)
}
