//! Checks that a decoded meaning holds together, so that everything after can rely on it.

mod body;

use std::collections::BTreeSet;

use super::storage::{Layout, MAX_ELEMENTS};
use super::{Argument, Meaning, Node, Role};
use body::{Body, Rights};

/// Most arguments of a kernel.
const MAX_ARGUMENTS: usize = 1 << 10;
/// Most buffers of a kernel.
const MAX_BUFFERS: usize = 1 << 13;
/// Most dimensions of a buffer, and loops of a node.
const MAX_AXES: usize = 32;
/// Most loop nests.
const MAX_NODES: usize = 1 << 12;

/// Why a meaning does not hold together.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("kernel {kernel}: {detail}")]
pub struct MeaningError {
    /// Kernel concerned.
    pub kernel: String,
    /// What is wrong, and where.
    pub detail: String,
}

impl Meaning {
    /// Every buffer that is named exists, values are made before they are used, arities fit, extents are known, and no count is
    /// out of bounds. What passes can be laid out, walked and evaluated without further checks of this kind.
    ///
    /// # Errors
    /// The first thing that does not hold, and where.
    pub fn validate(&self) -> Result<(), MeaningError> {
        self.validate_counts()?;
        if self.program.is_some() && !self.nodes.is_empty() {
            return Err(self.error("loops beside a text that is all that says what it computes"));
        }
        let layout = Layout::of(self)?;
        let mut names = BTreeSet::new();
        for argument in &self.arguments {
            if !names.insert(&argument.name) {
                return Err(self.error(format!("two arguments named {}", argument.name)));
            }
            self.validate_argument(argument)?;
        }
        let rights = Rights::of(self, &layout);
        self.nodes.iter().try_for_each(|node| {
            self.validate_loops(node)?;
            Body::check(self, &layout, &rights, node)
        })
    }

    fn validate_counts(&self) -> Result<(), MeaningError> {
        let limits = [
            (self.arguments.len(), MAX_ARGUMENTS, "arguments"),
            (self.arguments.iter().map(|a| a.buffers.len()).max().unwrap_or(0), MAX_BUFFERS, "buffers of one argument"),
            (self.buffers.len(), MAX_BUFFERS, "buffers"),
            (self.buffers.values().map(|b| b.size.len().max(b.stride.len())).max().unwrap_or(0), MAX_AXES, "dimensions"),
            (self.nodes.len(), MAX_NODES, "nodes"),
            (self.nodes.iter().map(|n| n.iter.len() + n.reduce.len()).max().unwrap_or(0), MAX_AXES, "loops of one node"),
        ];
        match limits.into_iter().find(|(count, limit, _)| count > limit) {
            Some((count, limit, what)) => Err(self.error(format!("{count} {what}, at most {limit} are allowed"))),
            None => match self.symbols.iter().find(|(_, value)| !(0..=MAX_ELEMENTS).contains(*value)) {
                Some((name, value)) => Err(self.error(format!("symbol {name} is {value}"))),
                None => Ok(()),
            },
        }
    }

    fn validate_argument(&self, argument: &Argument) -> Result<(), MeaningError> {
        let fail = |what: &str| Err(self.error(format!("argument {}: {what}", argument.name)));
        if (argument.role == Role::Size) != argument.value.is_some() {
            return fail("a size has a value, a pointer has none");
        }
        if (argument.role == Role::Number) != argument.number.is_some_and(f64::is_finite) {
            return fail("a number has a finite value, and nothing else has one");
        }
        if argument.role == Role::Number && self.program.is_none() {
            return fail("a number, which no kernel of the compiler takes");
        }
        if argument.role.is_value() && !argument.buffers.is_empty() {
            return fail("a value with a buffer");
        }
        match argument.buffers.iter().find(|name| self.buffers.get(*name).is_some_and(|b| b.internal)) {
            Some(name) => fail(&format!("buffer {name} is said to be internal")),
            None => Ok(()),
        }
    }

    fn validate_loops(&self, node: &Node) -> Result<(), MeaningError> {
        let fail = |what: String| Err(self.error(format!("node {}: {what}", node.name)));
        let mut names = BTreeSet::new();
        let mut total = 1i64;
        for axis in node.iter.iter().chain(&node.reduce) {
            if !names.insert(&axis.var) || self.symbols.contains_key(&axis.var) {
                return fail(format!("loop variable {} is named twice", axis.var));
            }
            let Some(extent) = self.size(&axis.extent) else {
                return fail(format!("extent {} of loop {}", axis.extent, axis.var));
            };
            // An empty loop makes the product zero; the others must still not overflow what is multiplied after it.
            total = match total.checked_mul(extent.max(1)) {
                Some(total) if total <= MAX_ELEMENTS => total,
                _ => return fail("more than 2^40 iterations".into()),
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
