//! Files that callers upload and batches leave behind, each of one key and seen by no other.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::document::now;
use super::{disk, new_id, read_whole, write_whole};
use crate::dialect::{Fault, Problem};
use crate::names::KeyName;

/// Most files of one key.
const MOST_FILES: usize = 2000;
/// Longest name of a file, in characters.
const LONGEST_NAME: usize = 200;

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its name here.
    pub id: String,
    /// Whose it is.
    pub key: KeyName,
    /// Its name there.
    pub filename: String,
    /// `batch`, or `batch_output`.
    pub purpose: String,
    /// Its length.
    pub bytes: u64,
    /// When it was made, in seconds since 1970.
    pub created_at: u64,
}

impl File {
    /// As OpenAI shows it.
    pub fn shown(&self) -> Value {
        json!({
            "id": self.id, "object": "file", "bytes": self.bytes, "created_at": self.created_at, "filename": self.filename,
            "purpose": self.purpose, "status": "processed", "expires_at": null, "status_details": null,
        })
    }
}

/// All files of a gateway.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    all: Mutex<BTreeMap<String, File>>,
}

/// A file that is coming.
pub struct Upload {
    content: tokio::fs::File,
    place: tempfile::TempPath,
    bytes: u64,
}

impl Files {
    /// Those in a folder.
    ///
    /// # Errors
    /// It cannot be written or read.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let all = read_whole::<File>(folder)?.into_iter().map(|file| (file.id.clone(), file)).collect();
        Ok(Self { folder: folder.into(), all: Mutex::new(all) })
    }

    /// Begins to take one.
    ///
    /// # Errors
    /// The key has too many, or the disk fails.
    pub fn begin(&self, key: &KeyName) -> Result<Upload, Problem> {
        if self.lock().values().filter(|file| file.key == *key).count() >= MOST_FILES {
            return Err(Problem::new(Fault::Invalid, format!("a key has at most {MOST_FILES} files: delete some")));
        }
        let (content, place) = tempfile::NamedTempFile::new_in(&self.folder).map_err(|error| disk(&error))?.into_parts();
        Ok(Upload { content: tokio::fs::File::from_std(content), place, bytes: 0 })
    }

    /// Keeps what has come.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn keep(&self, mut upload: Upload, key: &KeyName, filename: &str, purpose: &str) -> Result<File, Problem> {
        upload.content.flush().await.map_err(|error| disk(&error))?;
        upload.content.sync_data().await.map_err(|error| disk(&error))?;
        let file = self.facts(new_id("file-"), key, filename, purpose, upload.bytes);
        upload.place.persist(self.path(&file.id)).map_err(|error| disk(&error.error))?;
        self.register(&file).map_err(|error| disk(&error))?;
        Ok(file)
    }

    fn facts(&self, id: String, key: &KeyName, filename: &str, purpose: &str, bytes: u64) -> File {
        let filename = filename.chars().filter(|c| !c.is_control()).take(LONGEST_NAME).collect();
        File { id, key: key.clone(), filename, purpose: purpose.into(), bytes, created_at: now() }
    }

    /// A file that a batch has written at [`Files::path`] is a file like any other now.
    pub(super) fn adopt(&self, id: &str, key: &KeyName, filename: &str) -> io::Result<()> {
        let bytes = std::fs::metadata(self.path(id))?.len();
        self.register(&self.facts(id.into(), key, filename, "batch_output", bytes))
    }

    fn register(&self, file: &File) -> io::Result<()> {
        write_whole(&self.folder.join(format!("{}.json", file.id)), file)?;
        self.lock().insert(file.id.clone(), file.clone());
        Ok(())
    }

    /// A file of this key.
    ///
    /// # Errors
    /// There is none.
    pub fn get(&self, key: &KeyName, id: &str) -> Result<File, Problem> {
        let found = self.lock().get(id).filter(|file| file.key == *key).cloned();
        found.ok_or_else(|| Problem::new(Fault::NotFound, "there is no such file"))
    }

    /// All files of this key, the newest first.
    pub fn list(&self, key: &KeyName) -> Vec<File> {
        let mut files: Vec<File> = self.lock().values().filter(|file| file.key == *key).cloned().collect();
        files.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        files
    }

    /// Takes a file of this key away.
    ///
    /// # Errors
    /// There is none, or the disk fails.
    pub fn delete(&self, key: &KeyName, id: &str) -> Result<(), Problem> {
        let file = self.get(key, id)?;
        self.lock().remove(&file.id);
        let gone = |path: PathBuf| match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(disk(&error)),
            _ => Ok(()),
        };
        gone(self.folder.join(format!("{}.json", file.id)))?;
        gone(self.path(&file.id))
    }

    /// Where the content of a file is. `id` is one that was given here.
    pub fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.jsonl"))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, File>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upload {
    /// Takes a piece.
    ///
    /// # Errors
    /// It is more than `most` bytes in all, or the disk fails.
    pub async fn take(&mut self, piece: &[u8], most: u64) -> Result<(), Problem> {
        self.bytes += piece.len() as u64;
        if self.bytes > most {
            return Err(Problem::new(Fault::TooLarge, format!("a file has at most {most} bytes")));
        }
        self.content.write_all(piece).await.map_err(|error| disk(&error))
    }
}
