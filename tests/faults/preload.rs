//! A disk that fails, for one process: a library that is loaded before all others (ld.so(8)). It needs no privileges and no code in the
//! program, and hits its writes to the byte.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use kernelopt_tests::binary;

/// Where a process is killed.
#[derive(Clone, Copy, Debug)]
pub enum Kill {
    /// Before a write.
    Write(u32),
    /// In the middle of it.
    Torn(u32),
    /// After a flush, before anybody hears of it.
    Flush(u32),
}

/// Kills the process that `command` starts at a write to a file whose path holds `files`.
pub fn kill_at(command: &mut Command, files: &str, kill: Kill) {
    let (kind, number) = match kill {
        Kill::Write(number) => ("write", number),
        Kill::Torn(number) => ("torn", number),
        Kill::Flush(number) => ("sync", number),
    };
    command.env("LD_PRELOAD", library()).env("KERNELOPT_DISK_FILES", files).env("KERNELOPT_DISK_KILL", format!("{kind}:{number}"));
}

/// While there is a file `flag`, nothing whose path holds `files` can be written by the process that `command` starts.
pub fn full_while(command: &mut Command, files: &str, flag: &Path) {
    command.env("LD_PRELOAD", library()).env("KERNELOPT_DISK_FILES", files).env("KERNELOPT_DISK_FULL", flag);
}

/// The library, built once.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("faults/preload.c");
        let library = binary().with_file_name(format!("libfailing_disk.{}.so", std::process::id()));
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
        let mut command = Command::new(compiler);
        command.args(["-x", "c", "-O1", "-Wall", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl");
        let done = command.output().expect("a C compiler starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        // By its final name only once it is whole: rows may run in processes side by side.
        let path = binary().with_file_name("libfailing_disk.so");
        std::fs::rename(&library, &path).expect("the target folder can be written");
        path
    })
}
