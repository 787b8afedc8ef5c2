//! Blobs from the fleet's store, unpacked on this host.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use kernelopt_shared::archive::{self, ArchiveError, Limits};
use kernelopt_shared::blobs::{BlobCache, BlobError, Blobs, CachedFile};
use kernelopt_shared::bundle::{self, Bundle};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::target::Target;
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::fetch::{Fetch, FetchError, Held};

/// Most bytes of a bundle: its weights are in it.
const MOST_BUNDLE_BYTES: u64 = 64 << 30;
/// Most bytes of the optimised files of a model: source.
const MOST_FILES_BYTES: u64 = 1 << 30;
/// Most bytes of a target as JSON.
const MOST_TARGET_BYTES: u64 = 16 << 20;
/// Bundles, targets and folders of files that are kept although nobody uses them now.
const KEPT: usize = 4;
/// Processes of one host that may share a folder.
const SLOTS: u32 = 256;

/// A store, with a cache of what was fetched and of what was unpacked.
pub struct BlobStore {
    cache: BlobCache,
    scratch: PathBuf,
    bundles: Mutex<Recent<Held<Bundle>>>,
    targets: Mutex<Recent<Target>>,
    files: Mutex<Recent<Held<PathBuf>>>,
    /// Tells other processes that `scratch` is in use.
    _slot: File,
}

impl BlobStore {
    /// A store whose blobs are kept in `folder`, at most `limit_bytes` of them as they came. Other processes of the host may have the same
    /// folder. What one of them left unpacked when it died is removed.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn open(blobs: Blobs, folder: &Path, limit_bytes: u64) -> Result<Self, BlobError> {
        let cache = BlobCache::open(blobs, &folder.join("blobs"), limit_bytes)?;
        let (slot, scratch) = take_slot(folder).map_err(|source| BlobError::Io { path: folder.into(), source })?;
        Ok(Self { cache, scratch, bundles: Mutex::default(), targets: Mutex::default(), files: Mutex::default(), _slot: slot })
    }

    async fn file(&self, blob: Digest, most: u64) -> Result<CachedFile, FetchError> {
        self.cache.file(blob, most).await.map_err(|error| match error {
            BlobError::Missing(_) | BlobError::TooLarge { .. } | BlobError::Corrupt(_) | BlobError::Rejected(_) => {
                FetchError::Unusable(error.to_string())
            }
            // This host's, the network's or the store's: another agent may have better luck, and nobody's task is to blame.
            other => FetchError::Unreachable(other.to_string()),
        })
    }

    /// A folder that goes when nobody holds it.
    fn scratch(&self) -> Result<TempDir, FetchError> {
        TempDir::new_in(&self.scratch).map_err(|e| FetchError::Unreachable(format!("{}: {e}", self.scratch.display())))
    }
}

#[async_trait]
impl Fetch for BlobStore {
    async fn bundle(&self, blob: Digest) -> Result<Arc<Held<Bundle>>, FetchError> {
        let mut bundles = self.bundles.lock().await;
        if let Some(bundle) = bundles.get(blob) {
            return Ok(bundle);
        }
        let (packed, scratch) = (self.file(blob, MOST_BUNDLE_BYTES).await?, self.scratch()?);
        let unpack = move || {
            let bundle = bundle::unpack(packed.path(), &scratch.path().join("bundle"), MOST_BUNDLE_BYTES);
            bundle.map(|bundle| Held::new(bundle, scratch)).map_err(|error| match error {
                bundle::PackError::Archive(error) => of_archive(&error),
                bundle::PackError::Bundle(error) => FetchError::Unusable(error.to_string()),
            })
        };
        Ok(bundles.keep(blob, blocking(unpack).await?))
    }

    async fn target(&self, blob: Digest) -> Result<Arc<Target>, FetchError> {
        let mut targets = self.targets.lock().await;
        if let Some(target) = targets.get(blob) {
            return Ok(target);
        }
        let file = self.file(blob, MOST_TARGET_BYTES).await?;
        let read = move || {
            let text = fs::read(file.path()).map_err(|e| FetchError::Unreachable(format!("{}: {e}", file.path().display())))?;
            serde_json::from_slice(&text).map_err(|e| FetchError::Unusable(format!("blob {blob} is no target: {e}")))
        };
        Ok(targets.keep(blob, blocking(read).await?))
    }

    async fn files(&self, blob: Digest) -> Result<Arc<Held<PathBuf>>, FetchError> {
        let mut files = self.files.lock().await;
        if let Some(folder) = files.get(blob) {
            return Ok(folder);
        }
        let (packed, scratch) = (self.file(blob, MOST_FILES_BYTES).await?, self.scratch()?);
        let unpack = move || {
            let folder = scratch.path().join("files");
            let limits = Limits { bytes: MOST_FILES_BYTES, ..Limits::default() };
            archive::unpack(packed.path(), &folder, limits, |_| Ok::<_, ArchiveError>(())).map_err(|error| of_archive(&error))?;
            Ok(Held::new(folder, scratch))
        };
        Ok(files.keep(blob, blocking(unpack).await?))
    }
}

