//! The frame of a region: loops over rows, arrays of a row, work on the row itself.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::meaning::Expr;

use super::super::Unsupported;
use super::super::graph::{Id, Level};
use super::super::lanes::Lanes;
use super::super::loops::{extents, iterations};
use super::super::plan::{RegionPlan, Step};
use super::super::space::Threads;
use super::super::storage::Storage;
use super::body::{BodyCopy, Emitter, numbers};
use super::index::plain;
use super::value::c_type;
use super::writer::Writer;

/// Writes a region. All threads of the team run this text; after it they have met, unless it is the last one.
pub fn emit(out: &mut Writer, plan: &RegionPlan, storage: &Storage<'_>, region: usize, is_last: bool) -> Result<(), Unsupported> {
    let graph = &plan.graph;
    let mut emitter = Emitter {
        out,
        plan,
        storage,
        graph,
        region,
        numbers: numbers(plan),
        local: BTreeSet::new(),
        lane: String::new(),
        replaced: BTreeMap::new(),
    };
    emitter.region(is_last)
}

impl Emitter<'_> {
    fn region(&mut self, is_last: bool) -> Result<(), Unsupported> {
        let plan = self.plan;
        self.out.open("{");
        let loops = self.row_loops();
        let (heap, stack): (Vec<_>, Vec<_>) = self.kept_arrays()?.into_iter().partition(|(.., size)| !matches!(size, Expr::Int(_)));
        for (name, c_type, size) in &heap {
            self.out.line(format!("{c_type}* const {name} = new {c_type}[{}];", plain(size)));
        }
        if plan.threads == Threads::Rows {
            let nowait = if is_last { " nowait" } else { "" };
            self.out.line(format!("#pragma omp for schedule(static) collapse({}){nowait}", loops.len()));
        }
        if plan.threads == Threads::Within {
            self.out.line("const int thread = omp_get_thread_num(), team = omp_get_num_threads();");
        }
        loops.iter().for_each(|header| self.out.open(header));
        for (name, c_type, size) in &stack {
            self.out.line(format!("alignas(64) {c_type} {name}[{}];", plain(size)));
        }
        self.declare_vectors()?;
        for at in 0..plan.steps.len() {
            match plan.steps[at].domain {
                None => self.row_work(&plan.steps[at])?,
                Some(domain) => self.pass(at, domain)?,
            }
        }
        if plan.threads == Threads::Within && !(is_last && loops.is_empty()) {
            self.out.line("#pragma omp barrier");
        }
        loops.iter().for_each(|_| self.out.close());
        heap.iter().for_each(|(name, ..)| self.out.line(format!("delete[] {name};")));
        self.out.close();
        Ok(())
    }

    fn row_loops(&self) -> Vec<String> {
        let lane_axis = if let Lanes::Rows { axis, .. } = self.plan.lanes { Some(axis) } else { None };
        let others = self.graph.rows.iter().enumerate().filter(|(k, _)| Some(*k) != lane_axis);
        let mut loops: Vec<String> = others.map(|(_, axis)| loop_header(&axis.var, "0", &plain(&axis.extent), 1)).collect();
        loops.extend(self.tile().map(|tile| loop_header(&tile.start, "0", &plain(&tile.extent), tile.lanes)));
        loops
    }

    /// Name, type and size of each value that a row keeps between passes.
    fn kept_arrays(&self) -> Result<Vec<(String, &'static str, Expr)>, Unsupported> {
        let rows = if let Lanes::Rows { lanes, .. } = self.plan.lanes { lanes } else { 1 };
        let mut arrays = Vec::new();
        for id in self.plan.steps.iter().flat_map(|step| &step.keep) {
            if let Level::Inner(domain) = self.graph.level(*id) {
                let elements = Expr::mul(vec![iterations(&extents(&self.graph.domains[domain])), Expr::Int(rows)]);
                arrays.push((format!("row{}", self.numbers[id]), c_type(self.graph.dtype(*id))?, elements));
            }
        }
        Ok(arrays)
    }

    /// Declares the values of a vector of rows, and how many rows it has.
    fn declare_vectors(&mut self) -> Result<(), Unsupported> {
        let Some(tile) = self.tile() else { return Ok(()) };
        let lanes = tile.lanes;
        self.out.line(match tile.is_whole() {
            true => format!("constexpr int64_t lanes = {lanes};"),
            false => format!("const int64_t lanes = std::min<int64_t>({lanes}, {} - {});", plain(&tile.extent), tile.start),
        });
        for step in &self.plan.steps {
            let row_values = if step.domain.is_none() { step.values.as_slice() } else { &[] };
            let vectors: Vec<Id> = row_values.iter().filter(|id| self.is_vector(**id, step)).chain(&step.folds).copied().collect();
            for id in vectors {
                self.out.line(format!("alignas(64) {} v{}[{lanes}];", c_type(self.graph.dtype(id))?, self.numbers[&id]));
            }
        }
        Ok(())
    }

    /// True where a row value of step `own` is read in another loop than the one that computes it.
    fn is_vector(&self, id: Id, own: &Step) -> bool {
        let stored_apart = self.plan.threads == Threads::Within && !own.stores.is_empty();
        self.plan.steps.iter().filter(|step| stored_apart || !std::ptr::eq(*step, own)).any(|step| {
            let by_values = step.values.iter().chain(&step.folds).any(|user| self.graph.value(*user).args.contains(&id));
            by_values || step.stores.iter().any(|store| store.value == id || store.target.args.contains(&id))
        })
    }

    /// Values and stores of the row itself.
    fn row_work(&mut self, step: &Step) -> Result<(), Unsupported> {
        self.local.clear();
        let once = self.plan.threads == Threads::Within && !step.stores.is_empty();
        let copy = BodyCopy::default();
        let Some(tile) = self.tile() else {
            self.compute(&step.values, &copy)?;
            return if once { self.store_once(step) } else { self.write(&step.stores, &copy) };
        };
        if once && step.values.is_empty() {
            return self.store_once(step);
        }
        self.open_lanes(step, "lanes", &tile.start, &tile.variable);
        self.compute(&step.values, &copy)?;
        let vectors: Vec<usize> = step.values.iter().filter(|id| self.is_vector(**id, step)).map(|id| self.numbers[id]).collect();
        for number in vectors {
            self.out.line(format!("v{number}[l] = w{number};"));
        }
        if !once {
            self.write(&step.stores, &copy)?;
        }
        self.out.close();
        if once { self.store_once(step) } else { Ok(()) }
    }

    /// The row's stores by one thread, after all have read what they overwrite.
    fn store_once(&mut self, step: &Step) -> Result<(), Unsupported> {
        self.out.line("#pragma omp barrier");
        self.out.open("if (thread == 0) {");
        let tile = self.tile();
        if let Some(tile) = &tile {
            self.local.clear();
            self.open_lanes(step, "lanes", &tile.start, &tile.variable);
        }
        self.write(&step.stores, &BodyCopy::default())?;
        if tile.is_some() {
            self.out.close();
        }
        self.out.close();
        Ok(())
    }
}

/// `for (int64_t var = from; var < to; var += step) {`.
pub fn loop_header(var: &str, from: &str, to: &str, step: i64) -> String {
    let advance = if step == 1 { format!("++{var}") } else { format!("{var} += {step}") };
    format!("for (int64_t {var} = {from}; {var} < {to}; {advance}) {{")
}
