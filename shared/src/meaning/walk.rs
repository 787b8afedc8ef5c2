//! Walks over the statements of a node, masked blocks included.

use super::{Expr, Operation, Statement, ValueId};

/// Calls `see` for every statement in order, a masked statement before those inside it. The flag says whether a mask holds
/// the statement back.
pub(super) fn each<'a>(statements: &'a [Statement], masked: bool, see: &mut impl FnMut(&'a Statement, bool)) {
    for statement in statements {
        see(statement, masked);
        if let Operation::Masked { body, .. } = &statement.operation {
            each(body, true, see);
        }
    }
}

/// Calls `change` for every statement, a masked statement before those inside it.
pub(super) fn each_mut(statements: &mut [Statement], change: &mut impl FnMut(&mut Statement)) {
    for statement in statements {
        change(statement);
        if let Operation::Masked { body, .. } = &mut statement.operation {
            each_mut(body, change);
        }
    }
}

impl Operation {
    /// The index or size expression of this operation itself, without those of statements inside it.
    pub(super) fn expr_mut(&mut self) -> Option<&mut Expr> {
        match self {
            Self::Load { index, .. } | Self::Store { index, .. } | Self::Index { index, .. } => Some(index),
            Self::Indirect { size, .. } => Some(size),
            _ => None,
        }
    }

    /// The index or size expression of this operation itself, without those of statements inside it.
    pub(super) fn expr(&self) -> Option<&Expr> {
        match self {
            Self::Load { index, .. } | Self::Store { index, .. } | Self::Index { index, .. } => Some(index),
            Self::Indirect { size, .. } => Some(size),
            _ => None,
        }
    }

    /// The buffer that this operation itself reads or writes.
    pub(super) fn buffer_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Load { buffer, .. } | Self::Store { buffer, .. } => Some(buffer),
            _ => None,
        }
    }

    /// The values that this operation itself uses.
    pub(super) fn values_mut(&mut self) -> Vec<&mut ValueId> {
        match self {
            Self::Load { .. } | Self::Constant { .. } | Self::Index { .. } => Vec::new(),
            Self::Store { value, .. }
            | Self::Cast { value, .. }
            | Self::Bitcast { value, .. }
            | Self::Item { value, .. }
            | Self::Indirect { value, .. } => vec![value],
            Self::Pointwise { args, .. } | Self::Reduction { values: args, .. } => args.iter_mut().collect(),
            Self::Masked { mask, result, .. } => vec![mask, result],
        }
    }
}
