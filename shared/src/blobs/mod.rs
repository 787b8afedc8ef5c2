//! Bytes by their hash: bundles, targets and optimised files, as coordinator and agents share them.
//!
//! A blob's name is [`Digest::of`] its bytes, so that a name always means the same bytes, whoever wrote them, and writing it twice is
//! writing it once. What comes back is held against the name. A blob is there whole or not at all: folders are written by rename, buckets
//! by their own rule, and a coordinator checks what it is sent.
//!
//! | address | store |
//! |---|---|
//! | `/var/lib/kernelopt/blobs`, `file:///...` | a folder, written through to the disk |
//! | `s3://BUCKET/PREFIX` | S3 or what speaks it; credentials and endpoint from `AWS_*`, or the machine's role |
//! | `gs://BUCKET/PREFIX` | Google Cloud Storage; credentials from `GOOGLE_*`, or the machine's account |
//! | `http://HOST:PORT/v1/blobs`, `https://...` | a coordinator, with a bearer token |
//! | `memory:` | this process; for tests and runs that end with it |
//!
//! Every call has a deadline, which grows with the bytes to move.

mod cache;
mod error;
mod http;
mod objects;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub use cache::{BlobCache, CachedFile};
pub use error::BlobError;

use crate::digest::{Digest, Hasher};
use crate::secret::SecretString;

/// Read from files at once, in bytes; also a part of a large upload, for which S3 wants at least 5 MiB.
const CHUNK: usize = 8 << 20;
/// Slowest transfer that is waited for, in bytes a second.
const SLOWEST: u64 = 1 << 20;

/// Where blobs are.
#[derive(Clone, Debug)]
pub struct BlobOptions {
    /// See the module's table.
    pub address: String,
    /// The bearer token of a coordinator.
    pub token: Option<SecretString>,
    /// Longest that a request may take beside the time for its bytes.
    pub deadline: Duration,
}

impl BlobOptions {
    /// The defaults for an address: no token, thirty seconds.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), token: None, deadline: Duration::from_secs(30) }
    }
}

type Pieces = BoxStream<'static, Result<Bytes, BlobError>>;

/// A backend: moves bytes, and believes the names it is given.
#[async_trait]
trait Store: fmt::Debug + Send + Sync {
    /// Size in bytes; `None` where it is not there.
    async fn size(&self, of: Digest) -> Result<Option<u64>, BlobError>;
    /// Keeps bytes.
    async fn put(&self, as_: Digest, bytes: Bytes) -> Result<(), BlobError>;
    /// Keeps a file's bytes, whole or not at all. `pieces` ends with an error where they are not what `as_` says.
    async fn put_pieces(&self, as_: Digest, bytes: u64, pieces: Pieces) -> Result<(), BlobError>;
    /// Size, and the bytes in pieces.
    async fn get(&self, of: Digest) -> Result<(u64, Pieces), BlobError>;
}

/// A blob store. Clones are the same store.
#[derive(Clone, Debug)]
pub struct Blobs {
    store: Arc<dyn Store>,
}

impl Blobs {
    /// Opens a store. Nothing is asked of a remote one yet; a folder is made where there is none.
    ///
    /// # Errors
    /// The address is none, its credentials are not usable, or the folder cannot be made.
    pub fn open(options: &BlobOptions) -> Result<Self, BlobError> {
        let address = options.address.as_str();
        let store: Arc<dyn Store> = match address.split_once(':').map(|(scheme, _)| scheme) {
            Some("http" | "https") => Arc::new(http::Coordinator::open(options)?),
            _ => Arc::new(objects::Objects::open(options)?),
        };
        Ok(Self { store })
    }

    /// Keeps bytes: their name.
    pub async fn put(&self, bytes: Bytes) -> Result<Digest, BlobError> {
        let digest = Digest::of([&bytes[..]]);
        if self.store.size(digest).await? != Some(bytes.len() as u64) {
            self.store.put(digest, bytes).await?;
        }
        Ok(digest)
    }

    /// Keeps a file's bytes, however many: their name. The file is read twice, since the name comes first.
    ///
    /// # Errors
    /// As the file's, the store's, or the file changed meanwhile; then nothing is kept.
    pub async fn put_file(&self, path: &Path) -> Result<Digest, BlobError> {
        let (digest, bytes) = hash_file(path).await?;
        if self.store.size(digest).await? != Some(bytes) {
            let mut pieces = checked(path.into(), digest, bytes).await?;
            if bytes > CHUNK as u64 {
                self.store.put_pieces(digest, bytes, pieces).await?;
            } else {
                // In one request, which can be repeated.
                let whole = pieces.try_next().await?.unwrap_or_default();
                self.store.put(digest, whole).await?;
            }
        }
        Ok(digest)
    }

