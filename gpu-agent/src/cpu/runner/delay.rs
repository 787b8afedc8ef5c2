//! Time that a process's threads were ready to run and had to wait for a processor.

use std::fs;
use std::time::Duration;

/// Sum over all threads of process `pid` (Documentation/scheduler/sched-stats.rst: second field of `schedstat`, in
/// nanoseconds). `None` where this kernel does not count it.
pub(super) fn run_delay(pid: i32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let delays = threads.map(|thread| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    });
    delays.sum::<Option<u64>>().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_delay_and_a_missing_one_has_none() {
        assert!(run_delay(std::process::id() as i32).is_some());
        assert_eq!(run_delay(-1), None);
    }
}
