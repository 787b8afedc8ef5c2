//! What can go wrong between a client and a coordinator.

use std::io;
use std::path::PathBuf;

use kernelopt_shared::api::{Problem, ProblemKind};
use kernelopt_shared::archive::ArchiveError;
use kernelopt_shared::blobs::BlobError;
use kernelopt_shared::exit::{ExitCode, UserError};
use reqwest::Url;

/// Why a request was not answered as wished.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Not an address.
    #[error("{0:?} is no address of a coordinator")]
    Address(String),
    /// The client itself cannot be made.
    #[error("HTTP client: {}", chain(.0))]
    Setup(reqwest::Error),
    /// No connection, or one that broke.
    #[error("{server}: {what}")]
    Unreachable {
        /// Where.
        server: String,
        /// What was seen.
        what: String,
    },
    /// Something answers that is no coordinator of this version.
    #[error("{server}: {what}")]
    Strange {
        /// Where.
        server: String,
        /// What was seen.
        what: String,
    },
    /// The coordinator says no.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// A file of this host.
    #[error("{}: {source}", path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// A bundle was not stored.
    #[error(transparent)]
    Store(#[from] BlobError),
    /// Outputs were not unpacked.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl ClientError {
    /// A request to `server` that did not come through.
    pub fn unreachable(server: &Url, source: reqwest::Error) -> Self {
        Self::Unreachable { server: server.to_string(), what: chain(&source.without_url()) }
    }

    /// True where the same request may do later.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused(problem) => matches!(problem.known(), Some(ProblemKind::Unavailable | ProblemKind::Busy | ProblemKind::TooSlow)),
            _ => false,
        }
    }
}

impl UserError for ClientError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Address(_) => ExitCode::Usage,
            Self::Setup(_) => ExitCode::Environment,
            Self::Unreachable { .. } | Self::Strange { .. } => ExitCode::ServerUnavailable,
            Self::Io { .. } => ExitCode::Output,
            Self::Store(BlobError::Refused(_) | BlobError::TooLarge { .. }) => ExitCode::ServerRefused,
            Self::Store(error) if error.is_transient() => ExitCode::ServerUnavailable,
            Self::Store(error) => error.exit_code(),
            Self::Archive(error) => error.exit_code(),
            Self::Refused(problem) => match problem.known() {
                Some(ProblemKind::NotFound) => ExitCode::BadInput,
                Some(ProblemKind::Unavailable | ProblemKind::Busy | ProblemKind::TooSlow | ProblemKind::StorageFull) => {
                    ExitCode::ServerUnavailable
                }
                _ => ExitCode::ServerRefused,
            },
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Address(_) => "Write --server http://HOST:PORT, or set KERNELOPT_SERVER.".into(),
            Self::Setup(_) => "Install the CA certificates of this system (Debian: ca-certificates).".into(),
            Self::Unreachable { .. } => "Check --server or KERNELOPT_SERVER, and that the coordinator runs there.".into(),
            Self::Strange { .. } => "Check --server or KERNELOPT_SERVER: is it a coordinator, and of this version?".into(),
            Self::Io { .. } => "Check the path, its permissions and the space on the disk.".into(),
            Self::Store(BlobError::Refused(_)) => "Storing a bundle needs the token of a submitter.".into(),
            Self::Store(error) => return error.remedy(),
            Self::Archive(error) => return error.remedy(),
            Self::Refused(problem) => match (problem.known(), &problem.remedy) {
                (Some(ProblemKind::Unauthorized), _) => "Set KERNELOPT_TOKEN, or name a file with --token-file.".into(),
                (_, Some(remedy)) => remedy.clone(),
                (Some(ProblemKind::Forbidden), None) => "Use a token of a role that reaches further.".into(),
                (Some(ProblemKind::Unavailable | ProblemKind::Busy | ProblemKind::TooSlow), None) => "Try again later.".into(),
                _ => return None,
            },
        })
    }
}

/// An error with all that is behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