    /// A blob of at most `most_bytes`.
    ///
    /// # Errors
    /// It is not there, is larger, or does not hold what its name says.
    pub async fn get(&self, of: Digest, most_bytes: u64) -> Result<Bytes, BlobError> {
        let (bytes, mut pieces) = self.begin(of, most_bytes).await?;
        let mut hasher = Hasher::new(bytes);
        let mut whole = BytesMut::new();
        while let Some(piece) = pieces.try_next().await? {
            if !hasher.update(&piece) {
                return Err(BlobError::Corrupt(of));
            }
            whole.extend_from_slice(&piece);
        }
        if hasher.finish() == Some(of) { Ok(whole.freeze()) } else { Err(BlobError::Corrupt(of)) }
    }

    /// Writes a blob of at most `most_bytes` to an open file: its size. What an error leaves in the file is of no use.
    ///
    /// # Errors
    /// As [`Self::get`]'s, and the file's.
    pub async fn get_into(&self, of: Digest, most_bytes: u64, path: &Path, file: &mut File) -> Result<u64, BlobError> {
        let (bytes, mut pieces) = self.begin(of, most_bytes).await?;
        let mut hasher = Hasher::new(bytes);
        while let Some(piece) = pieces.try_next().await? {
            if !hasher.update(&piece) {
                return Err(BlobError::Corrupt(of));
            }
            file.write_all(&piece).await.map_err(BlobError::io(path))?;
        }
        if hasher.finish() != Some(of) {
            return Err(BlobError::Corrupt(of));
        }
        file.flush().await.map_err(BlobError::io(path))?;
        Ok(bytes)
    }

    /// Size of a blob, and its bytes in pieces. Whoever reads them holds them against the name.
    ///
    /// # Errors
    /// It is not there, or the store does not answer.
    pub async fn stream(&self, of: Digest) -> Result<(u64, BoxStream<'static, Result<Bytes, BlobError>>), BlobError> {
        self.store.get(of).await
    }

    async fn begin(&self, of: Digest, most: u64) -> Result<(u64, Pieces), BlobError> {
        let (bytes, pieces) = self.store.get(of).await?;
        if bytes > most { Err(BlobError::TooLarge { what: format!("blob {of}"), bytes, most }) } else { Ok((bytes, pieces)) }
    }

    /// Size of a blob in bytes; `None` where it is not there.
    pub async fn size(&self, of: Digest) -> Result<Option<u64>, BlobError> {
        self.store.size(of).await
    }

    /// Whether a blob is there.
    pub async fn exists(&self, of: Digest) -> Result<bool, BlobError> {
        Ok(self.size(of).await?.is_some())
    }
}

/// Time that a transfer may take.
fn allowance(deadline: Duration, bytes: u64) -> Duration {
    deadline + Duration::from_secs(bytes / SLOWEST)
}

/// Digest and size of a file.
async fn hash_file(path: &Path) -> Result<(Digest, u64), BlobError> {
    let mut file = File::open(path).await.map_err(BlobError::io(path))?;
    let bytes = file.metadata().await.map_err(BlobError::io(path))?.len();
    let mut hasher = Hasher::new(bytes);
    while let Some(piece) = next(&mut file, path).await? {
        if !hasher.update(&piece) {
            return Err(BlobError::Changed(path.into()));
        }
    }
    hasher.finish().map(|digest| (digest, bytes)).ok_or_else(|| BlobError::Changed(path.into()))
}

async fn next(file: &mut File, path: &Path) -> Result<Option<Bytes>, BlobError> {
    let mut piece = BytesMut::with_capacity(CHUNK);
    while piece.len() < CHUNK {
        // A buffer with room: zero is the file's end.
        if file.read_buf(&mut piece).await.map_err(BlobError::io(path))? == 0 {
            break;
        }
    }
    Ok(Some(piece.freeze()).filter(|piece| !piece.is_empty()))
}

/// A file in pieces. Where it is no longer what it was when it was hashed, they end with an error before the last one, so that nobody who
/// counts bytes takes it for whole.
async fn checked(path: PathBuf, digest: Digest, bytes: u64) -> Result<Pieces, BlobError> {
    let file = File::open(&path).await.map_err(BlobError::io(&path))?;
    let pieces = stream::try_unfold((file, path, Hasher::new(bytes)), move |(mut file, path, mut hasher)| async move {
        let piece = next(&mut file, &path).await?;
        let sound = match &piece {
            None => hasher.clone().finish() == Some(digest),
            Some(piece) => hasher.update(piece) && hasher.clone().finish().is_none_or(|found| found == digest),
        };
        if sound { Ok(piece.map(|piece| (piece, (file, path, hasher)))) } else { Err(BlobError::Changed(path)) }
    });
    Ok(Box::pin(pieces))
}
