//! Blobs on an agent's own disk.
//!
//! A file in use is locked by whoever uses it (flock(2), shared); who makes room takes only what it can lock alone. That holds between
//! processes too, so that the agents of one host share a folder, and is undone by the kernel when one is killed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tempfile::TempPath;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::{BlobError, Blobs};
use crate::digest::Digest;

/// A cache of blobs in a folder of limited size; the least recently used go first.
#[derive(Clone, Debug)]
pub struct BlobCache {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    blobs: Blobs,
    folder: PathBuf,
    limit_bytes: u64,
    /// One download at a time: agents fetch few and large blobs, and two who want the same one fetch it once.
    download: Mutex<()>,
}

/// A blob's file, there as long as this is held.
#[derive(Debug)]
pub struct CachedFile {
    path: PathBuf,
    /// Holds the lock.
    file: File,
}

impl CachedFile {
    /// Where it is. Not to be written to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, at its start.
    pub const fn file(&self) -> &File {
        &self.file
    }
}

impl BlobCache {
    /// Opens a cache of at most `limit_bytes`, and files in use beyond that. What an earlier process left half done is removed.
    ///
    /// # Errors
    /// The folder cannot be made or read.
    pub fn open(blobs: Blobs, folder: &Path, limit_bytes: u64) -> Result<Self, BlobError> {
        let parts = parts(folder);
        fs::create_dir_all(&parts).map_err(BlobError::io(&parts))?;
        for entry in fs::read_dir(&parts).map_err(BlobError::io(&parts))?.flatten() {
            let path = entry.path();
            // One that another process is writing is locked.
            if File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
                let _ = fs::remove_file(path);
            }
        }
        Ok(Self { shared: Arc::new(Shared { blobs, folder: folder.into(), limit_bytes, download: Mutex::default() }) })
    }

    /// A blob of at most `most_bytes` as a file, fetched where it is not here.
    ///
    /// # Errors
    /// As [`Blobs::get`]'s, the disk's, or it is larger than the whole cache.
    pub async fn file(&self, of: Digest, most_bytes: u64) -> Result<CachedFile, BlobError> {
        let here = async || {
            blocking({
                let shared = Arc::clone(&self.shared);
                move || shared.take(of)
            })
            .await
        };
        loop {
            if let Some(cached) = here().await? {
                return cached.at_most(of, most_bytes);
            }
            let _turn = self.shared.download.lock().await;
            // Somebody else may have fetched it while we waited.
            match here().await? {
                Some(cached) => return cached.at_most(of, most_bytes),
                None => self.fetch(of, most_bytes).await?,
            }
            // Taken in the next round; another process may have thrown it out by then.
        }
    }

    async fn fetch(&self, of: Digest, most_bytes: u64) -> Result<(), BlobError> {
        let shared = Arc::clone(&self.shared);
        let bytes = shared.blobs.size(of).await?.ok_or(BlobError::Missing(of))?;
        let most = most_bytes.min(shared.limit_bytes);
        if bytes > most {
            return Err(BlobError::TooLarge { what: format!("blob {of}"), bytes, most });
        }
        let (file, part) = blocking({
            let shared = Arc::clone(&shared);
            move || {
                shared.make_room(bytes)?;
                shared.part()
            }
        })
        .await?;
        let mut file = tokio::fs::File::from_std(file);
        shared.blobs.get_into(of, most, &part, &mut file).await?;
        // Still locked while it gets its name.
        let file = file.into_std().await;
        blocking(move || {
            let path = shared.path(of);
            part.persist(&path).map_err(|e| BlobError::Io { path, source: e.error })?;
            drop(file);
            Ok(())
        })
        .await
    }
}

impl Shared {
    fn path(&self, of: Digest) -> PathBuf {
        self.folder.join(of.to_string())
    }

    /// A new file to write to, locked.
    fn part(&self) -> Result<(File, TempPath), BlobError> {
        let parts = parts(&self.folder);
        let (file, path) = tempfile::NamedTempFile::new_in(&parts).map_err(BlobError::io(&parts))?.into_parts();
        file.lock_shared().map_err(BlobError::io(path.to_path_buf()))?;
        Ok((file, path))
    }

    /// The file of a blob, locked and marked as used; `None` where it is not here.
    fn take(&self, of: Digest) -> Result<Option<CachedFile>, BlobError> {
        let path = self.path(of);
        let taken = || -> io::Result<Option<File>> {
            let file = match File::open(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
            file.lock_shared()?;
            // Between the two it may have been thrown out: then it has no name any more.
            if file.metadata()?.nlink() == 0 {
                return Ok(None);
            }
            file.set_modified(SystemTime::now())?;
            Ok(Some(file))
        };
        let file = taken().map_err(BlobError::io(&path))?;
        Ok(file.map(|file| CachedFile { path, file }))
    }

    /// Throws out the least recently used until `bytes` more fit. What is in use stays, though it be too much.
    fn make_room(&self, bytes: u64) -> Result<(), BlobError> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(BlobError::io(&self.folder))?.flatten() {
            // One may vanish meanwhile: another process makes room as well.
            if let Ok(meta) = entry.metadata()
                && meta.is_file()
                && let Ok(used) = meta.modified()
            {
                files.push((used, meta.len(), entry.path()));
            }
        }
        files.sort();
        let mut total = bytes + files.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
        for (_, bytes, path) in files {
            if total <= self.limit_bytes {
                return Ok(());
            }
            if throw_out(&path).map_err(BlobError::io(&path))? {
                total -= bytes;
            }
        }
        if total > self.limit_bytes {
            tracing::warn!(total, limit = self.limit_bytes, folder = %self.folder.display(), "the blob cache is over its limit: all of it is in use");
        }
        Ok(())
    }
}

impl CachedFile {
    fn at_most(self, of: Digest, most: u64) -> Result<Self, BlobError> {
        let bytes = self.file.metadata().map_err(BlobError::io(&self.path))?.len();
        if bytes > most { Err(BlobError::TooLarge { what: format!("blob {of}"), bytes, most }) } else { Ok(self) }
    }
}

fn parts(folder: &Path) -> PathBuf {
    folder.join("parts")
}

/// Removes a file that nobody uses. True where it is gone.
fn throw_out(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        opened => opened?,
    };
    match file.try_lock() {
        Ok(()) => fs::remove_file(path).map(|()| true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Runs what waits for the disk off the runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, BlobError> + Send + 'static) -> Result<T, BlobError> {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(BlobError::Unavailable("the process ends".into())),
        },
    }
}
