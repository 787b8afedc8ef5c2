//! A folder as one file: a tar archive of plain files, and nothing else of what tar can say.
//!
//! Entries are POSIX ustar (IEEE 1003.1-2001), read raw: no links, devices, owners or sparse files, and no extended headers either, since
//! those hold names and sizes of any length. A name has at most 255 bytes that way.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Component, Path, PathBuf};

use tar::{Archive, Builder, EntryType, Header};

use crate::exit::{ExitCode, UserError};

/// What an archive may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of all files together.
    pub bytes: u64,
    /// Most files.
    pub files: usize,
    /// Most parts of a path.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 64 << 30, files: 10_000, depth: 16 }
    }
}

/// Why an archive was not made or not unpacked.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum ArchiveError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: not a whole archive: {source}", path.display())]
    Torn { path: PathBuf, source: io::Error },
    #[error("{}: {name:?}: {why}", path.display())]
    Entry { path: PathBuf, name: String, why: &'static str },
    #[error("{}: more than {most} {what}", path.display())]
    Limit { path: PathBuf, what: &'static str, most: u64 },
    #[error("{}: already there", .0.display())]
    There(PathBuf),
}

impl UserError for ArchiveError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Io { .. } | Self::There(_) => ExitCode::Output,
            _ => ExitCode::BadInput,
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Io { .. } => "Check the path, its permissions and the free space.".into(),
            Self::Torn { .. } | Self::Entry { .. } => "Pack and send it again.".into(),
            Self::Limit { .. } => return None,
            Self::There(_) => "Move it away, or give another name.".into(),
        })
    }
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> ArchiveError {
    move |source| ArchiveError::Io { path: path.into(), source }
}

/// Writes the files `names` of `folder` to the new archive `to`: its size in bytes. Only names and contents go in, so the same files make the
/// same archive.
///
/// # Errors
/// A name is no plain path of at most 255 bytes, a file is none or changes meanwhile, or `to` cannot be written; then there is none.
pub fn pack<'a>(folder: &Path, names: impl IntoIterator<Item = &'a str>, to: &Path) -> Result<u64, ArchiveError> {
    let beside = parent(to);
    let temporary = tempfile::NamedTempFile::new_in(beside).map_err(io_error(beside))?;
    pack_into(folder, names, BufWriter::new(temporary.as_file()), to)?;
    let bytes = temporary.as_file().metadata().map_err(io_error(to))?.len();
    temporary.persist(to).map_err(|e| io_error(to)(e.error))?;
    Ok(bytes)
}

/// Writes the archive of [`pack`] to `out`, which errors call `called`.
///
/// # Errors
/// As [`pack`]'s; then `out` has a part of it.
pub fn pack_into<'a>(folder: &Path, names: impl IntoIterator<Item = &'a str>, out: impl Write, called: &Path) -> Result<(), ArchiveError> {
    let mut archive = Builder::new(out);
    for name in names {
        let entry = |why| ArchiveError::Entry { path: folder.into(), name: name.into(), why };
        plain(name.as_bytes(), usize::MAX).map_err(entry)?;
        let path = folder.join(name);
        let mut file = File::open(&path).map_err(io_error(&path))?;
        let meta = file.metadata().map_err(io_error(&path))?;
        if !meta.is_file() {
            return Err(entry("not a file"));
        }
        let header = header(name, meta.len()).map_err(entry)?;
        let mut whole = (&mut file).take(meta.len());
        archive.append(&header, &mut whole).map_err(io_error(called))?;
        if whole.limit() > 0 {
            return Err(entry("it became shorter while it was read"));
        }
    }
    archive.into_inner().and_then(|mut out| out.flush()).map_err(io_error(called))
}

/// The archive of [`pack`] of files that are in memory, by name.
///
/// # Errors
/// A name is no plain path of at most 255 bytes.
pub fn pack_bytes<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Vec<u8>, ArchiveError> {
    let memory = Path::new("memory");
    let mut archive = Builder::new(Vec::new());
    for (name, content) in files {
        let entry = |why| ArchiveError::Entry { path: memory.into(), name: name.into(), why };
        plain(name.as_bytes(), usize::MAX).map_err(entry)?;
        archive.append(&header(name, content.len() as u64).map_err(entry)?, content).map_err(io_error(memory))?;
    }
    archive.into_inner().map_err(io_error(memory))
}

