//! Checks of one node's statements.

use std::collections::{BTreeMap, BTreeSet};

use super::super::storage::Layout;
use super::super::{Expr, Meaning, MeaningError, Node, Operation, Role, Statement, ValueId};

/// Most statements of a node, nested ones included.
const MAX_STATEMENTS: usize = 1 << 14;
/// Deepest nesting of masked blocks.
const MAX_DEPTH: usize = 16;

/// What is known of a value that was made.
#[derive(Clone, Copy, Default)]
struct Made {
    /// Number of results; zero for a store or a bound variable.
    results: usize,
    /// Differs between iterations of the reduction loops.
    varies: bool,
    /// Comes from a reduction's result, so is known only after the reduction loops.
    late: bool,
}

/// The regions that arguments point at.
pub(super) struct Rights {
    /// All of them.
    seen: BTreeSet<usize>,
    /// Those that an argument may write.
    written: BTreeSet<usize>,
}

impl Rights {
    pub(super) fn of(meaning: &Meaning, layout: &Layout) -> Self {
        let behind = |writes: bool| {
            let arguments = meaning.arguments.iter().filter(move |a| !writes || matches!(a.role, Role::Out | Role::Inout));
            arguments.flat_map(|a| &a.buffers).filter_map(|name| Some(layout.buffers.get(name)?.region)).collect()
        };
        Self { seen: behind(false), written: behind(true) }
    }
}

/// A walk over the statements of one node.
pub(super) struct Body<'a> {
    meaning: &'a Meaning,
    layout: &'a Layout,
    rights: &'a Rights,
    node: &'a Node,
    reduce: BTreeSet<&'a str>,
    values: BTreeMap<ValueId, Made>,
    indirect: BTreeMap<&'a str, Made>,
    every_id: BTreeSet<ValueId>,
    every_variable: BTreeSet<&'a str>,
    depth: usize,
}

type Checked<T = ()> = Result<T, MeaningError>;

impl<'a> Body<'a> {
    /// Checks the statements of `node`.
    pub(super) fn check(meaning: &'a Meaning, layout: &'a Layout, rights: &'a Rights, node: &'a Node) -> Checked {
        let loops = node.iter.iter().chain(&node.reduce).map(|axis| axis.var.as_str());
        let mut body = Body {
            meaning,
            layout,
            rights,
            node,
            reduce: node.reduce.iter().map(|axis| axis.var.as_str()).collect(),
            values: BTreeMap::new(),
            indirect: BTreeMap::new(),
            every_id: BTreeSet::new(),
            every_variable: loops.chain(meaning.symbols.keys().map(String::as_str)).collect(),
            depth: 0,
        };
        body.block(&node.body)
    }

    fn fail<T>(&self, id: ValueId, what: impl std::fmt::Display) -> Checked<T> {
        Err(self.meaning.error(format!("node {}, statement {id}: {what}", self.node.name)))
    }

    fn block(&mut self, statements: &'a [Statement]) -> Checked {
        for statement in statements {
            if !self.every_id.insert(statement.id) {
                return self.fail(statement.id, "its number is taken");
            }
            if self.every_id.len() > MAX_STATEMENTS {
                return self.fail(statement.id, format_args!("more than {MAX_STATEMENTS} statements"));
            }
            let made = self.statement(statement)?;
            if made.varies && made.late {
                return self.fail(statement.id, "mixes a reduction's result with values inside the reduction loops");
            }
            self.values.insert(statement.id, made);
        }
        Ok(())
    }

