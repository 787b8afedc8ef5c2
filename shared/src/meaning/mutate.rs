//! Mutants: copies of a meaning with one fault each. A referee that lets one pass without saying why is blind there.
//!
//! The kinds follow mutation testing of the compiler's own mistakes: a function, constant, index, loop or comparison that is
//! slightly not what it should be. Each mutant validates wherever the original does.

use std::collections::{BTreeMap, BTreeSet};

use super::storage::Layout;
use super::{Expr, Function, Meaning, Operation, ReductionKind, Scalar, Statement, ValueId, walk};

/// A meaning with one fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutant {
    /// Where and what: `node op7, statement 3: add -> sub`.
    pub description: String,
    /// The faulty meaning.
    pub meaning: Meaning,
}

/// What is changed at one place.
#[derive(Clone, Debug, PartialEq)]
enum Fault {
    /// Another function.
    Function(Function),
    /// The arguments in reverse order.
    Swapped,
    /// Only the argument at this position is kept.
    Only(usize),
    /// Another constant.
    Constant(Scalar),
    /// Another reduction.
    Reduction(ReductionKind),
    /// Another result of a statement with several.
    Item(usize),
    /// Another index.
    Index(Expr),
    /// The value where a mask does not hold.
    Other(Scalar),
    /// An accumulating store that overwrites.
    Overwrite,
    /// Another trip count of the loop at this position.
    Extent(usize, i64),
}

/// Where a fault goes: a node, and a statement or, for a loop, none.
type Place = (usize, Option<ValueId>);

/// Every mutant of `meaning`, made one at a time.
pub fn mutants(meaning: &Meaning) -> impl Iterator<Item = Mutant> + '_ {
    let mut faults: Vec<(Place, Fault, String)> = Vec::new();
    let layout = Layout::of(meaning).ok();
    for (number, node) in meaning.nodes.iter().enumerate() {
        let extents: BTreeMap<String, i64> =
            node.iter.iter().chain(&node.reduce).filter_map(|axis| Some((axis.var.clone(), meaning.size(&axis.extent)?))).collect();
        let used = used(&node.body);
        walk::each(&node.body, false, &mut |statement, _| {
            if !used.contains(&statement.id) {
                return;
            }
            for (fault, what) in statement_faults(layout.as_ref(), statement, &extents) {
                let text = format!("node {}, statement {}: {what}", node.name, statement.id);
                faults.push(((number, Some(statement.id)), fault, text));
            }
        });
        for (position, axis) in node.iter.iter().chain(&node.reduce).enumerate() {
            if let Some(extent) = meaning.size(&axis.extent).filter(|extent| *extent > 1) {
                let text = format!("node {}: loop {} is one short", node.name, axis.var);
                faults.push(((number, None), Fault::Extent(position, extent - 1), text));
            }
        }
    }
    faults.into_iter().map(|(place, fault, description)| Mutant { description, meaning: apply(meaning, place, &fault) })
}

/// The statements that a store depends on, stores included. A fault in any other changes nothing.
fn used(body: &[Statement]) -> BTreeSet<ValueId> {
    let mut statements = Vec::new();
    walk::each(body, false, &mut |statement, _| statements.push(statement));
    let mut used = BTreeSet::new();
    let mut variables: BTreeSet<&str> = BTreeSet::new();
    loop {
        let before = (used.len(), variables.len());
        for statement in statements.iter().rev() {
            let binds = matches!(&statement.operation, Operation::Indirect { variable, .. } if variables.contains(variable.as_str()));
            let stores = matches!(statement.operation, Operation::Store { .. });
            if stores || binds || used.contains(&statement.id) {
                used.insert(statement.id);
                used.extend(statement.operation.clone().values_mut().into_iter().map(|value| *value));
                variables.extend(statement.operation.expr().into_iter().flat_map(Expr::variables));
            }
        }
        // Once is enough but for masked blocks, whose results are seen to be used only after their statements were passed.
        if (used.len(), variables.len()) == before {
            return used;
        }
    }
}

