//! Statements to steps.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::affine::Affine;
use kernelopt_shared::meaning::concrete::concrete;
use kernelopt_shared::meaning::storage::Layout;
use kernelopt_shared::meaning::{Expr, Function, Meaning, Node, Operation, ReductionKind, Scalar, Statement, StoreMode, ValueId};

use super::Unsupported;
use super::plan::Shape;
use super::program::{AffinePlan, At, Constant, NodePlan, ReductionPlan, Slot, Step};
use super::registers::bank_of;
use super::types::{Kind, promote};

mod assign;
mod expr;
mod pointwise;

/// When a value is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Before the blocks of a row.
    Row,
    /// In each block.
    Block,
    /// After the blocks of a row.
    Finish,
}

/// A value: where it is, its type and when it is known.
#[derive(Clone, Copy, Debug)]
struct Value {
    slot: Slot,
    dtype: Dtype,
    stage: Stage,
}

/// One node on its way.
struct Lowering<'a> {
    meaning: &'a Meaning,
    layout: &'a Layout,
    node: &'a Node,
    shape: Shape,
    /// Regions that this node stores to: a load from one must stay where it is.
    stored: BTreeSet<usize>,
    values: BTreeMap<ValueId, Vec<Value>>,
    variables: BTreeMap<String, Value>,
    mask: Option<Value>,
    affines: Vec<(Affine, AffinePlan)>,
    constants: Vec<(Slot, Constant)>,
    sections: [Vec<Step>; 3],
    reductions: Vec<ReductionPlan>,
    registers: [(usize, usize); 3],
    names: Vec<String>,
}

type Lowered<T = ()> = Result<T, Unsupported>;

/// Compiles one node of `meaning`.
pub(super) fn node(meaning: &Meaning, layout: &Layout, node: &Node) -> Lowered<NodePlan> {
    let node = concrete(meaning, node);
    let region = |statement: &Statement| match &statement.operation {
        Operation::Store { buffer, .. } => layout.buffers.get(buffer).map(|place| place.region),
        _ => None,
    };
    let mut lowering = Lowering {
        meaning,
        layout,
        node: &node,
        shape: Shape::of(&node),
        stored: node.body.iter().filter_map(region).collect(),
        values: BTreeMap::new(),
        variables: BTreeMap::new(),
        mask: None,
        affines: Vec::new(),
        constants: Vec::new(),
        sections: Default::default(),
        reductions: Vec::new(),
        registers: Default::default(),
        names: Vec::new(),
    };
    for statement in &node.body {
        lowering.statement(statement)?;
    }
    Ok(lowering.plan())
}

