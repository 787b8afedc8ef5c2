//! Blobs in a folder or a bucket.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as Location;
use object_store::prefix::PrefixStore;
use object_store::{ClientConfigKey, Error, ObjectStore, ObjectStoreExt, RetryConfig, WriteMultipart};
use tokio::time::timeout;
use url::Url;

use super::{BlobError, BlobOptions, CHUNK, Pieces, Store, allowance};
use crate::digest::Digest;

/// Parts of one upload under way at once; each is in memory.
const AT_ONCE: usize = 4;

/// A store of the `object_store` crate. A blob lies under its first two digits, since folders of many thousand files are slow.
#[derive(Debug)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    deadline: Duration,
}

impl Objects {
    /// By address: a path, `file:`, `s3:`, `gs:` or `memory:`.
    pub fn open(options: &BlobOptions) -> Result<Self, BlobError> {
        let address = options.address.as_str();
        let bad = |what: &dyn std::fmt::Display| BlobError::Options(format!("{address}: {what}"));
        let deadline = options.deadline;
        // Repeated within the deadline; what is asked of a bucket may be asked twice.
        let retry = RetryConfig { retry_timeout: deadline, ..RetryConfig::default() };
        let store: Arc<dyn ObjectStore> = match address.split_once(':') {
            Some(("memory", "")) => Arc::new(InMemory::new()),
            Some(("file", rest)) => {
                // `file:x` would be `/x` to the parser.
                let url = Url::parse(address).ok().filter(|_| rest.starts_with("///"));
                let path = url.and_then(|url| url.to_file_path().ok()).ok_or_else(|| bad(&"write file:///PATH"))?;
                folder(path)?
            }
            Some((scheme @ ("s3" | "gs"), _)) => {
                crate::tls::install();
                let url = Url::parse(address).map_err(|e| bad(&e))?;
                if url.host_str().is_none_or(str::is_empty) {
                    return Err(bad(&"no bucket"));
                }
                let prefix = Location::from_url_path(url.path()).map_err(|e| bad(&e))?;
                if scheme == "s3" {
                    let builder = AmazonS3Builder::from_env().with_url(address).with_retry(retry);
                    let set = |builder: AmazonS3Builder, (key, value)| builder.with_config(AmazonS3ConfigKey::Client(key), value);
                    let store = limits(deadline).into_iter().fold(builder, set).build();
                    Arc::new(PrefixStore::new(store.map_err(|e| bad(&e))?, prefix))
                } else {
                    let builder = GoogleCloudStorageBuilder::from_env().with_url(address).with_retry(retry);
                    let set = |builder: GoogleCloudStorageBuilder, (key, value)| builder.with_config(GoogleConfigKey::Client(key), value);
                    let store = limits(deadline).into_iter().fold(builder, set).build();
                    Arc::new(PrefixStore::new(store.map_err(|e| bad(&e))?, prefix))
                }
            }
            Some((scheme, rest)) if rest.starts_with("//") => return Err(bad(&format!("no store is reached by {scheme}:"))),
            _ if address.is_empty() => return Err(bad(&"no address")),
            _ => folder(PathBuf::from(address))?,
        };
        Ok(Self { store, deadline })
    }

    async fn within<T>(&self, bytes: u64, of: Digest, call: impl Future<Output = object_store::Result<T>>) -> Result<T, BlobError> {
        let allowed = allowance(self.deadline, bytes);
        match timeout(allowed, call).await {
            Ok(done) => done.map_err(|error| from_store(error, of)),
            Err(_) => Err(BlobError::TimedOut(allowed)),
        }
    }
}

/// A request may last as long as bytes come; what the whole may take is ours to say. Set one by one, to leave what the environment says of
/// proxies and certificates.
fn limits(deadline: Duration) -> [(ClientConfigKey, String); 3] {
    let text = |time: Duration| format!("{} ms", time.as_millis());
    [
        (ClientConfigKey::ConnectTimeout, text(deadline.min(Duration::from_secs(5)))),
        (ClientConfigKey::ReadTimeout, text(deadline)),
        (ClientConfigKey::Timeout, "1 day".into()),
    ]
}

fn folder(path: PathBuf) -> Result<Arc<dyn ObjectStore>, BlobError> {
    std::fs::create_dir_all(&path).map_err(BlobError::io(&path))?;
    let store = LocalFileSystem::new_with_prefix(&path).map_err(|e| BlobError::Options(e.to_string()))?;
    // A confirmed submission is on the disk, and so is what it needs.
    Ok(Arc::new(store.with_fsync(true)))
}

fn location(of: Digest) -> Location {
    let name = of.to_string();
    Location::from(format!("{}/{name}", &name[..2]))
}

fn from_store(error: Error, of: Digest) -> BlobError {
    match error {
        Error::NotFound { .. } => BlobError::Missing(of),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => BlobError::Refused(error.to_string()),
        Error::Generic { store: "LocalFileSystem", .. } => {
            BlobError::Io { path: Path::new(location(of).as_ref()).into(), source: std::io::Error::other(error) }
        }
        error => BlobError::Unavailable(error.to_string()),
    }
}

#[async_trait]
impl Store for Objects {
    async fn size(&self, of: Digest) -> Result<Option<u64>, BlobError> {
        let location = location(of);
        match self.within(0, of, self.store.head(&location)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(BlobError::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn put(&self, as_: Digest, bytes: Bytes) -> Result<(), BlobError> {
        let location = location(as_);
        self.within(bytes.len() as u64, as_, self.store.put(&location, bytes.into())).await.map(drop)
    }

    async fn put_pieces(&self, as_: Digest, bytes: u64, mut pieces: Pieces) -> Result<(), BlobError> {
        let location = location(as_);
        let upload = self.within(0, as_, self.store.put_multipart(&location)).await?;
        let mut writer = WriteMultipart::new_with_chunk_size(upload, CHUNK);
        let allowed = allowance(self.deadline, bytes);
        let sent = timeout(allowed, async {
            while let Some(piece) = pieces.try_next().await? {
                writer.wait_for_capacity(AT_ONCE).await.map_err(|error| from_store(error, as_))?;
                writer.put(piece);
            }
            Ok(())
        });
        match sent.await.unwrap_or(Err(BlobError::TimedOut(allowed))) {
            Ok(()) => self.within(bytes, as_, writer.finish()).await.map(drop),
            Err(error) => {
                // Best effort: buckets drop unfinished uploads by a lifecycle rule, and nobody sees them.
                let _ = self.within(0, as_, writer.abort()).await;
                Err(error)
            }
        }
    }

    async fn get(&self, of: Digest) -> Result<(u64, Pieces), BlobError> {
        let location = location(of);
        let found = self.within(0, of, self.store.get(&location)).await?;
        let bytes = found.meta.size;
        Ok((bytes, found.into_stream().map_err(move |error| from_store(error, of)).boxed()))
    }
}
