//! What tasks need, where the agent and the bundle are of one process: nothing is packed or copied.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use kernelopt_gpu_agent::service::{Fetch, FetchError, Held};
use kernelopt_shared::archive::{self, ArchiveError, Limits};
use kernelopt_shared::blobs::Blobs;
use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::target::Target;
use tempfile::TempDir;

/// Largest document.
const MOST_BYTES: u64 = 1 << 30;

/// One bundle on this host, and the documents of its coordinator.
pub struct LocalFetch {
    bundle: Arc<Held<Bundle>>,
    blobs: Blobs,
    /// The target that was asked for last: tasks come in runs of one target.
    target: Mutex<Option<(Digest, Arc<Target>)>>,
}

impl LocalFetch {
    /// For tasks on `bundle`, whose documents are in `blobs`.
    pub fn new(bundle: Bundle, blobs: Blobs) -> Self {
        Self { bundle: Arc::new(Held::elsewhere(bundle)), blobs, target: Mutex::default() }
    }

    async fn document(&self, blob: Digest) -> Result<bytes::Bytes, FetchError> {
        self.blobs.get(blob, MOST_BYTES).await.map_err(|e| FetchError::Unusable(e.to_string()))
    }
}

#[async_trait]
impl Fetch for LocalFetch {
    async fn bundle(&self, _blob: Digest) -> Result<Arc<Held<Bundle>>, FetchError> {
        Ok(self.bundle.clone())
    }

    async fn target(&self, blob: Digest) -> Result<Arc<Target>, FetchError> {
        let last = self.target.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, target)) = last.filter(|(of, _)| *of == blob) {
            return Ok(target);
        }
        let target: Target = serde_json::from_slice(&self.document(blob).await?).map_err(|e| FetchError::Unusable(e.to_string()))?;
        let target = Arc::new(target);
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some((blob, target.clone()));
        Ok(target)
    }

    async fn files(&self, blob: Digest) -> Result<Arc<Held<PathBuf>>, FetchError> {
        let unusable = |e: &dyn std::fmt::Display| FetchError::Unusable(format!("unpacking the optimised files: {e}"));
        let packed = self.document(blob).await?;
        let folder = TempDir::with_prefix("kernelopt-").map_err(|e| unusable(&e))?;
        let (archive, files) = (folder.path().join("archive"), folder.path().join("files"));
        std::fs::write(&archive, packed).map_err(|e| unusable(&e))?;
        archive::unpack(&archive, &files, Limits::default(), |_| Ok::<_, ArchiveError>(())).map_err(|e| unusable(&e))?;
        Ok(Arc::new(Held::new(files, folder)))
    }
}
