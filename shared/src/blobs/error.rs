//! Why a blob could not be had or kept.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::digest::Digest;
use crate::exit::{ExitCode, UserError};

/// Why a blob could not be had or kept.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum BlobError {
    #[error("no blob {0}")]
    Missing(Digest),
    #[error("{what} has {bytes} bytes; at most {most} are taken")]
    TooLarge { what: String, bytes: u64, most: u64 },
    #[error("blob {0} holds other bytes than its name says")]
    Corrupt(Digest),
    #[error("{}: changed while it was read", .0.display())]
    Changed(PathBuf),
    #[error("the blob store did not answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("the blob store cannot be reached: {0}")]
    Unavailable(String),
    #[error("the blob store is full: {0}")]
    Full(String),
    #[error("the blob store refuses: {0}")]
    Refused(String),
    #[error("the blob store does not take it: {0}")]
    Rejected(String),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the blob store's settings: {0}")]
    Options(String),
}

impl BlobError {
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// True where it may go away by itself: ask again later.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::Unavailable(_) | Self::Full(_))
    }
}

impl UserError for BlobError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Options(_) => ExitCode::Usage,
            Self::TooLarge { .. } | Self::Rejected(_) | Self::Changed(_) => ExitCode::BadInput,
            _ => ExitCode::Environment,
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Missing(_) => {
                "Check that coordinator and agents are given the same blob store, and that nothing removes blobs from it.".into()
            }
            Self::TooLarge { .. } | Self::Rejected(_) => return None,
            Self::Corrupt(digest) => format!("Remove {digest} from the store and submit again."),
            Self::Changed(_) => "Leave it alone while it is sent, and try again.".into(),
            Self::TimedOut(_) | Self::Unavailable(_) => "Check the store's address and the network between.".into(),
            Self::Full(_) => "Free some space where the coordinator keeps its data, then try again.".into(),
            Self::Refused(_) => "Check the credentials: AWS_*, GOOGLE_*, or the token.".into(),
            Self::Io { .. } => "Check the path, its permissions and the free space.".into(),
            Self::Options(_) => "Write a folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, or http(s)://COORDINATOR/v1/blobs.".into(),
        })
    }
}
