//! What tasks need besides themselves.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::target::Target;
use tempfile::TempDir;

/// Why something cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Not the task's fault, and perhaps not for long: it is tried again.
    #[error("what it needs cannot be fetched here: {0}")]
    Unreachable(String),
    /// It is not there, or not what its name says: trying again is no use.
    #[error("{0}")]
    Unusable(String),
}

/// Something in a folder that is there for as long as this is held.
#[derive(Debug)]
pub struct Held<T> {
    value: T,
    _folder: Option<TempDir>,
}

impl<T> Held<T> {
    /// In a folder that goes with it.
    pub fn new(value: T, folder: TempDir) -> Self {
        Self { value, _folder: Some(folder) }
    }

    /// In a folder that is somebody else's.
    pub const fn elsewhere(value: T) -> Self {
        Self { value, _folder: None }
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Gets blobs by name. Calls may be given up at any time.
#[async_trait]
pub trait Fetch: Send + Sync + 'static {
    /// A bundle, unpacked and checked.
    async fn bundle(&self, blob: Digest) -> Result<Arc<Held<Bundle>>, FetchError>;

    /// A target.
    async fn target(&self, blob: Digest) -> Result<Arc<Target>, FetchError>;

    /// A folder of files, unpacked.
    async fn files(&self, blob: Digest) -> Result<Arc<Held<PathBuf>>, FetchError>;
}
