//! The loop plan of a kernel: which values are computed in which pass over a row, what is kept between passes, what fills a
//! vector and what is shared out among threads. Nothing here knows a language: an emitter turns it into code.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::meaning::{Expr, Function};

use super::Unsupported;
use super::graph::{Graph, Id, Level, Op};
use super::lanes::{self, Lanes};
use super::loops::{extents, iterations};
use super::region::{Region, Store};
use super::space::{Keep, Schedule, Threads};
use super::storage::Storage;

/// Most bytes that a row may keep between passes: half of a usual second-level cache, and safe on any stack.
const MAX_KEPT_BYTES: i64 = 512 << 10;

/// The plan of one region.
#[derive(Clone, Debug)]
pub struct RegionPlan {
    /// Values and loops.
    pub graph: Graph,
    /// What fills a vector.
    pub lanes: Lanes,
    /// Iterations of the loop around a vector of rows that are taken together.
    pub unroll: usize,
    /// What is shared out among threads.
    pub threads: Threads,
    /// What happens to a row, in order.
    pub steps: Vec<Step>,
    /// Fetch the next row during the last pass.
    pub prefetch: bool,
    /// Transpose what runs along the row where rows fill the vector.
    pub stage: bool,
}

/// One step of a row's work.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The domain that is passed over; `None` for work on the row itself.
    pub domain: Option<usize>,
    /// Values computed here, arguments first.
    pub values: Vec<Id>,
    /// Values among them that later passes read back.
    pub keep: Vec<Id>,
    /// Reductions that end with this pass.
    pub folds: Vec<Id>,
    /// Stores, after the values.
    pub stores: Vec<Store>,
}

/// Plans a region.
///
/// # Errors
/// Where the schedule does not suit the region.
pub fn plan(region: Region, storage: &Storage<'_>, schedule: &Schedule) -> Result<RegionPlan, Unsupported> {
    let mut graph = region.graph.clone();
    let lanes = lanes::choose(&mut graph, &region, schedule);
    let threads = lanes::threads(&graph, &region, lanes, schedule.threads);
    let planned = |keep| Planner::planned(&graph, &region, storage, keep);
    let mut planner = planned(schedule.keep);
    // Threads within a row divide each pass in their own way, so that none finds what another has kept.
    if threads == Threads::Within || planner.kept_bytes(lanes) > MAX_KEPT_BYTES {
        planner = planned(Keep::Nothing);
    }
    let steps = planner.steps();
    Ok(RegionPlan {
        lanes,
        unroll: usize::from(schedule.unroll.max(1)),
        threads,
        steps,
        prefetch: schedule.prefetch,
        stage: schedule.stage,
        graph,
    })
}

/// What happens to a row, in order, where nothing is kept between its passes.
pub fn passes(region: &Region, storage: &Storage<'_>) -> Vec<Step> {
    Planner::planned(&region.graph, region, storage, Keep::Nothing).steps()
}

struct Planner<'a> {
    graph: &'a Graph,
    region: &'a Region,
    storage: &'a Storage<'a>,
    /// By the number of passes that must have ended, and the domain.
    passes: BTreeMap<(usize, usize), Step>,
    /// Domain of each kept value.
    kept: BTreeMap<Id, usize>,
}

impl<'a> Planner<'a> {
    fn planned(graph: &'a Graph, region: &'a Region, storage: &'a Storage<'a>, keep: Keep) -> Self {
        let mut planner = Self { graph, region, storage, passes: BTreeMap::new(), kept: BTreeMap::new() };
        planner.place_folds();
        planner.place_stores();
        planner.fill_passes(keep);
        planner
    }

    fn pass(&mut self, time: usize, domain: usize) -> &mut Step {
        self.passes.entry((time, domain)).or_insert_with(|| Step { domain: Some(domain), ..Step::default() })
    }

    fn live(&self) -> BTreeSet<Id> {
        let mut live = BTreeSet::new();
        let mut open: Vec<Id> =
            self.region.stores.iter().flat_map(|store| store.target.args.iter().chain([&store.value])).copied().collect();
        while let Some(id) = open.pop() {
            if live.insert(id) {
                open.extend(&self.graph.value(id).args);
            }
        }
        live
    }