    fn statement(&mut self, statement: &'a Statement) -> Checked<Made> {
        let id = statement.id;
        match &statement.operation {
            Operation::Load { buffer, index } => {
                self.buffer(id, buffer, false)?;
                self.index(id, index)
            }
            Operation::Store { buffer, index, value, .. } => {
                if self.depth > 0 {
                    return self.fail(id, "a store inside a masked block");
                }
                self.buffer(id, buffer, true)?;
                let (at, value) = (self.index(id, index)?, self.value(id, *value)?);
                Ok(Made { results: 0, ..join([at, value]) })
            }
            Operation::Constant { .. } => Ok(Made { results: 1, ..Made::default() }),
            Operation::Index { index, .. } => self.index(id, index),
            Operation::Cast { value, .. } => self.value(id, *value),
            Operation::Bitcast { value, from, dtype } if from.size_bytes() == dtype.size_bytes() => self.value(id, *value),
            Operation::Bitcast { from, dtype, .. } => self.fail(id, format_args!("bits of {from} as {dtype}")),
            Operation::Pointwise { function, args } => {
                if args.len() != function.arity() {
                    return self.fail(id, format_args!("{} of {} arguments", function.name(), args.len()));
                }
                Ok(join(self.all(id, args)?))
            }
            Operation::Reduction { kind, values, .. } => {
                if self.node.reduce.is_empty() || self.depth > 0 {
                    return self.fail(id, "a reduction where there is no reduction loop");
                }
                if values.len() != kind.operands() {
                    return self.fail(id, format_args!("{kind:?} of {} values", values.len()));
                }
                if self.all(id, values)?.iter().any(|made| made.late) {
                    return self.fail(id, "a reduction of a reduction's result in one node");
                }
                Ok(Made { results: kind.results(), varies: false, late: true })
            }
            Operation::Item { value, position } => match self.values.get(value) {
                Some(made) if *position < made.results => Ok(Made { results: 1, ..*made }),
                _ => self.fail(id, format_args!("no result {position} of value {value}")),
            },
            Operation::Masked { mask, body, result, .. } => self.masked(id, *mask, body, *result),
            Operation::Indirect { value, variable, size, .. } => {
                let value = self.value(id, *value)?;
                let size = self.index(id, size)?;
                if !self.every_variable.insert(variable) {
                    return self.fail(id, format_args!("variable {variable} is named twice"));
                }
                let made = join([value, size]);
                self.indirect.insert(variable, made);
                Ok(Made { results: 0, ..made })
            }
        }
    }

    fn masked(&mut self, id: ValueId, mask: ValueId, body: &'a [Statement], result: ValueId) -> Checked<Made> {
        if self.depth == MAX_DEPTH {
            return self.fail(id, "masked blocks are nested too deeply");
        }
        let mask = self.value(id, mask)?;
        self.depth += 1;
        self.block(body)?;
        self.depth -= 1;
        let inner = self.value(id, result)?;
        // What a block made is not seen outside it.
        for statement in body {
            self.values.remove(&statement.id);
            if let Operation::Indirect { variable, .. } = &statement.operation {
                self.indirect.remove(variable.as_str());
            }
        }
        Ok(join([mask, inner]))
    }

    /// A value that a statement uses.
    fn value(&self, id: ValueId, used: ValueId) -> Checked<Made> {
        match self.values.get(&used) {
            Some(made) if made.results == 1 => Ok(*made),
            Some(_) => self.fail(id, format_args!("value {used} is not one value")),
            None => self.fail(id, format_args!("value {used} is not made before it is used")),
        }
    }

    fn all(&self, id: ValueId, used: &[ValueId]) -> Checked<Vec<Made>> {
        used.iter().map(|value| self.value(id, *value)).collect()
    }

    fn index(&self, id: ValueId, index: &'a Expr) -> Checked<Made> {
        let is_loop = |name: &str| self.node.iter.iter().chain(&self.node.reduce).any(|axis| axis.var == name);
        let known = |name: &str| is_loop(name) || self.indirect.contains_key(name) || self.meaning.symbols.contains_key(name);
        let variables = index.variables();
        if let Some(name) = variables.iter().find(|name| !known(name)) {
            return self.fail(id, format_args!("index {index}: {name} is unknown here"));
        }
        let of_variable = |name: &str| match self.indirect.get(name) {
            Some(made) => *made,
            None => Made { varies: self.reduce.contains(name), ..Made::default() },
        };
        Ok(join(variables.into_iter().map(of_variable)))
    }

    /// A buffer that a statement reads or writes.
    fn buffer(&self, id: ValueId, name: &str, written: bool) -> Checked {
        let (Some(place), Some(buffer)) = (self.layout.buffers.get(name), self.meaning.buffers.get(name)) else {
            return self.fail(id, format_args!("buffer {name} is not described"));
        };
        let allowed = if written { &self.rights.written } else { &self.rights.seen };
        if buffer.internal || allowed.contains(&place.region) {
            return Ok(());
        }
        self.fail(id, format_args!("no argument points at buffer {name} for this"))
    }
}

/// What holds of a value made from `parts`.
fn join(parts: impl IntoIterator<Item = Made>) -> Made {
    let one = Made { results: 1, ..Made::default() };
    parts.into_iter().fold(one, |all, part| Made { results: 1, varies: all.varies || part.varies, late: all.late || part.late })
}
