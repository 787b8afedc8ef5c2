//! Identity of a meaning: names left out.
//!
//! A meaning is rewritten into a canonical form (buffers, arguments, loop variables, symbols and values numbered by where
//! they occur, sums and products sorted) and that form is hashed whole, so that nothing which the meaning says can be
//! forgotten. Values of size symbols count: a kernel measured at another size is another problem. The order of nodes and
//! statements counts too, which may cost a hit and never makes a wrong one.

use std::collections::BTreeMap;

use super::{Argument, Buffer, Expr, Meaning, Node, Operation, ValueId, walk};
use crate::digest::Digest;

/// Hash of `meaning` with names left out: equal for copies that differ in names or in the order of terms.
pub fn fingerprint(meaning: &Meaning) -> Digest {
    // Serialisation of these plain types does not fail; an empty text would only collide with itself.
    let text = serde_json::to_vec(&canonical(meaning)).unwrap_or_default();
    Digest::of([b"meaning 1".as_slice(), &text])
}

/// `meaning` with every name replaced by one that depends only on where it occurs. It computes the same.
pub fn canonical(meaning: &Meaning) -> Meaning {
    let mut names = Names { meaning, buffers: BTreeMap::new(), order: Vec::new(), symbols: BTreeMap::new() };
    let arguments = meaning.arguments.iter().enumerate().map(|(position, a)| names.argument(position, a)).collect();
    let nodes = meaning.nodes.iter().enumerate().map(|(position, n)| names.node(position, n)).collect();
    let buffers = names.described();
    let symbols = names.symbols.iter().filter_map(|(old, new)| Some((new.clone(), *meaning.symbols.get(old)?))).collect();
    Meaning { kernel: "k".into(), arguments, buffers, symbols, nodes, program: meaning.program }
}

/// New names of what outlives a node, given in the order of first use.
struct Names<'a> {
    meaning: &'a Meaning,
    buffers: BTreeMap<String, String>,
    /// Old names of buffers in the order in which they were named.
    order: Vec<String>,
    symbols: BTreeMap<String, String>,
}

impl Names<'_> {
    fn argument(&mut self, position: usize, argument: &Argument) -> Argument {
        for (version, name) in argument.buffers.iter().enumerate() {
            self.name(name, format!("a{position}_{version}"));
        }
        let value = argument.value.as_ref().map(|value| self.expr(value, &BTreeMap::new()));
        Argument {
            name: format!("a{position}"),
            value,
            buffers: argument.buffers.iter().map(|b| self.buffer(b)).collect(),
            ..argument.clone()
        }
    }

    fn buffer(&mut self, name: &str) -> String {
        let next = format!("t{}", self.order.len());
        self.name(name, next)
    }

    /// The name of a buffer: `new` unless it has one.
    fn name(&mut self, old: &str, new: String) -> String {
        if !self.buffers.contains_key(old) {
            self.order.push(old.to_owned());
        }
        self.buffers.entry(old.to_owned()).or_insert(new).clone()
    }

    /// The buffers that were named so far, and those that they lie in or rename.
    fn described(&mut self) -> BTreeMap<String, Buffer> {
        let mut found = BTreeMap::new();
        let mut next = 0;
        while let Some(old) = self.order.get(next).cloned() {
            next += 1;
            let mut buffer = self.meaning.buffers.get(&old).cloned().unwrap_or_else(missing);
            let loops = BTreeMap::new();
            buffer.size.iter_mut().chain(&mut buffer.stride).for_each(|e| *e = self.expr(e, &loops));
            buffer.offset = self.expr(&buffer.offset, &loops);
            buffer.mutates = buffer.mutates.map(|name| self.buffer(&name));
            if let Some(alias) = &mut buffer.alias {
                (alias.of, alias.offset) = (self.buffer(&alias.of), self.expr(&alias.offset, &loops));
            }
            found.insert(self.buffer(&old), buffer);
        }
        found
    }

    fn node(&mut self, position: usize, node: &Node) -> Node {
        let mut node = node.clone();
        node.name = format!("n{position}");
        let mut local = BTreeMap::new();
        for (prefix, axes) in [("i", &mut node.iter), ("r", &mut node.reduce)] {
            for (k, axis) in axes.iter_mut().enumerate() {
                axis.extent = self.expr(&axis.extent, &BTreeMap::new());
                let old = std::mem::replace(&mut axis.var, format!("{prefix}{k}"));
                local.insert(old, axis.var.clone());
            }
        }
        let mut ids = BTreeMap::new();
        walk::each_mut(&mut node.body, &mut |statement| {
            let next = ids.len() as ValueId;
            ids.insert(std::mem::replace(&mut statement.id, next), next);
        });
        walk::each_mut(&mut node.body, &mut |statement| self.operation(&mut statement.operation, &mut local, &ids));
        node
    }

    fn operation(&mut self, operation: &mut Operation, local: &mut BTreeMap<String, String>, ids: &BTreeMap<ValueId, ValueId>) {
        operation.values_mut().into_iter().for_each(|value| *value = ids.get(value).copied().unwrap_or(*value));
        if let Some(buffer) = operation.buffer_mut() {
            *buffer = self.buffer(buffer);
        }
        if let Some(expr) = operation.expr_mut() {
            *expr = self.expr(expr, local);
        }
        if let Operation::Indirect { variable, .. } = operation {
            let next = format!("x{}", local.len());
            local.insert(std::mem::replace(variable, next.clone()), next);
        }
    }

    /// `expr` with new names, its sums and products sorted. Symbols that are new here are numbered in an order that does not depend on
    /// their names: by how they stand in the expression once all that is known was renamed.
    fn expr(&mut self, expr: &Expr, local: &BTreeMap<String, String>) -> Expr {
        let known = expr.map_vars(&mut |name| match local.get(name).or_else(|| self.symbols.get(name)) {
            Some(new) => Expr::var(new),
            // A colon marks a name that is still the old one: no new name has it.
            None => Expr::var(format!(":{name}")),
        });
        let mut order = Vec::new();
        appearance(&sorted(&known, &self.meaning.symbols), &mut order);
        for old in order {
            let next = format!("S{}", self.symbols.len());
            self.symbols.entry(old).or_insert(next);
        }
        let renamed = known.map_vars(&mut |name| match name.strip_prefix(':') {
            Some(old) => Expr::var(self.symbols.get(old).map_or(old, String::as_str)),
            None => Expr::var(name),
        });
        sorted(&renamed, &self.meaning.symbols)
    }
}