fn header(name: &str, bytes: u64) -> Result<Header, &'static str> {
    let mut header = Header::new_ustar();
    header.set_path(name).map_err(|_| "a name that is too long for an archive")?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(bytes);
    header.set_cksum();
    Ok(header)
}

/// Makes the new folder `to` of the archive `from`, if `check` finds what was unpacked good. The archive is not trusted.
///
/// # Errors
/// It is torn, holds anything but plain files, or breaks a limit; or `check`'s. Then there is no folder.
pub fn unpack<T, E: From<ArchiveError>>(from: &Path, to: &Path, limits: Limits, check: impl FnOnce(&Path) -> Result<T, E>) -> Result<T, E> {
    if to.exists() {
        return Err(ArchiveError::There(to.into()).into());
    }
    // Beside it, so that the last step is a rename.
    let beside = parent(to);
    let temporary = tempfile::Builder::new().prefix(".unpack-").tempdir_in(beside).map_err(io_error(beside))?;
    extract(from, temporary.path(), limits)?;
    let checked = check(temporary.path())?;
    fs::rename(temporary.path(), to).map_err(io_error(to))?;
    // It has another name by now: there is nothing left to remove.
    let _ = temporary.keep();
    Ok(checked)
}

fn extract(from: &Path, folder: &Path, limits: Limits) -> Result<(), ArchiveError> {
    let torn = |source| ArchiveError::Torn { path: from.into(), source };
    let limit = |what, most| ArchiveError::Limit { path: from.into(), what, most };
    let file = File::open(from).map_err(io_error(from))?;
    let mut archive = Archive::new(BufReader::new(file));
    let (mut bytes, mut names) = (0u64, BTreeSet::new());
    for entry in archive.entries().map_err(torn)?.raw(true) {
        let mut entry = entry.map_err(torn)?;
        let name = entry.path_bytes().into_owned();
        let bad = |why| ArchiveError::Entry { path: from.into(), name: String::from_utf8_lossy(&name).into_owned(), why };
        if entry.header().entry_type() != EntryType::Regular {
            return Err(bad("not a plain file"));
        }
        let path = plain(&name, limits.depth).map_err(bad)?;
        if !names.insert(path.to_owned()) {
            return Err(bad("there twice"));
        }
        if names.len() > limits.files {
            return Err(limit("files", limits.files as u64));
        }
        let size = entry.header().entry_size().map_err(torn)?;
        bytes = bytes.checked_add(size).filter(|bytes| *bytes <= limits.bytes).ok_or_else(|| limit("bytes", limits.bytes))?;
        write(&mut entry, size, &folder.join(path)).map_err(|(path, source)| match path {
            Some(path) => ArchiveError::Io { path, source },
            None => torn(source),
        })?;
    }
    Ok(())
}

/// Copies an entry; an error has a path where it is the file's, none where it is the archive's.
fn write(entry: &mut impl Read, size: u64, to: &Path) -> Result<(), (Option<PathBuf>, io::Error)> {
    let here = |source| (Some(to.into()), source);
    fs::create_dir_all(parent(to)).map_err(here)?;
    let mut file = File::create_new(to).map_err(here)?;
    let mut chunk = vec![0u8; 1 << 18];
    let mut written = 0;
    loop {
        let read = entry.read(&mut chunk).map_err(|source| (None, source))?;
        if read == 0 {
            break;
        }
        file.write_all(&chunk[..read]).map_err(here)?;
        written += read as u64;
    }
    if written == size { Ok(()) } else { Err((None, io::ErrorKind::UnexpectedEof.into())) }
}

/// A name as a path below a folder.
fn plain(name: &[u8], depth: usize) -> Result<&Path, &'static str> {
    let text = str::from_utf8(name).map_err(|_| "a name that is no UTF-8")?;
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err("a name that is empty or has control characters");
    }
    // As text, since `a//b`, `a/.` and `a/` are the same path in other words.
    if text.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("not a plain path below the folder");
    }
    let path = Path::new(text);
    if path.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err("not a plain path below the folder");
    }
    if text.split('/').count() > depth { Err("too deep") } else { Ok(path) }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
