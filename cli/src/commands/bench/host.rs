//! What the host says of itself and of us.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use kernelopt_shared::exit::ExitCode;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::time::TimeVal;

use crate::failure::Failure;

/// Flushes of which the median is taken.
const FLUSHES: u64 = 50;

/// Processor time of this process until now.
pub fn processor_time() -> Duration {
    let time = |value: TimeVal| Duration::from_micros(value.tv_sec().unsigned_abs() * 1_000_000 + value.tv_usec().unsigned_abs());
    getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |used| time(used.user_time()) + time(used.system_time()))
}

/// Tasks that ran or waited for a processor, mean of the last minute: who else was there.
pub fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Refuses a folder in memory: what is flushed there costs nothing, and nothing would be measured.
pub fn on_disk(folder: &Path) -> Result<(), Failure> {
    let wrong = |what: String, remedy: &str| Failure::new(ExitCode::Output, what, remedy);
    let found = statfs(folder).map_err(|e| wrong(format!("{}: {e}", folder.display()), "Name a folder that is there with --data."))?;
    if found.filesystem_type() == TMPFS_MAGIC {
        return Err(wrong(format!("{} is in memory (tmpfs)", folder.display()), "Name a folder on a disk with --data."));
    }
    Ok(())
}

/// Median time in which 4 KiB at the end of a file reach the disk: the journal, the broker and Redis each wait for as much.
pub fn flush_time(folder: &Path) -> std::io::Result<Duration> {
    let file: File = tempfile::tempfile_in(folder)?;
    let mut times = Vec::new();
    for block in 0..FLUSHES {
        file.write_all_at(&[1; 4096], block * 4096)?;
        let started = Instant::now();
        file.sync_data()?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