    fn place_folds(&mut self) {
        for id in self.live() {
            if let Op::Reduce { domain, .. } = self.graph.value(id).op {
                let time = self.graph.passes(id) - 1;
                self.pass(time, domain).folds.push(id);
            }
        }
    }

    /// Each store of a domain goes to the first pass that has all it needs; the last ones are placed first, so that earlier
    /// ones can ride along.
    fn place_stores(&mut self) {
        let mut timed: Vec<(usize, usize, Store)> = Vec::new();
        for store in &self.region.stores {
            if let Level::Inner(domain) = store.target.level {
                let ready = store.target.args.iter().chain([&store.value]).map(|id| self.graph.passes(*id)).max().unwrap_or(0);
                timed.push((ready.max(self.last_read(store, domain)), domain, store.clone()));
            }
        }
        timed.sort_by_key(|(time, ..)| std::cmp::Reverse(*time));
        for (time, domain, store) in timed {
            let existing = self.passes.keys().find(|(t, d)| *d == domain && *t >= time).map(|(t, _)| *t);
            self.pass(existing.unwrap_or(time), domain).stores.insert(0, store);
        }
    }

    /// Time of the last pass over `domain` that may read the memory that `store` overwrites.
    fn last_read(&self, store: &Store, domain: usize) -> usize {
        let memory = self.storage.of(&store.target.buffer);
        let reads = |id: Id| matches!(&self.graph.value(id).op, Op::Load { buffer, .. } if self.storage.of(buffer) == memory);
        let uses = |root: Id| self.inner(&[root], &|_| false).into_iter().any(reads);
        let folds =
            self.passes.iter().filter(|((_, d), _)| *d == domain).flat_map(|((time, _), step)| step.folds.iter().map(|id| (*time, *id)));
        let by_folds =
            folds.filter(|(_, fold)| self.graph.value(*fold).args.iter().any(|arg| uses(*arg))).map(|(time, _)| time).max().unwrap_or(0);
        let others = self.region.stores.iter().filter(|other| other.target.level == Level::Inner(domain) && uses(other.value));
        others.map(|other| self.graph.passes(other.value)).max().unwrap_or(0).max(by_folds)
    }

    /// Values of inner levels that `roots` need, arguments first; nothing below a value where `cut` holds, but that value too.
    fn inner(&self, roots: &[Id], cut: &dyn Fn(Id) -> bool) -> Vec<Id> {
        let mut found = BTreeSet::new();
        let mut open: Vec<Id> = roots.to_vec();
        while let Some(id) = open.pop() {
            if self.graph.level(id) != Level::Row && found.insert(id) && !cut(id) {
                open.extend(&self.graph.value(id).args);
            }
        }
        found.into_iter().collect()
    }

    fn fill_passes(&mut self, keep: Keep) {
        let keys: Vec<(usize, usize)> = self.passes.keys().copied().collect();
        let mut computed: BTreeMap<Id, (usize, usize)> = BTreeMap::new();
        for key in keys {
            let step = &self.passes[&key];
            let folded = step.folds.iter().flat_map(|fold| self.graph.value(*fold).args.iter().copied());
            let stored = step.stores.iter().flat_map(|store| store.target.args.iter().chain([&store.value]).copied());
            let roots: Vec<Id> = folded.chain(stored).collect();
            let at_hand = |id: Id| computed.contains_key(&id) && self.is_worth(id, keep);
            let needed = self.inner(&roots, &at_hand);
            let (read_back, fresh): (Vec<Id>, Vec<Id>) = needed.into_iter().partition(|id| at_hand(*id));
            for id in read_back {
                if self.kept.insert(id, key.1).is_none() {
                    self.passes.entry(computed[&id]).and_modify(|step| step.keep.push(id));
                }
            }
            for id in &fresh {
                computed.entry(*id).or_insert(key);
            }
            self.pass(key.0, key.1).values = fresh;
        }
    }

