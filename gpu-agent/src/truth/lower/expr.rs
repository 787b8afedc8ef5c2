//! Index expressions: affine ones become tables, the others integer arithmetic.

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::Function;
use kernelopt_shared::meaning::affine::Affine;
use kernelopt_shared::meaning::expr::{Comparison, Expr};

use super::super::Unsupported;
use super::super::program::Step;
use super::{Lowered, Lowering, Stage, Value};

impl Lowering<'_> {
    /// The number of the affine index of `buffer[index]` within its region, if it is affine and stays inside.
    pub(super) fn affine_place(&mut self, buffer: &str, index: &Expr) -> Lowered<Option<usize>> {
        let place = self.layout.buffers[buffer];
        let elements = self.layout.regions[place.region].elements;
        let affine = self.loop_affine(index).and_then(|affine| affine.plus(&Affine::constant(place.offset as i64)));
        let Some(affine) = affine else { return Ok(None) };
        if self.shape.is_empty() {
            return Ok(Some(self.affine_number(affine)));
        }
        let range = affine.range(&|var| self.shape.extent(var));
        let inside = range.is_some_and(|(low, high)| low >= 0 && high < elements as i64);
        match (inside, self.mask) {
            (true, _) => Ok(Some(self.affine_number(affine))),
            // Lanes that would leave the buffer may be masked off: that is found out lane by lane.
            (false, Some(_)) => Ok(None),
            (false, None) => Err(Unsupported::OutOfRange {
                kernel: self.meaning.kernel.clone(),
                node: self.node.name.clone(),
                buffer: buffer.to_owned(),
                index: index.to_string(),
                elements,
            }),
        }
    }

    /// `expr` as an affine function of loop variables alone.
    fn loop_affine(&self, expr: &Expr) -> Option<Affine> {
        Affine::of(expr).filter(|affine| affine.terms.keys().all(|var| self.shape.extent(var).is_some()))
    }

    fn affine_number(&mut self, affine: Affine) -> usize {
        if let Some(known) = self.affines.iter().position(|(other, _)| *other == affine) {
            return known;
        }
        let plan = self.shape.affine(&affine);
        self.affines.push((affine, plan));
        self.affines.len() - 1
    }

    pub(super) fn is_wide(&self, affine: usize) -> bool {
        self.affines[affine].0.terms.keys().any(|var| self.shape.is_wide(var))
    }

    pub(super) fn stage_of(&self, affine: usize) -> Stage {
        let inner = self.affines[affine].0.terms.keys().any(|var| self.shape.is_inner(var));
        if inner { Stage::Block } else { Stage::Row }
    }

    /// The number of the element `buffer[index]` within its region.
    pub(super) fn element(&mut self, buffer: &str, index: &Expr) -> Value {
        let offset = self.layout.buffers[buffer].offset as i64;
        self.index_value(&Expr::add(vec![index.clone(), Expr::Int(offset)]))
    }

    /// The value of an index expression.
    pub(super) fn index_value(&mut self, expr: &Expr) -> Value {
        if let Some(affine) = self.loop_affine(expr) {
            return self.affine_value(affine);
        }
        match expr {
            Expr::Add(terms) => {
                // Terms of loop variables alone are summed by one table.
                let (plain, mixed): (Vec<&Expr>, Vec<&Expr>) = terms.iter().partition(|term| self.loop_affine(term).is_some());
                let mut values: Vec<Value> = mixed.into_iter().map(|term| self.index_value(term)).collect();
                if !plain.is_empty() {
                    values.push(self.index_value(&Expr::add(plain.into_iter().cloned().collect())));
                }
                self.fold(Function::Add, values)
            }
            Expr::Mul(items) => self.fold_exprs(Function::Mul, items),
            Expr::Min(items) => self.fold_exprs(Function::Minimum, items),
            Expr::Max(items) => self.fold_exprs(Function::Maximum, items),
            Expr::FloorDiv(a, b) => self.pair(Function::Floordiv, a, b),
            Expr::Mod(a, b) => self.pair(Function::Remainder, a, b),
            Expr::Where(condition, yes, no) => {
                let comparison = match condition.comparison {
                    Comparison::Lt => Function::Lt,
                    Comparison::Le => Function::Le,
                    Comparison::Eq => Function::Eq,
                    Comparison::Ne => Function::Ne,
                    Comparison::Gt => Function::Gt,
                    Comparison::Ge => Function::Ge,
                };
                let holds = self.pair(comparison, &condition.left, &condition.right);
                let (yes, no) = (self.index_value(yes), self.index_value(no));
                self.pointwise(Function::Where, &[holds, yes, no])
            }
            Expr::Int(value) => self.int(*value),
            // Validation proved that it is bound; its loop, if it is one, is handled above.
            Expr::Var(name) => self.variables[name],
        }
    }

    fn affine_value(&mut self, affine: Affine) -> Value {
        if affine.terms.is_empty() {
            return self.int(affine.constant);
        }
        let affine = self.affine_number(affine);
        let (wide, stage) = (self.is_wide(affine), self.stage_of(affine));
        self.emit(Dtype::Int64, wide, stage, |to| Step::Index { to, affine })
    }

    fn pair(&mut self, function: Function, a: &Expr, b: &Expr) -> Value {
        let args = [self.index_value(a), self.index_value(b)];
        self.pointwise(function, &args)
    }

    fn fold_exprs(&mut self, function: Function, items: &[Expr]) -> Value {
        let values = items.iter().map(|item| self.index_value(item)).collect();
        self.fold(function, values)
    }

    fn fold(&mut self, function: Function, values: Vec<Value>) -> Value {
        let combined = values.into_iter().reduce(|a, b| self.pointwise(function, &[a, b]));
        combined.unwrap_or_else(|| self.int(0))
    }
}
