//! One measurement at a time per physical device: a lock by UUID that every agent of the host shares.
//!
//! It is an advisory lock on a file (flock(2)), so the kernel gives it back when its holder dies, however it dies. The file stays, and
//! names its last holder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kernelopt_shared::stop::Stop;
use kernelopt_shared::task::AgentError;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Where all users of a host meet: the one folder that everybody can make on every distribution (`/run/lock` is root's on some), that a
/// service with a `/tmp` of its own shares, that no cleaner empties and a restart does. Containers share it where it is mounted from the host.
const FOLDER: &str = "/dev/shm/kernelopt";
/// Anyone may make a lock there, and nobody may take another's away, as in `/tmp`.
const FOLDER_MODE: u32 = 0o1777;
/// Anyone may take a lock.
const FILE_MODE: u32 = 0o666;
/// Longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// How long another agent of this host may hold a device before that is an error.
const TURN_PATIENCE: Duration = Duration::from_secs(600);
/// Time between two looks for a stop while the device is another's.
const STOP_LOOK: Duration = Duration::from_millis(100);
/// Most bytes of a holder's name.
const MAX_HOLDER_BYTES: u64 = 200;

/// A device, held until this is dropped.
#[derive(Debug)]
pub struct DeviceLock {
    _file: Flock<File>,
}

/// Why a device cannot be held.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum LockError {
    #[error("{uuid} is in use by {holder} for more than {} s", .waited.as_secs())]
    Busy { uuid: String, holder: String, waited: Duration },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0:?} is not the UUID of a device")]
    Name(String),
}

impl DeviceLock {
    /// Takes the lock of a device, after waiting for at most `patience`. A waiting thread sleeps between tries, so that `patience` ends it.
    ///
    /// # Errors
    /// Another holds it for all that time, or the file cannot be made.
    pub fn acquire(uuid: &str, patience: Duration) -> Result<Self, LockError> {
        let folder = Path::new(FOLDER);
        usable(folder).map_err(|source| LockError::Io { path: folder.into(), source })?;
        Self::acquire_in(folder, uuid, patience)
    }

    /// The same with a folder of the caller's choice.
    ///
    /// # Errors
    /// As [`DeviceLock::acquire`].
    pub fn acquire_in(folder: &Path, uuid: &str, patience: Duration) -> Result<Self, LockError> {
        let path = path_of(folder, uuid)?;
        let io = |source| LockError::Io { path: path.clone(), source };
        let mut file = open(&path).map_err(io)?;
        let deadline = Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                // Whoever emptied the folder in between parted this lock from its name.
                Ok(held) if !is_named(&held, &path) => file = open(&path).map_err(io)?,
                Ok(mut held) => {
                    // For people and messages only: a holder that cannot be named still holds.
                    let _ = name_holder(&mut held);
                    return Ok(Self { _file: held });
                }
                Err((returned, Errno::EWOULDBLOCK | Errno::EINTR)) => file = returned,
                Err((_, error)) => return Err(io(error.into())),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LockError::Busy { uuid: uuid.into(), holder: holder(&file), waited: patience });
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Waits until no other agent of this host measures on a device, and for a stop.
///
/// # Errors
/// Another does so for ten minutes, or the lock cannot be made; [`AgentError::Stopped`] when `stop` is asked.
pub fn take_turn(uuid: &str, stop: &Stop) -> Result<DeviceLock, AgentError> {
    let started = Instant::now();
    let error = loop {
        match DeviceLock::acquire(uuid, STOP_LOOK) {
            Ok(lock) => return Ok(lock),
            Err(LockError::Busy { .. }) if stop.asked() => return Err(AgentError::Stopped),
            Err(LockError::Busy { .. }) if started.elapsed() < TURN_PATIENCE => {}
            Err(LockError::Busy { uuid, holder, .. }) => break LockError::Busy { uuid, holder, waited: TURN_PATIENCE },
            Err(error) => break error,
        }
    };
    Err(AgentError::Environment {
        what: error.to_string(),
        remedy: "Wait until the other agent is done, or name another device with --device.".into(),
    })
}

/// Who holds the lock of a device now, for people; `None` where nobody does, or where that cannot be seen. Takes nothing for longer than
/// it looks.
pub fn holder_of(uuid: &str) -> Option<String> {
    holder_in(Path::new(FOLDER), uuid)
}

fn holder_in(folder: &Path, uuid: &str) -> Option<String> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW).open(path_of(folder, uuid).ok()?).ok()?;
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Err((file, Errno::EWOULDBLOCK)) => Some(holder(&file)),
        Ok(_) | Err(_) => None,
    }
}