fn statement_faults(layout: Option<&Layout>, statement: &Statement, extents: &BTreeMap<String, i64>) -> Vec<(Fault, String)> {
    match &statement.operation {
        Operation::Pointwise { function, .. } => pointwise_faults(*function),
        Operation::Constant { value, dtype } => constant_faults(*value, dtype.is_float())
            .into_iter()
            .map(|(changed, text)| (Fault::Constant(changed), format!("constant {text}")))
            .collect(),
        Operation::Masked { other, .. } => {
            let changed = if other.as_f64() == 0.0 { Scalar::Float(1.0) } else { Scalar::Float(0.0) };
            vec![(Fault::Other(changed), "another value where the mask does not hold".into())]
        }
        Operation::Reduction { kind, .. } => {
            let other = other_reduction(*kind);
            other.map(|other| (Fault::Reduction(other), format!("{kind:?} -> {other:?}"))).into_iter().collect()
        }
        Operation::Item { position, .. } => {
            vec![(Fault::Item(1 - position.min(&1)), format!("result {position} -> {}", 1 - position.min(&1)))]
        }
        Operation::Load { buffer, index } => {
            let mut faults = index_faults(index, extents);
            faults.extend(shifted(layout, buffer, index));
            faults
        }
        Operation::Store { index, mode, .. } => {
            let mut faults = index_faults(index, extents);
            faults.extend(mode.map(|_| (Fault::Overwrite, "overwrites where it should add".to_owned())));
            faults
        }
        Operation::Index { index, .. } => index_faults(index, extents),
        Operation::Cast { .. } | Operation::Bitcast { .. } | Operation::Indirect { .. } => Vec::new(),
    }
}

fn pointwise_faults(function: Function) -> Vec<(Fault, String)> {
    let name = function.name();
    let mut faults: Vec<(Fault, String)> =
        other_functions(function).iter().map(|other| (Fault::Function(*other), format!("{name} -> {}", other.name()))).collect();
    use Function as F;
    match function {
        F::Sub | F::Truediv | F::Floordiv | F::Pow | F::Atan2 | F::Copysign | F::Mod | F::Remainder | F::BitwiseLeftShift => {
            faults.push((Fault::Swapped, format!("arguments of {name} swapped")));
        }
        F::Where => faults.push((Fault::Swapped, "branches of where swapped".into())),
        _ => {}
    }
    match function {
        F::Add | F::Sub | F::Mul | F::Truediv => faults.push((Fault::Only(0), format!("second argument of {name} dropped"))),
        F::Fma => faults.push((Fault::Only(2), "product of fma dropped".into())),
        F::Where => faults.push((Fault::Only(1), "where always takes its first branch".into())),
        _ => {}
    }
    faults
}

/// Functions of the same number of arguments that could be mistaken for `function`.
fn other_functions(function: Function) -> &'static [Function] {
    use Function as F;
    match function {
        F::Add => &[F::Sub],
        F::Sub => &[F::Add],
        F::Mul => &[F::Add],
        F::Truediv => &[F::Mul],
        F::Maximum => &[F::Minimum],
        F::Minimum => &[F::Maximum],
        F::Lt => &[F::Le, F::Ge],
        F::Le => &[F::Lt, F::Gt],
        F::Gt => &[F::Ge, F::Le],
        F::Ge => &[F::Gt, F::Lt],
        F::Eq => &[F::Ne],
        F::Ne => &[F::Eq],
        F::LogicalAnd => &[F::LogicalOr],
        F::LogicalOr => &[F::LogicalAnd],
        F::BitwiseAnd => &[F::BitwiseOr],
        F::BitwiseOr => &[F::BitwiseAnd],
        F::LogicalNot | F::BitwiseNot | F::Neg => &[F::Identity],
        F::Abs => &[F::Neg, F::Identity],
        F::Relu => &[F::Abs, F::Identity],
        F::Square => &[F::Abs],
        F::Exp => &[F::Exp2, F::Expm1],
        F::Log => &[F::Log2, F::Log1p],
        F::Sqrt => &[F::Rsqrt],
        F::Rsqrt => &[F::Sqrt],
        F::Reciprocal => &[F::Identity],
        F::Erf => &[F::Tanh],
        F::Tanh => &[F::Erf],
        F::Sigmoid => &[F::Tanh],
        F::Sin => &[F::Cos],
        F::Cos => &[F::Sin],
        F::Floor => &[F::Ceil],
        F::Ceil => &[F::Floor],
        F::Round => &[F::Trunc],
        _ => &[],
    }
}

