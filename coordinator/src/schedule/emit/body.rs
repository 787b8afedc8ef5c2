//! The text inside a loop: values by their names, statements, stores.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::Expr;

use super::super::Unsupported;
use super::super::graph::{Fold, Graph, Id, Level, Op};
use super::super::lanes::Lanes;
use super::super::plan::{RegionPlan, Step};
use super::super::region::Store;
use super::super::space::Threads;
use super::super::storage::Storage;
use super::index;
use super::value::{self, Names, c_type};
use super::writer::Writer;

/// Writes one region.
pub struct Emitter<'a> {
    pub out: &'a mut Writer,
    pub plan: &'a RegionPlan,
    pub storage: &'a Storage<'a>,
    pub graph: &'a Graph,
    /// Number of the region in its kernel.
    pub region: usize,
    pub numbers: BTreeMap<Id, usize>,
    /// Values that the loop body being written has computed itself.
    pub local: BTreeSet<Id>,
    /// Loop variable along the lanes of the loop being written.
    pub lane: String,
    /// Values that lie ready somewhere: a tile.
    pub replaced: BTreeMap<Id, String>,
}

/// One of several copies of a loop body: how its values and its place along the loop are told from the others'.
#[derive(Clone, Default)]
pub struct BodyCopy {
    suffix: String,
    variables: BTreeMap<String, String>,
}

impl BodyCopy {
    /// The `k`-th copy along the loop of `variable`.
    pub fn of(k: usize, variable: &str) -> Self {
        if k == 0 {
            return Self::default();
        }
        Self { suffix: format!("_{k}"), variables: BTreeMap::from([(variable.to_owned(), format!("({variable} + {k})"))]) }
    }

    fn variable(&self, name: &str) -> String {
        self.variables.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }
}

/// Numbers of values, in the order in which they appear in the code.
pub fn numbers(plan: &RegionPlan) -> BTreeMap<Id, usize> {
    let mut numbers = BTreeMap::new();
    for id in plan.steps.iter().flat_map(|step| step.values.iter().chain(&step.folds)) {
        let next = numbers.len();
        numbers.entry(*id).or_insert(next);
    }
    numbers
}

