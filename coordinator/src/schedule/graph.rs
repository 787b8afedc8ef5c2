//! The values of a region, hash-consed: one value for one computation, whichever nodes ask for it.
//!
//! A region is a set of meaning nodes that share their outer loops, the *rows*. A value either belongs to a row
//! ([`Level::Row`]: loaded once per row, or the result of a reduction) or to an element of one of the row's inner
//! *domains* ([`Level::Inner`]). Loop-invariant code motion is thereby done: a value's level is where it is computed.

use std::collections::{BTreeMap, HashMap};

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::{Axis, Expr, Function};

use super::index::Ranges;

/// A value of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(u32);

/// Where a value lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// Once per row.
    Row,
    /// Once per element of the domain of that number.
    Inner(usize),
}

/// How a reduction combines two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is the reduction of its name")]
pub enum Fold {
    Sum,
    Prod,
    /// NaN wins.
    Max,
    /// NaN wins.
    Min,
    Any,
    /// The sum of `exp(x - m)`, `m` the maximum, in one pass. Only [`super::triton`] makes and writes it.
    SumExp,
    /// One of the statistics that are kept up to date element by element, in one pass for all of them. A second argument is the
    /// condition under which an element takes part: it holds for the first elements of a row and for no later one
    /// ([`super::reduction::prefix`]). Only [`super::triton`] writes it.
    Running(Moment),
}

/// What running statistics give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is the moment of its name")]
pub enum Moment {
    Mean,
    /// The sum of squared deviations from the mean.
    Deviations,
    /// Elements that take part.
    Count,
}

/// A constant; floats by their bits, so that constants can be hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Number {
    /// An integer or boolean.
    Int(i64),
    /// The bits of a double.
    Float(u64),
}

/// How a value is computed from its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "fields are explained by their variant")]
pub enum Op {
    /// A constant.
    Constant(Number),
    /// An index expression; `$k` in it is argument `k`.
    Index(Expr),
    /// `buffer[index]`; `$k` in the index is argument `k`. If `guarded`, the last argument is a condition without which
    /// nothing is read and the value is zero.
    Load { buffer: String, index: Expr, guarded: bool },
    /// An element of `[0, size)` from a possibly negative one; stops the program where `check` finds it outside.
    Wrap { size: Expr, wrap_negative: bool, check: bool, guarded: bool },
    /// Conversion to the value's type.
    Cast,
    /// The argument's bits as the value's type.
    Bitcast,
    /// An element-wise function.
    Call(Function),
    /// A reduction of the first argument over a domain.
    Reduce { fold: Fold, domain: usize },
}

/// One value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    /// How it is computed.
    pub op: Op,
    /// From what.
    pub args: Vec<Id>,
    /// Its type. Narrow floats are computed in [`Dtype::Float32`].
    pub dtype: Dtype,
    /// Where it lives.
    pub level: Level,
    /// Passes over the row that must have ended before it can be computed.
    pub passes: usize,
}

/// The values of one region and the loops around them.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    values: Vec<Value>,
    index: HashMap<Value, Id>,
    /// Loops of the rows, outermost first.
    pub rows: Vec<Axis>,
    /// Loops of each inner domain, outermost first.
    pub domains: Vec<Vec<Axis>>,
    /// Ranges of all loop variables and symbols.
    pub ranges: Ranges,
    level_of_var: BTreeMap<String, Level>,
}

impl Graph {
    /// An empty graph over rows `r0`, `r1`, ... of these extents.
    pub fn new(extents: &[Expr], ranges: Ranges) -> Self {
        let mut graph = Self { ranges, ..Self::default() };
        graph.rows = graph.axes("r", extents, Level::Row);
        graph
    }

    fn axes(&mut self, prefix: &str, extents: &[Expr], level: Level) -> Vec<Axis> {
        let axes: Vec<Axis> =
            extents.iter().enumerate().map(|(k, extent)| Axis { var: format!("{prefix}{k}"), extent: extent.clone() }).collect();
        for axis in &axes {
            self.ranges.add_loop(&axis.var, &axis.extent);
            self.level_of_var.insert(axis.var.clone(), level);
        }
        axes
    }

    /// Adds an inner domain and gives its number.
    pub fn add_domain(&mut self, extents: &[Expr]) -> usize {
        let number = self.domains.len();
        let prefix = ["i", "j", "k", "m", "n"].get(number).map_or_else(|| format!("i{number}_"), |p| (*p).to_owned());
        let axes = self.axes(&prefix, extents, Level::Inner(number));
        self.domains.push(axes);
        number
    }

    /// The value itself.
    pub fn value(&self, id: Id) -> &Value {
        &self.values[id.0 as usize]
    }

    /// Type of a value.
    pub fn dtype(&self, id: Id) -> Dtype {
        self.value(id).dtype
    }

    /// Level of a value.
    pub fn level(&self, id: Id) -> Level {
        self.value(id).level
    }