fn constant_faults(value: Scalar, float: bool) -> Vec<(Scalar, String)> {
    let changed = match value {
        Scalar::Int(value) if !float => Scalar::Int(value.wrapping_add(1)),
        other if !other.as_f64().is_finite() => Scalar::Float(0.0),
        other if other.as_f64() == 0.0 => Scalar::Float(0.01),
        other => Scalar::Float(other.as_f64() * 1.01),
    };
    vec![(changed, format!("{} -> {}", value.as_f64(), changed.as_f64()))]
}

fn other_reduction(kind: ReductionKind) -> Option<ReductionKind> {
    use ReductionKind as R;
    match kind {
        R::Sum => Some(R::Max),
        R::Prod => Some(R::Sum),
        R::Max => Some(R::Min),
        R::Min => Some(R::Max),
        R::Argmax => Some(R::Argmin),
        R::Argmin => Some(R::Argmax),
        R::Any | R::WelfordReduce | R::WelfordCombine | R::OnlineSoftmaxReduce => None,
    }
}

/// The index with one of its loops running backwards.
fn index_faults(index: &Expr, extents: &BTreeMap<String, i64>) -> Vec<(Fault, String)> {
    let reversible = index.variables().into_iter().filter_map(|name| Some((name, *extents.get(name)?))).filter(|(_, extent)| *extent > 1);
    reversible
        .map(|(name, extent)| {
            let backwards = Expr::add(vec![Expr::Int(extent - 1), Expr::mul(vec![Expr::Int(-1), Expr::var(name)])]);
            let reversed = index.map_vars(&mut |var| if var == name { backwards.clone() } else { Expr::var(var) });
            (Fault::Index(reversed), format!("{name} reversed in {index}"))
        })
        .collect()
}

/// The index one further, except at the end of the buffer.
fn shifted(layout: Option<&Layout>, buffer: &str, index: &Expr) -> Option<(Fault, String)> {
    let last = layout?.buffers.get(buffer)?.elements.checked_sub(1).filter(|last| *last > 0)?;
    let next = Expr::Min(vec![Expr::add(vec![index.clone(), Expr::Int(1)]), Expr::Int(last as i64)]);
    Some((Fault::Index(next), format!("{index} is one too far")))
}

fn apply(meaning: &Meaning, (node, statement): Place, fault: &Fault) -> Meaning {
    let mut mutant = meaning.clone();
    let Some(node) = mutant.nodes.get_mut(node) else { return mutant };
    if let Fault::Extent(position, extent) = fault
        && let Some(axis) = node.iter.iter_mut().chain(&mut node.reduce).nth(*position)
    {
        axis.extent = Expr::Int(*extent);
    }
    walk::each_mut(&mut node.body, &mut |candidate| {
        if Some(candidate.id) == statement {
            apply_to(&mut candidate.operation, fault);
        }
    });
    mutant
}

fn apply_to(operation: &mut Operation, fault: &Fault) {
    match (operation, fault) {
        (Operation::Pointwise { function, .. }, Fault::Function(other)) => *function = *other,
        (Operation::Pointwise { function: Function::Where, args }, Fault::Swapped) => args.swap(1, 2),
        (Operation::Pointwise { args, .. }, Fault::Swapped) => args.reverse(),
        (Operation::Pointwise { function, args }, Fault::Only(position)) => {
            *args = vec![args[*position]];
            *function = Function::Identity;
        }
        (Operation::Constant { value, .. }, Fault::Constant(other)) | (Operation::Masked { other: value, .. }, Fault::Other(other)) => {
            *value = *other;
        }
        (Operation::Reduction { kind, .. }, Fault::Reduction(other)) => *kind = *other,
        (Operation::Item { position, .. }, Fault::Item(other)) => *position = *other,
        (Operation::Load { index, .. } | Operation::Store { index, .. } | Operation::Index { index, .. }, Fault::Index(other)) => {
            *index = other.clone();
        }
        (Operation::Store { mode, .. }, Fault::Overwrite) => *mode = None,
        _ => {}
    }
}

#[cfg(test)]
mod tests;
