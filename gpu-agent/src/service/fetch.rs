//! What tasks need besides themselves.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::target::Target;

/// Why something cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Nobody's fault and perhaps not for long: it is tried again.
    #[error("the store of blobs cannot be reached: {0}")]
    Unreachable(String),
    /// It is not there, or not what its name says: trying again is no use.
    #[error("{0}")]
    Unusable(String),
}

/// Gets blobs by name. Calls may be given up at any time.
#[async_trait]
pub trait Fetch: Send + Sync + 'static {
    /// A bundle, unpacked and checked.
    async fn bundle(&self, blob: Digest) -> Result<Arc<Bundle>, FetchError>;

    /// A target.
    async fn target(&self, blob: Digest) -> Result<Arc<Target>, FetchError>;

    /// A folder of files, unpacked.
    async fn files(&self, blob: Digest) -> Result<PathBuf, FetchError>;
}