    /// All identities, arguments before their users.
    pub fn ids(&self) -> impl Iterator<Item = Id> + use<> {
        (0..self.values.len() as u32).map(Id)
    }

    /// Level of an index expression, its `$k` left out.
    pub fn level_of(&self, expr: &Expr) -> Level {
        expr.variables().iter().filter_map(|var| self.level_of_var.get(*var)).copied().max().unwrap_or(Level::Row)
    }

    /// The value of this computation, new or already there.
    pub fn add(&mut self, op: Op, args: Vec<Id>, dtype: Dtype) -> Id {
        let level = match &op {
            Op::Reduce { .. } => Level::Row,
            Op::Index(index) | Op::Load { index, .. } => self.level_of(index).max(self.level_of_args(&args)),
            _ => self.level_of_args(&args),
        };
        let passes = self.passes_of(&op, &args);
        self.intern(Value { op, args, dtype, level, passes })
    }

    fn passes_of(&self, op: &Op, args: &[Id]) -> usize {
        let args = args.iter().map(|arg| self.passes(*arg)).max().unwrap_or(0);
        args + usize::from(matches!(op, Op::Reduce { .. }))
    }

    /// Passes over the row that must have ended before a value can be computed.
    pub fn passes(&self, id: Id) -> usize {
        self.value(id).passes
    }

    fn level_of_args(&self, args: &[Id]) -> Level {
        args.iter().map(|arg| self.level(*arg)).max().unwrap_or(Level::Row)
    }

    fn intern(&mut self, value: Value) -> Id {
        if let Some(id) = self.index.get(&value) {
            return *id;
        }
        let id = Id(self.values.len() as u32);
        self.index.insert(value.clone(), id);
        self.values.push(value);
        id
    }

    /// The value of this computation, if it is there.
    pub fn find(&self, op: Op, args: &[Id], dtype: Dtype) -> Option<Id> {
        let (level, passes) = (self.level_of_args(args), self.passes_of(&op, args));
        self.index.get(&Value { op, args: args.to_vec(), dtype, level, passes }).copied()
    }

    /// A constant of that type.
    pub fn constant(&mut self, number: f64, dtype: Dtype) -> Id {
        let number = if dtype.is_float() { Number::Float(number.to_bits()) } else { Number::Int(number as i64) };
        self.add(Op::Constant(number), Vec::new(), dtype)
    }

    /// An element-wise function; its type follows from the function and the arguments.
    pub fn call(&mut self, function: Function, args: Vec<Id>) -> Id {
        let dtype = self.result_type(function, &args);
        self.add(Op::Call(function), args, dtype)
    }

    fn result_type(&self, function: Function, args: &[Id]) -> Dtype {
        use Function::*;
        let types: Vec<Dtype> = args.iter().map(|arg| self.dtype(*arg)).collect();
        match function {
            Eq | Ne | Lt | Gt | Le | Ge | LogicalAnd | LogicalOr | LogicalXor | LogicalNot | Isnan | Isinf | Signbit => Dtype::Bool,
            Where => promote(&types[1..]),
            Truediv | Sqrt | Rsqrt | Exp | Log | Sigmoid | Tanh | Erf if !promote(&types).is_float() => Dtype::Float32,
            _ => promote(&types),
        }
    }

    /// A reduction over a domain.
    pub fn reduce(&mut self, fold: Fold, domain: usize, value: Id) -> Id {
        let dtype = self.dtype(value);
        self.add(Op::Reduce { fold, domain }, vec![value], dtype)
    }

    /// `value` converted, or itself where the type is right already.
    pub fn cast(&mut self, value: Id, dtype: Dtype) -> Id {
        let dtype = compute_type(dtype);
        if self.dtype(value) == dtype {
            return value;
        }
        match self.value(value) {
            // A condition that was a number meanwhile.
            Value { op: Op::Cast, args, .. } if dtype == Dtype::Bool && self.dtype(args[0]) == Dtype::Bool => args[0],
            _ => self.add(Op::Cast, vec![value], dtype),
        }
    }

    /// A copy of the graph's loops with no values, for rewriting into.
    pub fn emptied(&self) -> Self {
        Self { values: Vec::new(), index: HashMap::new(), ..self.clone() }
    }
}

/// The type in which values of a memory type are computed.
pub fn compute_type(dtype: Dtype) -> Dtype {
    if matches!(dtype, Dtype::Float16 | Dtype::Bfloat16) { Dtype::Float32 } else { dtype }
}

fn promote(types: &[Dtype]) -> Dtype {
    let rank = |dtype: &Dtype| match dtype {
        Dtype::Bool => 0,
        Dtype::Uint8 => 1,
        Dtype::Int8 => 2,
        Dtype::Int16 => 3,
        Dtype::Int32 => 4,
        Dtype::Int64 => 5,
        Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32 => 6,
        Dtype::Float64 => 7,
    };
    compute_type(types.iter().copied().max_by_key(rank).unwrap_or(Dtype::Float32))
}
