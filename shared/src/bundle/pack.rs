//! A bundle as one file, and back.

use std::path::Path;

use super::{Bundle, BundleError, MANIFEST};
use crate::archive::{self, ArchiveError, Limits};
use crate::exit::{ExitCode, UserError};

/// Why a bundle was not packed or unpacked.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum PackError {
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

impl UserError for PackError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Archive(error) => error.exit_code(),
            Self::Bundle(error) => error.exit_code(),
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Archive(error) => error.remedy(),
            Self::Bundle(error) => error.remedy(),
        }
    }
}

/// Writes the bundle in `folder` as the new file `to`: manifest first, then what it lists, in order, and nothing else. The same bundle makes
/// the same bytes, wherever it lies, and so the same blob. Its size in bytes.
///
/// # Errors
/// It is no sound bundle, or the file cannot be written; then there is none.
pub fn pack(folder: &Path, to: &Path) -> Result<u64, PackError> {
    let bundle = Bundle::open(folder)?;
    let names = [MANIFEST].into_iter().chain(bundle.manifest.files.keys().map(String::as_str));
    Ok(archive::pack(folder, names, to)?)
}

/// Makes the new folder `to` of a packed bundle of at most `most_bytes`, and opens it. The file may come from anywhere.
///
/// # Errors
/// It is no archive of plain files, breaks a limit, or holds no sound bundle; then there is no folder.
pub fn unpack(from: &Path, to: &Path, most_bytes: u64) -> Result<Bundle, PackError> {
    let mut bundle =
        archive::unpack(from, to, Limits { bytes: most_bytes, ..Limits::default() }, |folder| Ok::<_, PackError>(Bundle::open(folder)?))?;
    to.clone_into(&mut bundle.root);
    Ok(bundle)
}