/// Makes the folder if it is not there; a folder that only some may write, or that is a link, would part the users of the host.
fn usable(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(FOLDER_MODE).create(path) {
        // The process's mask took bits away.
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(FOLDER_MODE))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() || found.mode() & 0o7777 != FOLDER_MODE {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it must be a folder with mode 1777"));
    }
    Ok(())
}

fn path_of(folder: &Path, uuid: &str) -> Result<PathBuf, LockError> {
    let sane = (1..=80).contains(&uuid.len()) && uuid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if sane { Ok(folder.join(format!("{uuid}.lock"))) } else { Err(LockError::Name(uuid.into())) }
}

/// Opens or makes the file; one that is there is opened as it is, since only its maker may change its mode.
fn open(path: &Path) -> io::Result<File> {
    let options = |create: bool| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
        if create {
            options.create_new(true).mode(FILE_MODE);
        }
        options.open(path)
    };
    match options(true) {
        Ok(file) => {
            file.set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options(false),
        Err(error) => Err(error),
    }
}

/// True where the file is still the one of that name.
fn is_named(file: &File, path: &Path) -> bool {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    file.metadata().ok().map(identity) == fs::symlink_metadata(path).ok().map(identity)
}

fn name_holder(file: &mut File) -> io::Result<()> {
    let program = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    file.rewind()?;
    file.set_len(0)?;
    write!(file, "process {} ({})", std::process::id(), program.unwrap_or_default())
}

/// Who wrote its name there last.
fn holder(mut file: &File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(MAX_HOLDER_BYTES).read_to_string(&mut text));
    if read.is_ok() && !text.is_empty() && !text.contains(char::is_control) { text } else { "another process".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-00000000-1111-2222-3333-444444444444";

    #[test]
    fn a_second_holder_waits_and_is_told_whom_for() {
        let folder = tempfile::tempdir().unwrap();
        let held = DeviceLock::acquire_in(folder.path(), UUID, Duration::ZERO).unwrap();
        let busy = DeviceLock::acquire_in(folder.path(), UUID, Duration::from_millis(20)).unwrap_err();
        assert!(matches!(&busy, LockError::Busy { holder, .. } if holder.contains(&std::process::id().to_string())), "{busy}");
        assert!(holder_in(folder.path(), UUID).is_some_and(|holder| holder.contains(&std::process::id().to_string())));
        DeviceLock::acquire_in(folder.path(), "GPU-other", Duration::ZERO).unwrap();
        assert_eq!((holder_in(folder.path(), "GPU-other"), holder_in(folder.path(), "GPU-none")), (None, None));
        let waiting = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| DeviceLock::acquire_in(folder.path(), UUID, Duration::from_secs(20)));
            std::thread::sleep(Duration::from_millis(30));
            drop(held);
            waiter.join().unwrap()
        });
        waiting.unwrap();
    }

    #[test]
    fn a_turn_comes_to_whoever_waits_and_a_stop_ends_the_waiting() {
        let uuid = format!("TEST-{}", std::process::id());
        let held = take_turn(&uuid, &Stop::default()).unwrap();
        let stop = Stop::default();
        stop.ask();
        assert!(matches!(take_turn(&uuid, &stop), Err(AgentError::Stopped)));
        drop(held);
        drop(take_turn(&uuid, &stop).unwrap());
        fs::remove_file(path_of(Path::new(FOLDER), &uuid).unwrap()).unwrap();
    }

    #[test]
    fn anyone_may_take_a_lock_and_no_name_leaves_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        drop(DeviceLock::acquire_in(folder.path(), UUID, Duration::ZERO).unwrap());
        let mode = fs::metadata(folder.path().join(format!("{UUID}.lock"))).unwrap().mode();
        assert_eq!(mode & 0o777, FILE_MODE);
        for name in ["", "../x", "a/b", "GPU 1"] {
            assert!(matches!(DeviceLock::acquire_in(folder.path(), name, Duration::ZERO), Err(LockError::Name(_))), "{name}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_lock_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), folder.path().join("GPU-1.lock")).unwrap();
        assert!(matches!(DeviceLock::acquire_in(folder.path(), "GPU-1", Duration::ZERO), Err(LockError::Io { .. })));
        assert!(!folder.path().join("elsewhere").exists());
    }

    #[test]
    fn a_file_that_lost_its_name_locks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("GPU-1.lock");
        let held = open(&path).unwrap();
        assert!(is_named(&held, &path));
        fs::remove_file(&path).unwrap();
        assert!(!is_named(&held, &path));
        open(&path).unwrap();
        assert!(!is_named(&held, &path));
    }

    #[test]
    fn a_folder_of_one_user_is_not_where_all_meet() {
        let folder = tempfile::tempdir().unwrap();
        assert!(usable(folder.path()).is_err());
        let shared = folder.path().join("shared");
        usable(&shared).unwrap();
        usable(&shared).unwrap();
    }
}