/// An archive that is none, or a disk that is full.
fn of_archive(error: &ArchiveError) -> FetchError {
    match error {
        ArchiveError::Io { .. } | ArchiveError::There(_) => FetchError::Unreachable(error.to_string()),
        ArchiveError::Torn { .. } | ArchiveError::Entry { .. } | ArchiveError::Limit { .. } => FetchError::Unusable(error.to_string()),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, FetchError> + Send + 'static) -> Result<T, FetchError> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(FetchError::Unreachable(format!("unpacking broke: {error}"))))
}

/// The first folder of its kind that no living process has, emptied.
fn take_slot(folder: &Path) -> io::Result<(File, PathBuf)> {
    for slot in 0..SLOTS {
        let scratch = folder.join(format!("unpacked-{slot}"));
        let lock = File::create(folder.join(format!("unpacked-{slot}.lock")))?;
        if lock.try_lock().is_ok() {
            if scratch.exists() {
                fs::remove_dir_all(&scratch)?;
            }
            fs::create_dir(&scratch)?;
            return Ok((lock, scratch));
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("{SLOTS} processes use it")))
}

/// The last few, by name.
struct Recent<T>(VecDeque<(Digest, Arc<T>)>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Recent<T> {
    fn get(&mut self, name: Digest) -> Option<Arc<T>> {
        let index = self.0.iter().position(|(known, _)| *known == name)?;
        let found = self.0.remove(index)?;
        self.0.push_back(found.clone());
        Some(found.1)
    }

    fn keep(&mut self, name: Digest, value: T) -> Arc<T> {
        let value = Arc::new(value);
        self.0.push_back((name, Arc::clone(&value)));
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use kernelopt_shared::blobs::BlobOptions;

    use super::*;
    use crate::service::Canary;

    fn store(folder: &Path) -> (Blobs, BlobStore) {
        let blobs = Blobs::open(&BlobOptions::new("memory:")).unwrap();
        (blobs.clone(), BlobStore::open(blobs, folder, 1 << 30).unwrap())
    }

    #[tokio::test]
    async fn bundles_targets_and_files_come_unpacked_and_go_with_their_last_user() {
        let folder = tempfile::tempdir().unwrap();
        let (blobs, store) = store(folder.path());
        let captured = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/bundles/softmax_cuda");
        let packed = folder.path().join("bundle.tar");
        bundle::pack(&captured, &packed).unwrap();
        let blob = blobs.put_file(&packed).await.unwrap();
        let bundle = store.bundle(blob).await.unwrap();
        assert_eq!(bundle.digest, Bundle::open(&captured).unwrap().digest);
        assert!(Arc::ptr_eq(&bundle, &store.bundle(blob).await.unwrap()), "unpacked once");

        let target = Canary::cpu().unwrap().target;
        let name = blobs.put(serde_json::to_vec(&target).unwrap().into()).await.unwrap();
        assert_eq!(*store.target(name).await.unwrap(), target);

        // The manifest of one bundle as the optimised files of another.
        archive::pack(&captured, ["manifest.json"], &folder.path().join("files.tar")).unwrap();
        let name = blobs.put_file(&folder.path().join("files.tar")).await.unwrap();
        let files = store.files(name).await.unwrap();
        assert!(files.join("manifest.json").exists());

        let (root, unpacked) = (bundle.root.clone(), files.to_path_buf());
        drop(store);
        assert!(root.exists() && unpacked.exists(), "who holds it has it");
        drop((bundle, files));
        assert!(!root.exists() && !unpacked.exists());
    }

    #[tokio::test]
    async fn what_is_no_bundle_is_told_from_a_host_that_cannot_fetch() {
        let folder = tempfile::tempdir().unwrap();
        let (blobs, store) = store(folder.path());
        let junk = blobs.put(b"junk".to_vec().into()).await.unwrap();
        let missing = Digest::of([b"missing".as_slice()]);
        for blob in [junk, missing] {
            assert!(matches!(store.bundle(blob).await, Err(FetchError::Unusable(_))));
            assert!(matches!(store.target(blob).await, Err(FetchError::Unusable(_))));
            assert!(matches!(store.files(blob).await, Err(FetchError::Unusable(_))));
        }
        let nobody = BlobOptions { deadline: std::time::Duration::from_millis(200), ..BlobOptions::new("http://127.0.0.1:9/v1/blobs") };
        let away = BlobStore::open(Blobs::open(&nobody).unwrap(), folder.path(), 1 << 30).unwrap();
        assert!(matches!(away.bundle(Digest::of([b"away".as_slice()])).await, Err(FetchError::Unreachable(_))));
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_a_living_ones_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (living, scratch) = take_slot(folder.path()).unwrap();
        fs::write(scratch.join("mine"), "").unwrap();
        let (_other, elsewhere) = take_slot(folder.path()).unwrap();
        assert!(elsewhere != scratch && scratch.join("mine").exists());
        drop(living);
        let (_heir, inherited) = take_slot(folder.path()).unwrap();
        assert!(inherited == scratch && !scratch.join("mine").exists());
    }
}
