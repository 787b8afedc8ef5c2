//! The output folder of a job: one job, one writer, and outputs that appear whole or not at all.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kernelopt_shared::digest::Digest;
use kernelopt_shared::exit::{ExitCode, UserError};

use crate::journal::JOURNAL;

/// Lock file of the one writer.
const LOCK: &str = ".lock";

/// A job's folder, held by this process until dropped.
#[derive(Debug)]
pub struct JobFolder {
    root: PathBuf,
    _lock: File,
}

/// Why an output folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum FolderError {
    #[error("{}: {doing}: {source}", path.display())]
    Io { path: PathBuf, doing: &'static str, source: io::Error },
    #[error("{}: holds other files than a job's", path.display())]
    Foreign { path: PathBuf },
    #[error("{}: already holds a job of this bundle", path.display())]
    HasJob { path: PathBuf },
    #[error("{}: holds a job of another bundle ({found}, not {expected})", path.display())]
    OtherBundle { path: PathBuf, found: Digest, expected: Digest },
    #[error("{}: another process is working in it", path.display())]
    Locked { path: PathBuf },
}

impl UserError for FolderError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Output
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "Free some space, then run the same command with --resume.".into()
            }
            Self::Io { .. } => "Check that the folder exists on a disk that can be written.".into(),
            Self::Foreign { .. } | Self::OtherBundle { .. } => "Choose another folder with -o.".into(),
            Self::HasJob { .. } => "Add --resume to go on with it, or choose another folder with -o.".into(),
            Self::Locked { .. } => "Wait for it to end, or stop it.".into(),
        })
    }
}

impl JobFolder {
    /// Takes the folder at `root`, making it where there is none. A folder that holds anything but a job is refused.
    pub fn take(root: &Path) -> Result<Self, FolderError> {
        let io_error = |doing| move |source| FolderError::Io { path: root.into(), doing, source };
        fs::create_dir_all(root).map_err(io_error("making the output folder"))?;
        let foreign = || -> io::Result<bool> {
            let names: Vec<_> = fs::read_dir(root)?.map(|entry| entry.map(|e| e.file_name())).collect::<io::Result<_>>()?;
            Ok(!names.is_empty() && !names.iter().any(|name| name == JOURNAL || name == LOCK))
        };
        if foreign().map_err(io_error("reading the output folder"))? {
            return Err(FolderError::Foreign { path: root.into() });
        }
        let lock =
            File::options().create(true).truncate(false).write(true).open(root.join(LOCK)).map_err(io_error("opening the lock file"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { root: root.into(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(FolderError::Locked { path: root.into() }),
            Err(TryLockError::Error(source)) => Err(io_error("locking the output folder")(source)),
        }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes a file whole: readers see the old content or the new, never a part.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), FolderError> {
        let path = self.root.join(name);
        write_whole(&path, content).map_err(|source| FolderError::Io { path, doing: "writing", source })
    }

    /// Replaces the folder `name` by one that holds `files`: readers see the old one or the new.
    pub fn write_folder(&self, name: &str, files: &[(String, Vec<u8>)]) -> Result<PathBuf, FolderError> {
        let path = self.root.join(name);
        replace_folder(&path, files).map_err(|source| FolderError::Io { path: path.clone(), doing: "writing", source })?;
        Ok(path)
    }
}

fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    set_plain_mode(file.path(), 0o644)?;
    file.persist(path).map_err(|e| e.error)?;
    File::open(folder)?.sync_all()
}

fn replace_folder(path: &Path, files: &[(String, Vec<u8>)]) -> io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let fresh = tempfile::TempDir::new_in(parent)?;
    for (name, content) in files {
        let mut file = File::create_new(fresh.path().join(name))?;
        file.write_all(content)?;
        file.sync_all()?;
    }
    set_plain_mode(fresh.path(), 0o755)?;
    // A folder cannot be replaced in one step: the old one is moved aside first, so at no time is there half of one.
    let old = tempfile::TempDir::new_in(parent)?;
    if path.exists() {
        fs::rename(path, old.path().join("old"))?;
    }
    fs::rename(fresh.keep(), path)?;
    File::open(parent)?.sync_all()
}

/// Temporary files are private; outputs are for everybody.
fn set_plain_mode(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = JobFolder::take(folder.path()).unwrap();
        assert!(matches!(JobFolder::take(folder.path()), Err(FolderError::Locked { .. })));
        drop(first);
        JobFolder::take(folder.path()).unwrap();
    }

    #[test]
    fn a_folder_with_other_files_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.tex"), "x").unwrap();
        assert!(matches!(JobFolder::take(folder.path()), Err(FolderError::Foreign { .. })));
    }

    #[test]
    fn a_folder_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let job = JobFolder::take(folder.path()).unwrap();
        job.write_folder("optimized", &[("a".into(), b"1".to_vec()), ("b".into(), b"2".to_vec())]).unwrap();
        job.write_folder("optimized", &[("a".into(), b"3".to_vec())]).unwrap();
        let names: Vec<_> = fs::read_dir(folder.path().join("optimized")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["a"]);
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}