/// A buffer that a meaning names and does not describe: such a meaning does not validate, but hashing it is no reason to panic.
fn missing() -> Buffer {
    let (size, stride) = (Vec::new(), Vec::new());
    Buffer { dtype: crate::dtype::Dtype::Bool, size, stride, offset: Expr::Int(0), internal: false, mutates: None, alias: None }
}

/// Old names in `expr`, marked by a colon, in the order in which they stand.
fn appearance(expr: &Expr, order: &mut Vec<String>) {
    if let Expr::Var(name) = expr
        && let Some(old) = name.strip_prefix(':')
    {
        order.push(old.to_owned());
    }
    expr.children().into_iter().for_each(|child| appearance(child, order));
}

/// `expr` with the parts of sums, products, minima and maxima in an order that does not depend on old names: those stand as
/// their `values`.
fn sorted(expr: &Expr, values: &BTreeMap<String, i64>) -> Expr {
    let key = |name: &str| match name.strip_prefix(':') {
        Some(old) => Expr::var(format!(":{}", values.get(old).copied().unwrap_or(-1))),
        None => Expr::var(name),
    };
    let all = |items: &[Expr]| {
        let mut items: Vec<Expr> = items.iter().map(|item| sorted(item, values)).collect();
        items.sort_by_cached_key(|item| item.map_vars(&mut |name| key(name)));
        items
    };
    let one = |e: &Expr| Box::new(sorted(e, values));
    match expr {
        Expr::Int(_) | Expr::Var(_) => expr.clone(),
        Expr::Add(items) => Expr::Add(all(items)),
        Expr::Mul(items) => Expr::Mul(all(items)),
        Expr::Min(items) => Expr::Min(all(items)),
        Expr::Max(items) => Expr::Max(all(items)),
        Expr::FloorDiv(a, b) => Expr::FloorDiv(one(a), one(b)),
        Expr::Mod(a, b) => Expr::Mod(one(a), one(b)),
        Expr::Where(condition, a, b) => {
            let mut condition = condition.clone();
            (condition.left, condition.right) = (*one(&condition.left), *one(&condition.right));
            Expr::Where(condition, one(a), one(b))
        }
    }
}

#[cfg(test)]
mod tests;