impl Lowering<'_> {
    fn plan(mut self) -> NodePlan {
        let lasting = self.reductions.iter().flat_map(|plan| plan.results.iter().copied()).collect();
        assign::reuse(&mut self.sections, &lasting);
        let [row, block, finish] = self.sections;
        NodePlan {
            name: self.node.name.clone(),
            outer: self.shape.outer,
            lane_loop: self.shape.lane_loop,
            lanes_inside: self.shape.lanes_inside,
            divisible: self.shape.divisible,
            loops: self.shape.loops,
            affines: self.affines.into_iter().map(|(_, plan)| plan).collect(),
            constants: self.constants,
            row,
            block,
            finish,
            reductions: self.reductions,
            registers: self.registers,
            variables: self.names,
        }
    }

    fn slot(&mut self, kind: Kind, wide: bool) -> Slot {
        let (singles, wides) = &mut self.registers[bank_of(kind)];
        let count = if wide { wides } else { singles };
        *count += 1;
        Slot { kind, wide, number: *count - 1 }
    }

    /// Adds the step that `make` gives for a new register of type `dtype`.
    fn emit(&mut self, dtype: Dtype, wide: bool, stage: Stage, make: impl FnOnce(Slot) -> Step) -> Value {
        let slot = self.slot(Kind::of(dtype), wide);
        self.sections[stage as usize].push(make(slot));
        Value { slot, dtype, stage }
    }

    fn constant(&mut self, constant: Constant, dtype: Dtype) -> Value {
        let slot = self.slot(Kind::of(dtype), false);
        self.constants.push((slot, constant));
        Value { slot, dtype, stage: Stage::Row }
    }

    fn scalar(&mut self, scalar: Scalar, dtype: Dtype) -> Value {
        let constant = match (Kind::of(dtype), scalar) {
            (Kind::Float, scalar) => Constant::Float(scalar.as_f64()),
            (Kind::Int, Scalar::Int(value)) => Constant::Int(super::types::wrap(value, dtype)),
            (Kind::Int, Scalar::Float(value)) => Constant::Int(super::types::wrap(value as i64, dtype)),
            (Kind::Bool, scalar) => Constant::Bool(scalar.as_f64() != 0.0),
        };
        self.constant(constant, dtype)
    }

    fn int(&mut self, value: i64) -> Value {
        self.constant(Constant::Int(value), Dtype::Int64)
    }

    /// `value` in the domain of `dtype`, wrapped to its width.
    fn cast(&mut self, value: Value, dtype: Dtype) -> Value {
        let (wide, stage) = (value.slot.wide, value.stage);
        let mut value = value;
        if Kind::of(dtype) != value.slot.kind {
            let from = value.slot;
            // A number made from a float may be of any size.
            let exact = if Kind::of(dtype) == Kind::Int && value.slot.kind == Kind::Float { Dtype::Int64 } else { dtype };
            value = self.emit(exact, wide, stage, |to| Step::Convert { to, from });
        }
        if value.slot.kind == Kind::Int && value.dtype != dtype && dtype != Dtype::Int64 {
            let from = value.slot;
            value = self.emit(dtype, wide, stage, |to| Step::Wrap { to, from, dtype });
        }
        Value { dtype, ..value }
    }

    fn value(&self, id: ValueId) -> Value {
        // Validation proved that it was made.
        self.values[&id][0]
    }

    fn statement(&mut self, statement: &Statement) -> Lowered {
        let made = match &statement.operation {
            Operation::Load { buffer, index } => vec![self.load(buffer, index)?],
            Operation::Store { buffer, index, value, mode } => {
                self.store(buffer, index, *value, *mode == Some(StoreMode::AtomicAdd))?;
                Vec::new()
            }
            Operation::Constant { value, dtype } => vec![self.scalar(*value, *dtype)],
            Operation::Index { index, dtype } => {
                let value = self.index_value(index);
                vec![self.cast(value, *dtype)]
            }
            Operation::Cast { value, dtype } => {
                let value = self.value(*value);
                vec![self.cast(value, *dtype)]
            }
            Operation::Bitcast { value, from, dtype } => {
                let value = self.value(*value);
                let value = self.cast(value, *from);
                let step = |to| Step::Bitcast { to, from: value.slot, source: *from, target: *dtype };
                vec![self.emit(*dtype, value.slot.wide, value.stage, step)]
            }
            Operation::Pointwise { function, args } => {
                let args: Vec<Value> = args.iter().map(|id| self.value(*id)).collect();
                vec![self.pointwise(*function, &args)]
            }
            Operation::Reduction { kind, dtype, values } => self.reduction(*kind, *dtype, values),
            Operation::Item { value, position } => vec![self.values[value][*position]],
            Operation::Masked { mask, other, body, result } => vec![self.masked(*mask, *other, body, *result)?],
            Operation::Indirect { value, variable, size, check, wrap_negative } => {
                let bound = self.indirect(*value, variable, size, *check, *wrap_negative);
                self.variables.insert(variable.clone(), bound);
                Vec::new()
            }
        };
        self.values.insert(statement.id, made);
        Ok(())
    }

    fn masked(&mut self, mask: ValueId, other: Scalar, body: &[Statement], result: ValueId) -> Lowered<Value> {
        let mask = self.value(mask);
        let own = self.cast(mask, Dtype::Bool);
        let outer = self.mask;
        self.mask = Some(match outer {
            Some(outer) => self.pointwise(Function::LogicalAnd, &[outer, own]),
            None => own,
        });
        for statement in body {
            self.statement(statement)?;
        }
        self.mask = outer;
        let inside = self.value(result);
        let other = self.scalar(other, inside.dtype);
        Ok(self.pointwise(Function::Where, &[own, inside, other]))
    }

    fn indirect(&mut self, value: ValueId, variable: &str, size: &Expr, check: bool, wrap_negative: bool) -> Value {
        let value = self.value(value);
        let from = self.cast(value, Dtype::Int64);
        let size = self.index_value(size);
        let parts = [Some(from), Some(size), self.mask];
        let parts = parts.iter().flatten();
        let (wide, stage) = (parts.clone().any(|v| v.slot.wide), parts.map(|v| v.stage).max().unwrap_or(Stage::Row));
        let mask = self.mask.map(|mask| mask.slot);
        self.names.push(variable.to_owned());
        let variable = self.names.len() - 1;
        let step = |to| Step::Indirect { to, from: from.slot, size: size.slot, variable, wrap_negative, check, mask };
        self.emit(Dtype::Int64, wide, stage, step)
    }

    fn load(&mut self, buffer: &str, index: &Expr) -> Lowered<Value> {
        let place = self.layout.buffers[buffer];
        let (region, dtype) = (place.region, self.layout.regions[place.region].dtype);
        let floor = if self.stored.contains(&region) { Stage::Block } else { Stage::Row };
        let (at, stage, wide, mask) = match self.affine_place(buffer, index)? {
            Some(affine) => (At::Affine(affine), self.stage_of(affine), self.is_wide(affine), None),
            None => {
                let index = self.element(buffer, index);
                let parts = [Some(index), self.mask];
                let parts = parts.iter().flatten();
                let (wide, stage) = (parts.clone().any(|v| v.slot.wide), parts.map(|v| v.stage).max().unwrap_or(Stage::Row));
                (At::Slot(index.slot), stage, wide, self.mask.map(|mask| mask.slot))
            }
        };
        // What a reduction found is loaded by after it; anything else from a region that changes here must not be loaded early.
        let stage = stage.max(floor);
        Ok(self.emit(dtype, wide, stage, |to| Step::Load { to, region, at, mask }))
    }

    fn store(&mut self, buffer: &str, index: &Expr, value: ValueId, add: bool) -> Lowered {
        let place = self.layout.buffers[buffer];
        let value = self.value(value);
        let value = self.cast(value, self.layout.regions[place.region].dtype);
        let (at, stage, wide) = match self.affine_place(buffer, index)? {
            Some(affine) => (At::Affine(affine), self.stage_of(affine), self.is_wide(affine)),
            None => {
                let index = self.element(buffer, index);
                (At::Slot(index.slot), index.stage, index.slot.wide)
            }
        };
        let stage = stage.max(value.stage).max(Stage::Block);
        // An element that is added to is added to by every lane, also where all lanes do the same.
        let lanes = stage == Stage::Block || self.shape.per_lane;
        let wide = wide || value.slot.wide || (add && lanes);
        self.sections[stage as usize].push(Step::Store { region: place.region, at, value: value.slot, add, wide });
        Ok(())
    }

    fn reduction(&mut self, kind: ReductionKind, dtype: Dtype, values: &[ValueId]) -> Vec<Value> {
        use ReductionKind as R;
        let values: Vec<Value> = values.iter().map(|id| self.value(*id)).collect();
        let domain = match kind {
            R::Any => Dtype::Bool,
            R::Argmax | R::Argmin if values[0].slot.kind == Kind::Float => Dtype::Float64,
            R::Argmax | R::Argmin => Dtype::Int64,
            R::WelfordReduce | R::WelfordCombine | R::OnlineSoftmaxReduce => Dtype::Float64,
            R::Sum | R::Prod | R::Max | R::Min => dtype,
        };
        // A wider type than the operands' own holds what they were; a narrower one wraps only the result.
        let domain = if Kind::of(domain) == Kind::Int { Dtype::Int64 } else { domain };
        let values: Vec<Slot> = values.into_iter().map(|value| self.cast(value, domain).slot).collect();
        let result = if matches!(kind, R::Argmax | R::Argmin) { Dtype::Int64 } else { domain };
        let wide = self.shape.per_lane && self.shape.lane_loop.is_some();
        let results: Vec<Slot> = (0..kind.results()).map(|_| self.slot(Kind::of(result), wide)).collect();
        self.sections[Stage::Block as usize].push(Step::Accumulate { reduction: self.reductions.len(), values });
        let plan = ReductionPlan { kind, domain: Kind::of(domain), results: results.clone(), per_lane: self.shape.per_lane };
        self.reductions.push(plan);
        let made = results.into_iter().map(|slot| Value { slot, dtype: result, stage: Stage::Finish });
        made.collect::<Vec<_>>().into_iter().map(|value| self.cast(value, dtype)).collect()
    }
}
