//! `confine FOLDER MEMORY CPU FILE WEAK -- PROGRAM ARGUMENTS...`: becomes a program that writes only below one folder.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

use crate::cpu::sandbox::files::{self, FilesError};

/// Exit status where the program was not started; compilers do not use it.
pub(crate) const NOT_STARTED: u8 = 125;

/// Bounds on a compiler's process.
#[derive(Clone, Debug)]
pub(in crate::cpu) struct Confine {
    /// The only folder that it may write below; also where it runs and puts its temporary files.
    pub folder: PathBuf,
    /// Address space, in bytes.
    pub memory_bytes: u64,
    /// Processor time of each of its processes, in seconds.
    pub cpu_seconds: u64,
    /// Largest file that it may write, in bytes.
    pub file_bytes: u64,
    /// Go on where the kernel has no landlock.
    pub permit_weak: bool,
}

impl Confine {
    /// The words that [`confine`] understands, before the program's own.
    pub(in crate::cpu) fn words(&self) -> Vec<OsString> {
        let numbers = [self.memory_bytes, self.cpu_seconds, self.file_bytes, self.permit_weak.into()];
        let mut words = vec![self.folder.clone().into_os_string()];
        words.extend(numbers.iter().map(|n| n.to_string().into()));
        words.push("--".into());
        words
    }

    fn parse(mut words: impl Iterator<Item = OsString>) -> Option<(Self, Vec<OsString>)> {
        let folder = words.next()?.into();
        let mut number = || words.next()?.to_str()?.parse::<u64>().ok();
        let (memory_bytes, cpu_seconds, file_bytes, weak) = (number()?, number()?, number()?, number()?);
        (words.next()? == "--").then_some(())?;
        Some((Self { folder, memory_bytes, cpu_seconds, file_bytes, permit_weak: weak != 0 }, words.collect()))
    }
}

pub(super) fn confine(words: impl Iterator<Item = OsString>) -> Result<(), String> {
    let (bounds, program) = Confine::parse(words).ok_or("confine: FOLDER MEMORY CPU FILE WEAK -- PROGRAM ARGUMENTS...")?;
    let (program, arguments) = program.split_first().ok_or("confine: no program")?;
    apply(&bounds)?;
    let error = Command::new(program).args(arguments).current_dir(&bounds.folder).env("TMPDIR", &bounds.folder).exec();
    Err(format!("{}: {error}", Path::new(program).display()))
}

fn apply(bounds: &Confine) -> Result<(), String> {
    let limits = [
        (Resource::RLIMIT_AS, bounds.memory_bytes),
        (Resource::RLIMIT_CPU, bounds.cpu_seconds),
        (Resource::RLIMIT_FSIZE, bounds.file_bytes),
        (Resource::RLIMIT_CORE, 0),
    ];
    for (resource, limit) in limits {
        setrlimit(resource, limit, limit).map_err(|e| format!("{resource:?}: {e}"))?;
    }
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| e.to_string())?;
    prctl::set_no_new_privs().map_err(|e| e.to_string())?;
    match files::write_only_below(&bounds.folder) {
        Err(FilesError::NotEnforced) if bounds.permit_weak => Ok(()),
        other => other.map_err(|e| e.to_string()),
    }
}
