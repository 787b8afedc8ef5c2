//! Bytes that a kernel must move, whatever its schedule: the union of the distinct elements that it touches.

use serde::{Deserialize, Serialize};

/// Bytes that must move in one launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes read from arguments, each distinct element once.
    pub read_bytes: u64,
    /// Bytes written to arguments that the graph reads later or returns.
    pub write_bytes: u64,
    /// False where a data-dependent or masked access made some argument unknown; those count zero, so the sum is a lower bound.
    pub exact: bool,
}

impl Traffic {
    /// Read and written.
    pub const fn total_bytes(&self) -> u64 {
        self.read_bytes + self.write_bytes
    }
}
