//! Bytes that a kernel must move, whatever its schedule: the union of the distinct elements that it touches.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Meaning;
use super::elements::Elements;
use super::footprint::{Footprint, Grid};
use super::storage::Layout;

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

/// Bytes that one launch of `meaning` must move: per allocation the union of the elements that it reads before writing them,
/// and of those that it writes. Stores to the arguments named in `scratch` cost nothing.
pub fn traffic(meaning: &Meaning, scratch: &BTreeSet<String>) -> Traffic {
    if meaning.program.is_some() {
        return Traffic::default(); // how much of its buffers such a kernel touches, nobody says
    }
    let Ok(layout) = Layout::of(meaning) else { return Traffic::default() };
    let footprint = Footprint::of(meaning, &layout, scratch);
    let bytes = |sets: &BTreeMap<Grid, Elements>| sets.iter().map(|((_, size_bytes), set)| set.count() * *size_bytes as u64).sum();
    Traffic { read_bytes: bytes(&footprint.reads), write_bytes: bytes(&footprint.writes), exact: footprint.exact }
}

#[cfg(test)]
mod tests;