impl Emitter<'_> {
    /// The name of a value where the code stands.
    pub fn spell(&self, id: Id, copy: &BodyCopy) -> String {
        let number = self.numbers.get(&id).copied().unwrap_or(usize::MAX);
        match (self.graph.level(id), self.plan.lanes) {
            (Level::Row, Lanes::Rows { .. }) if self.local.contains(&id) => format!("w{number}"),
            (Level::Row, Lanes::Rows { .. }) => format!("v{number}[l]"),
            (Level::Row, Lanes::Inner(_)) => format!("v{number}"),
            (Level::Inner(domain), _) if !self.local.contains(&id) => format!("row{number}[{}]", self.position(domain, copy)),
            _ => format!("v{number}{}", copy.suffix),
        }
    }

    /// Position of the current element in an array over a domain.
    fn position(&self, domain: usize, copy: &BodyCopy) -> String {
        let flat = self.graph.domains[domain]
            .iter()
            .fold(Expr::Int(0), |so_far, axis| Expr::add(vec![Expr::mul(vec![so_far, axis.extent.clone()]), Expr::var(axis.var.as_str())]));
        let text = index::text(&flat, &|var| copy.variable(var));
        match self.plan.lanes {
            Lanes::Rows { lanes, .. } => format!("{text} * {lanes} + l"),
            Lanes::Inner(_) => text,
        }
    }

    /// A value where it is used.
    pub fn operand(&self, id: Id, copy: &BodyCopy) -> String {
        self.named(copy, |names| value::operand(self.graph, id, names))
    }

    fn named<T>(&self, copy: &BodyCopy, text: impl FnOnce(&Names<'_>) -> T) -> T {
        text(&Names {
            value: &|id| self.spell(id, copy),
            variable: &|var| copy.variable(var),
            narrow: &|var| if var == self.lane { format!("(int32_t({var}_) + l)") } else { format!("int32_t({})", copy.variable(var)) },
        })
    }

    /// Computes `values`.
    pub fn compute(&mut self, values: &[Id], copy: &BodyCopy) -> Result<(), Unsupported> {
        for id in values {
            let text = match self.replaced.get(id) {
                Some(text) => text.clone(),
                None => self.named(copy, |names| value::expression(self.graph, self.storage, *id, names))?,
            };
            self.local.insert(*id);
            if !matches!(self.graph.value(*id).op, Op::Constant(_)) {
                let line = format!("const {} {} = {text};", c_type(self.graph.dtype(*id))?, self.spell(*id, copy));
                self.out.line(line);
            }
        }
        Ok(())
    }

    /// Writes `stores`.
    pub fn write(&mut self, stores: &[Store], copy: &BodyCopy) -> Result<(), Unsupported> {
        for store in stores {
            let subscript = self.named(copy, |names| value::subscript(self.graph, &store.target.index, &store.target.args, names));
            let text = self.operand(store.value, copy);
            let line = if store.atomic {
                self.add_to_memory(store, &subscript, &text)?
            } else {
                value::store(self.storage, &store.target.buffer, &subscript, &text)?
            };
            self.out.line(line);
        }
        Ok(())
    }

    fn add_to_memory(&self, store: &Store, subscript: &str, text: &str) -> Result<String, Unsupported> {
        let Some(argument) = self.storage.written_through(&store.target.buffer) else {
            return Err(Unsupported::new("scatter inside the kernel"));
        };
        if matches!(self.storage.dtype(&store.target.buffer), Dtype::Bfloat16 | Dtype::Float16 | Dtype::Bool) {
            return Err(Unsupported::new("scatter of a narrow type"));
        }
        let pragma = if self.plan.threads == Threads::One { "" } else { "_Pragma(\"omp atomic\") " };
        Ok(format!("{pragma}{}[{subscript}] += {text};", argument.name))
    }

    /// Leaves the values that later passes read back.
    pub fn keep(&mut self, step: &Step, copy: &BodyCopy) {
        for id in &step.keep {
            if let Level::Inner(domain) = self.graph.level(*id) {
                let line = format!("row{}[{}] = {};", self.numbers[id], self.position(domain, copy), self.spell(*id, copy));
                self.out.line(line);
            }
        }
    }

    /// Opens the innermost loop: `count` lanes from `start`.
    pub fn open_lanes(&mut self, step: &Step, count: &str, start: &str, variable: &str) {
        if !step.stores.iter().any(|store| store.atomic || store.is_scatter()) {
            self.out.line("#pragma omp simd");
        }
        self.out.open(format!("for (int32_t l = 0; l < {count}; ++l) {{"));
        self.out.line(format!("const int64_t {variable} = {start} + l;"));
        self.lane = variable.to_owned();
    }

    /// How a reduction combines, and what.
    pub fn fold_of(&self, id: Id) -> (Fold, Id) {
        match (&self.graph.value(id).op, self.graph.value(id).args.first()) {
            (Op::Reduce { fold, .. }, Some(arg)) => (*fold, *arg),
            _ => (Fold::Sum, id),
        }
    }

    /// The variable of the row loop that fills vectors, its first row in this vector, its extent and the lanes.
    pub fn tile(&self) -> Option<Tile> {
        let Lanes::Rows { axis, lanes } = self.plan.lanes else { return None };
        let axis = &self.graph.rows[axis];
        Some(Tile { variable: axis.var.clone(), start: format!("{}_", axis.var), extent: axis.extent.clone(), lanes })
    }
}

/// A vector of neighbouring rows.
pub struct Tile {
    pub variable: String,
    pub start: String,
    pub extent: Expr,
    pub lanes: i64,
}

impl Tile {
    /// True where every vector is full.
    pub fn is_whole(&self) -> bool {
        matches!(self.extent, Expr::Int(extent) if extent % self.lanes == 0)
    }
}
