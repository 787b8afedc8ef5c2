//! Why something cannot be inspected.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use kernelopt_shared::bundle::BundleError;
use kernelopt_shared::exit::{ExitCode, UserError};

use crate::inductor::ParseError;

/// Why a bundle or file cannot be inspected.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum InspectError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error("{}{source}", Prefix(path.as_deref()))]
    Parse { path: Option<PathBuf>, source: ParseError },
}

/// `path: `, where a path is known.
struct Prefix<'a>(Option<&'a Path>);

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |path| write!(f, "{}: ", path.display()))
    }
}

impl From<ParseError> for InspectError {
    fn from(source: ParseError) -> Self {
        Self::Parse { path: None, source }
    }
}

impl InspectError {
    /// The same, with the file that it is about.
    pub fn at(self, file: &Path) -> Self {
        match self {
            Self::Parse { path: None, source } => Self::Parse { path: Some(file.into()), source },
            other => other,
        }
    }
}

impl UserError for InspectError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Io { .. } => ExitCode::BadInput,
            Self::Bundle(error) => error.exit_code(),
            Self::Parse { source, .. } => source.exit_code(),
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::InvalidData => {
                Some("Give a bundle's folder or an output_code.py; this file is not text.".into())
            }
            Self::Io { .. } => Some("Give a bundle's folder or an output_code.py that can be read.".into()),
            Self::Bundle(error) => error.remedy(),
            Self::Parse { source, .. } => source.remedy(),
        }
    }
}