    /// Whether a value is worth keeping where it is needed again. For [`Keep::Costly`]: if it is costly itself, or the place
    /// where costly ones meet; between such a place and its users there is only cheap work to repeat.
    fn is_worth(&self, id: Id, keep: Keep) -> bool {
        let value = self.graph.value(id);
        match (&value.op, keep) {
            (_, Keep::Nothing) | (Op::Constant(_) | Op::Index(_), _) => false,
            (Op::Load { .. }, _) => is_gather(&value.op),
            (_, Keep::Costly) => {
                let costly: BTreeSet<&Id> = value.args.iter().filter(|arg| self.holds_costly(**arg)).collect();
                self.is_costly(id) || costly.len() > 1
            }
            (_, Keep::Everything) => true,
        }
    }

    fn is_costly(&self, id: Id) -> bool {
        let op = &self.graph.value(id).op;
        is_gather(op) || matches!(op, Op::Call(function) if is_costly(*function))
    }

    fn holds_costly(&self, id: Id) -> bool {
        self.inner(&[id], &|_| false).into_iter().any(|id| self.is_costly(id))
    }

    /// Bytes that a row keeps; a row of unknown length counts as a short one.
    fn kept_bytes(&self, lanes: Lanes) -> i64 {
        let rows = if let Lanes::Rows { lanes, .. } = lanes { lanes } else { 1 };
        let bytes = |(id, domain): (&Id, &usize)| match iterations(&extents(&self.graph.domains[*domain])) {
            Expr::Int(elements) => elements.saturating_mul(rows).saturating_mul(self.graph.dtype(*id).size_bytes() as i64),
            _ => 0,
        };
        self.kept.iter().map(bytes).fold(0, i64::saturating_add)
    }

    /// Row work and passes, in order of time.
    fn steps(mut self) -> Vec<Step> {
        let live = self.live();
        let is_row_work =
            |id: &Id| self.graph.level(*id) == Level::Row && !matches!(self.graph.value(*id).op, Op::Reduce { .. } | Op::Constant(_));
        let row_work: Vec<Id> = live.into_iter().filter(is_row_work).collect();
        let row_stores: Vec<&Store> = self.region.stores.iter().filter(|store| store.target.level == Level::Row).collect();
        let ready = |store: &Store| store.target.args.iter().chain([&store.value]).map(|id| self.graph.passes(*id)).max().unwrap_or(0);
        let passes = self.passes.keys().map(|(time, _)| time + 1).max().unwrap_or(0);
        let mut steps = Vec::new();
        for time in 0..=passes {
            let row = Step {
                values: row_work.iter().filter(|id| self.graph.passes(**id) == time).copied().collect(),
                stores: row_stores.iter().filter(|store| ready(store) == time).map(|store| (*store).clone()).collect(),
                ..Step::default()
            };
            if !row.values.is_empty() || !row.stores.is_empty() {
                steps.push(row);
            }
            let keys: Vec<(usize, usize)> = self.passes.keys().filter(|(t, _)| *t == time).copied().collect();
            steps.extend(keys.into_iter().filter_map(|key| self.passes.remove(&key)));
        }
        steps
    }
}

/// A load from a computed place.
fn is_gather(op: &Op) -> bool {
    matches!(op, Op::Load { index, .. } if index.variables().iter().any(|var| var.starts_with('$')))
}

fn is_costly(function: Function) -> bool {
    use Function::*;
    !matches!(
        function,
        Add | Sub
            | Mul
            | Maximum
            | Minimum
            | Eq
            | Ne
            | Lt
            | Gt
            | Le
            | Ge
            | LogicalAnd
            | LogicalOr
            | LogicalXor
            | LogicalNot
            | BitwiseAnd
            | BitwiseOr
            | BitwiseXor
            | BitwiseNot
            | BitwiseLeftShift
            | BitwiseRightShift
            | Where
            | Fma
            | Neg
            | Abs
            | Square
            | Relu
            | Identity
            | Isnan
            | Isinf
            | Signbit
            | Copysign
    )
}
