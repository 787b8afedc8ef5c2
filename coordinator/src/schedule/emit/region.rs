//! Loops, accumulators and threads of one region.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::Expr;

use super::super::Unsupported;
use super::super::graph::{Fold, Graph, Id, Level, Op};
use super::super::index::coefficient;
use super::super::loops::{extents, iterations};
use super::super::plan::{Lanes, RegionPlan, Step, block};
use super::super::region::Store;
use super::super::space::Threads;
use super::super::storage::Storage;
use super::Team;
use super::index;
use super::value::{self, Names, c_type};
use super::writer::Writer;

/// Declares the arrays in which the threads of a region leave their parts of each reduction.
pub fn partials(out: &mut Writer, plan: &RegionPlan, region: usize, team: Team) -> Result<(), Unsupported> {
    if plan.threads != Threads::Within {
        return Ok(());
    }
    for fold in plan.steps.iter().flat_map(|step| &step.folds) {
        let dtype = plan.graph.dtype(*fold);
        // A cache line apart, so that threads do not wait for each other's stores.
        let width = if let Lanes::Rows { lanes, .. } = plan.lanes { lanes.max(16) } else { 16 };
        let name = Emitter::number(plan)[fold];
        out.line(format!("alignas(64) {} part{region}_{name}[{}][{width}];", c_type(dtype)?, team.size()));
    }
    Ok(())
}

/// Writes a region. All threads of the team run this text; after it they have met, unless it is the last one.
pub fn emit(out: &mut Writer, plan: &RegionPlan, storage: &Storage<'_>, region: usize, is_last: bool) -> Result<(), Unsupported> {
    let mut emitter = Emitter { out, plan, storage, graph: &plan.graph, region, numbers: Emitter::number(plan), local: BTreeSet::new(), lane: String::new() };
    emitter.region(is_last)
}

struct Emitter<'a> {
    out: &'a mut Writer,
    plan: &'a RegionPlan,
    storage: &'a Storage<'a>,
    graph: &'a Graph,
    region: usize,
    numbers: BTreeMap<Id, usize>,
    /// Values that the loop body being written has computed itself.
    local: BTreeSet<Id>,
    /// Loop variable along the lanes of the loop being written.
    lane: String,
}

/// One copy of a loop body: how its values and loop variables are told from those of other copies.
#[derive(Clone, Default)]
struct BodyCopy {
    suffix: String,
    variables: BTreeMap<String, String>,
}

impl Emitter<'_> {
    /// Numbers of values, in the order in which they appear in the code.
    fn number(plan: &RegionPlan) -> BTreeMap<Id, usize> {
        let mut numbers = BTreeMap::new();
        for id in plan.steps.iter().flat_map(|step| step.values.iter().chain(&step.folds)) {
            let next = numbers.len();
            numbers.entry(*id).or_insert(next);
        }
        numbers
    }

    fn region(&mut self, is_last: bool) -> Result<(), Unsupported> {
        let plan = self.plan;
        self.out.open("{");
        let loops = self.row_loops();
        if plan.threads == Threads::Rows {
            let nowait = if is_last { " nowait" } else { "" };
            self.out.line(format!("#pragma omp for schedule(static) collapse({}){nowait}", loops.len()));
        }
        if plan.threads == Threads::Within {
            self.out.line("const int thread = omp_get_thread_num(), team = omp_get_num_threads();");
        }
        for header in &loops {
            self.out.open(header);
        }
        if let Some((var, extent, lanes)) = self.tile() {
            let count = match extent {
                Expr::Int(extent) if extent % lanes == 0 => format!("constexpr int64_t lanes = {lanes};"),
                other => format!("const int64_t lanes = std::min<int64_t>({lanes}, {} - {var});", index::text(&other, &|v| v.to_owned())),
            };
            self.out.line(count);
        }
        self.declare_arrays()?;
        for at in 0..plan.steps.len() {
            match plan.steps[at].domain {
                None => self.row_work(&plan.steps[at])?,
                Some(domain) => self.pass(&plan.steps[at], domain, at)?,
            }
        }
        if plan.threads == Threads::Within && !(is_last && loops.is_empty()) {
            self.out.line("#pragma omp barrier");
        }
        loops.iter().for_each(|_| self.out.close());
        self.out.close();
        Ok(())
    }

    /// First row of the vector, extent and lanes, where rows fill the vector.
    fn tile(&self) -> Option<(String, Expr, i64)> {
        let Lanes::Rows { axis, lanes } = self.plan.lanes else { return None };
        Some((format!("{}_", self.graph.rows[axis].var), self.graph.rows[axis].extent.clone(), lanes))
    }

    fn row_loops(&self) -> Vec<String> {
        let lane_axis = if let Lanes::Rows { axis, .. } = self.plan.lanes { Some(axis) } else { None };
        let header = |var: &str, extent: &Expr, step: i64| {
            let step = if step == 1 { format!("++{var}") } else { format!("{var} += {step}") };
            format!("for (int64_t {var} = 0; {var} < {}; {step}) {{", index::text(extent, &|v| v.to_owned()))
        };
        let others = self.graph.rows.iter().enumerate().filter(|(k, _)| Some(*k) != lane_axis);
        let mut loops: Vec<String> = others.map(|(_, axis)| header(&axis.var, &axis.extent, 1)).collect();
        loops.extend(self.tile().map(|(var, extent, lanes)| header(&var, &extent, lanes)));
        loops
    }

    /// Arrays of a row: values kept between passes, and values of a vector of rows.
    fn declare_arrays(&mut self) -> Result<(), Unsupported> {
        let rows = if let Lanes::Rows { lanes, .. } = self.plan.lanes { Some(lanes) } else { None };
        for step in &self.plan.steps {
            for id in &step.keep {
                let Level::Inner(domain) = self.graph.level(*id) else { continue };
                let elements = Expr::mul(vec![iterations(&extents(&self.graph.domains[domain])), Expr::Int(rows.unwrap_or(1))]);
                let size = index::text(&elements, &|v| v.to_owned());
                self.out.line(format!("alignas(64) {} row{}[{size}];", c_type(self.graph.dtype(*id))?, self.numbers[id]));
            }
            let vectors = step.folds.iter().chain(if step.domain.is_none() { step.values.as_slice() } else { &[] });
            if let Some(lanes) = rows {
                for id in vectors {
                    self.out.line(format!("alignas(64) {} v{}[{lanes}];", c_type(self.graph.dtype(*id))?, self.numbers[id]));
                }
            }
        }
        Ok(())
    }

    fn spell(&self, id: Id, copy: &BodyCopy) -> String {
        let number = self.numbers.get(&id).copied().unwrap_or(usize::MAX);
        match (self.graph.level(id), self.plan.lanes) {
            (Level::Row, Lanes::Rows { .. }) if self.local.contains(&id) => format!("w{number}"),
            (Level::Row, Lanes::Rows { .. }) => format!("v{number}[l]"),
            (Level::Row, _) => format!("v{number}"),
            (Level::Inner(domain), _) if !self.local.contains(&id) => format!("row{number}[{}]", self.position(domain, copy)),
            _ => format!("v{number}{}", copy.suffix),
        }
    }

    /// Position of the current element in an array over a domain.
    fn position(&self, domain: usize, copy: &BodyCopy) -> String {
        let axes = &self.graph.domains[domain];
        let flat = axes.iter().fold(Expr::Int(0), |so_far, axis| {
            Expr::add(vec![Expr::mul(vec![so_far, axis.extent.clone()]), Expr::var(axis.var.as_str())])
        });
        let text = index::text(&flat, &|var| copy.variable(var));
        match self.plan.lanes {
            Lanes::Rows { lanes, .. } => format!("{text} * {lanes} + l"),
            Lanes::Inner(_) => text,
        }
    }

    /// Computes `values` and writes `stores`, in a loop body.
    fn body(&mut self, values: &[Id], stores: &[Store], copy: &BodyCopy) -> Result<(), Unsupported> {
        let mut statements = Vec::new();
        for id in values {
            let text = self.expression(*id, copy)?;
            self.local.insert(*id);
            if !matches!(self.graph.value(*id).op, Op::Constant(_)) {
                statements.push(format!("const {} {} = {text};", c_type(self.graph.dtype(*id))?, self.spell(*id, copy)));
            }
        }
        for store in stores {
            let names = (|id| self.spell(id, copy), |var: &str| copy.variable(var));
            let names = Names { value: &names.0, variable: &names.1, narrow: &names.1 };
            let subscript = value::subscript(self.graph, &store.target.index, &store.target.args, &names);
            let text = value::operand(self.graph, store.value, &names);
            statements.push(match store.atomic {
                false => value::store(self.storage, &store.target.buffer, &subscript, &text)?,
                true => self.atomic(store, &subscript, &text)?,
            });
        }
        statements.iter().for_each(|statement| self.out.line(statement));
        Ok(())
    }

    fn atomic(&self, store: &Store, subscript: &str, text: &str) -> Result<String, Unsupported> {
        let Some(argument) = self.storage.written_through(&store.target.buffer) else { return Err(Unsupported::new("scatter inside the kernel")) };
        if matches!(self.storage.dtype(&store.target.buffer), Dtype::Bfloat16 | Dtype::Float16 | Dtype::Bool) {
            return Err(Unsupported::new("scatter of a narrow type"));
        }
        let pragma = if self.plan.threads == Threads::One { "" } else { "_Pragma(\"omp atomic\") " };
        Ok(format!("{pragma}{}[{subscript}] += {text};", argument.name))
    }

    fn expression(&self, id: Id, copy: &BodyCopy) -> Result<String, Unsupported> {
        let names = (|id| self.spell(id, copy), |var: &str| copy.variable(var), |var: &str| self.narrow(var, copy));
        value::expression(self.graph, self.storage, id, &Names { value: &names.0, variable: &names.1, narrow: &names.2 })
    }

    /// Values and stores of the row itself.
    fn row_work(&mut self, step: &Step) -> Result<(), Unsupported> {
        self.local.clear();
        let within = self.plan.threads == Threads::Within;
        if let Some((var, ..)) = self.tile() {
            self.open_lanes(step, "lanes", &var, self.tile_variable());
            self.body(&step.values, &[], &BodyCopy::default())?;
            for id in &step.values {
                let number = self.numbers[id];
                self.out.line(format!("v{number}[l] = w{number};"));
            }
            if !within {
                self.body(&[], &step.stores, &BodyCopy::default())?;
            }
            self.out.close();
            if within && !step.stores.is_empty() {
                self.local.clear();
                self.store_once(step, Some(&var))?;
            }
            return Ok(());
        }
        self.body(&step.values, &[], &BodyCopy::default())?;
        if within && !step.stores.is_empty() { self.store_once(step, None) } else { self.body(&[], &step.stores, &BodyCopy::default()) }
    }

    /// The row's stores by one thread, after all have read what they overwrite.
    fn store_once(&mut self, step: &Step, tile: Option<&str>) -> Result<(), Unsupported> {
        self.out.line("#pragma omp barrier");
        self.out.open("if (thread == 0) {");
        if let Some(var) = tile {
            self.open_lanes(step, "lanes", var, self.tile_variable());
        }
        self.body(&[], &step.stores, &BodyCopy::default())?;
        if tile.is_some() {
            self.out.close();
        }
        self.out.close();
        Ok(())
    }

    fn tile_variable(&self) -> String {
        if let Lanes::Rows { axis, .. } = self.plan.lanes { self.graph.rows[axis].var.clone() } else { String::new() }
    }

    /// Opens the innermost loop: `count` lanes from `start`.
    fn open_lanes(&mut self, step: &Step, count: &str, start: &str, variable: String) {
        if !step.stores.iter().any(|store| store.atomic) {
            self.out.line("#pragma omp simd");
        }
        self.out.open(format!("for (int32_t l = 0; l < {count}; ++l) {{"));
        self.out.line(format!("const int64_t {variable} = {start} + l;"));
        self.lane = variable;
    }

    /// A loop variable in 32 bits; the one along the lanes without a detour over 64.
    fn narrow(&self, var: &str, copy: &BodyCopy) -> String {
        if var == self.lane { format!("(int32_t({var}_) + l)") } else { format!("int32_t({})", copy.variable(var)) }
    }

    fn fold_of(&self, id: Id) -> (Fold, Id) {
        match (&self.graph.value(id).op, self.graph.value(id).args.first()) {
            (Op::Reduce { fold, .. }, Some(arg)) => (*fold, *arg),
            _ => (Fold::Sum, id),
        }
    }

    fn pass(&mut self, step: &Step, domain: usize, at: usize) -> Result<(), Unsupported> {
        match self.plan.lanes {
            Lanes::Inner(want) => self.pass_along_row(step, domain, want, at),
            Lanes::Rows { lanes, .. } => self.pass_along_rows(step, domain, lanes),
        }
    }

    fn pass_along_row(&mut self, step: &Step, domain: usize, want: i64, at: usize) -> Result<(), Unsupported> {
        let axes = &self.graph.domains[domain];
        let Some((last, outer)) = axes.split_last() else { return Err(Unsupported::new("a domain without loops")) };
        let lanes = block(&last.extent, want);
        let within = self.plan.threads == Threads::Within;
        // One block is the whole row: its values are the accumulators.
        let is_single = outer.is_empty() && !within && last.extent == Expr::Int(lanes);
        for fold in &step.folds {
            let (dtype, (kind, _)) = (self.graph.dtype(*fold), self.fold_of(*fold));
            self.out.line(format!("alignas(64) {} a{}[{lanes}];", c_type(dtype)?, self.numbers[fold]));
            if !is_single {
                self.out.line(format!("fill<{lanes}>(a{}, {});", self.numbers[fold], value::neutral(kind, dtype)?));
            }
        }
        if within && !outer.is_empty() {
            self.out.line("#pragma omp for schedule(static) nowait");
        }
        for axis in outer {
            let (var, extent) = (&axis.var, index::text(&axis.extent, &|v| v.to_owned()));
            self.out.open(format!("for (int64_t {var} = 0; {var} < {extent}; ++{var}) {{"));
        }
        let extent = index::text(&last.extent, &|v| v.to_owned());
        let rest = match last.extent {
            Expr::Int(extent) => Some(extent % lanes),
            _ => None,
        };
        let whole = rest.map_or(format!("{extent} / {lanes} * {lanes}"), |rest| match &last.extent {
            Expr::Int(extent) => (extent - rest).to_string(),
            _ => extent.clone(),
        });
        let start = format!("{}_", last.var);
        let split_here = within && outer.is_empty();
        if split_here {
            self.out.line("#pragma omp for schedule(static) nowait");
        }
        self.out.open(format!("for (int64_t {start} = 0; {start} < {whole}; {start} += {lanes}) {{"));
        if self.plan.prefetch && self.is_last_pass(domain, at) {
            self.prefetch(domain, lanes, &start);
        }
        self.element_loop(step, &lanes.to_string(), &start, &last.var, is_single)?;
        self.out.close();
        if rest != Some(0) {
            let owner = if split_here { "if (thread == team - 1) " } else { "" };
            self.out.open(format!("{owner}{{"));
            self.out.line(format!("const int64_t {start} = {whole};"));
            self.element_loop(step, &format!("{extent} - {start}"), &start, &last.var, false)?;
            self.out.close();
        }
        outer.iter().for_each(|_| self.out.close());
        for fold in &step.folds {
            self.finish_fold(*fold, lanes)?;
        }
        if within && !step.folds.is_empty() {
            self.gather_partials(step)?;
        }
        Ok(())
    }

    fn element_loop(&mut self, step: &Step, count: &str, start: &str, variable: &str, is_single: bool) -> Result<(), Unsupported> {
        self.local.clear();
        self.open_lanes(step, count, start, variable.to_owned());
        let copy = BodyCopy::default();
        self.body(&step.values, &[], &copy)?;
        for fold in &step.folds {
            let (kind, arg) = self.fold_of(*fold);
            let (acc, text) = (format!("a{}[l]", self.numbers[fold]), self.operand(arg, &copy));
            let folded = if is_single { text } else { value::fold(kind, self.graph.dtype(*fold), &acc, &text) };
            self.out.line(format!("{acc} = {folded};"));
        }
        self.keep_values(step, &copy);
        self.body(&[], &step.stores, &copy)?;
        self.out.close();
        Ok(())
    }

    fn operand(&self, id: Id, copy: &BodyCopy) -> String {
        let names = (|id| self.spell(id, copy), |var: &str| copy.variable(var));
        value::operand(self.graph, id, &Names { value: &names.0, variable: &names.1, narrow: &names.1 })
    }

    fn keep_values(&mut self, step: &Step, copy: &BodyCopy) {
        for id in &step.keep {
            let Level::Inner(domain) = self.graph.level(*id) else { continue };
            let line = format!("row{}[{}] = {};", self.numbers[id], self.position(domain, copy), self.spell(*id, copy));
            self.out.line(line);
        }
    }

    /// The lanes of an accumulator combined into the row's value, or into this thread's part of it.
    fn finish_fold(&mut self, fold: Id, lanes: i64) -> Result<(), Unsupported> {
        let (kind, _) = self.fold_of(fold);
        let name = ["sum", "prod", "max", "min", "any"][kind as usize];
        let number = self.numbers[&fold];
        let text = format!("fold_{name}<{lanes}>(a{number})");
        match self.plan.threads {
            Threads::Within => self.out.line(format!("part{}_{number}[thread][0] = {text};", self.region)),
            _ => self.out.line(format!("const {} v{number} = {text};", c_type(self.graph.dtype(fold))?)),
        }
        Ok(())
    }

    /// Every thread combines the parts of all threads, in one order, so that all hold the same value.
    fn gather_partials(&mut self, step: &Step) -> Result<(), Unsupported> {
        self.out.line("#pragma omp barrier");
        for fold in &step.folds {
            let (kind, _) = self.fold_of(*fold);
            let (number, dtype) = (self.numbers[fold], self.graph.dtype(*fold));
            let part = format!("part{}_{number}", self.region);
            match self.plan.lanes {
                Lanes::Inner(_) => {
                    self.out.line(format!("{} v{number} = {part}[0][0];", c_type(dtype)?));
                    let combined = value::fold(kind, dtype, &format!("v{number}"), &format!("{part}[t][0]"));
                    self.out.line(format!("for (int t = 1; t < team; ++t) v{number} = {combined};"));
                }
                Lanes::Rows { .. } => {
                    self.out.line(format!("for (int64_t l = 0; l < lanes; ++l) v{number}[l] = {part}[0][l];"));
                    let combined = value::fold(kind, dtype, &format!("v{number}[l]"), &format!("{part}[t][l]"));
                    self.out.line(format!("for (int t = 1; t < team; ++t) for (int64_t l = 0; l < lanes; ++l) v{number}[l] = {combined};"));
                }
            }
        }
        Ok(())
    }

    fn pass_along_rows(&mut self, step: &Step, domain: usize, lanes: i64) -> Result<(), Unsupported> {
        for fold in &step.folds {
            let (dtype, (kind, _)) = (self.graph.dtype(*fold), self.fold_of(*fold));
            self.out.line(format!("fill<{lanes}>(v{}, {});", self.numbers[fold], value::neutral(kind, dtype)?));
        }
        let within = self.plan.threads == Threads::Within;
        let axes = self.graph.domains[domain].clone();
        let Some((last, outer)) = axes.split_last() else { return Err(Unsupported::new("a domain without loops")) };
        if within {
            self.out.line("#pragma omp for schedule(static) nowait");
        }
        for axis in outer {
            let (var, extent) = (&axis.var, index::text(&axis.extent, &|v| v.to_owned()));
            self.out.open(format!("for (int64_t {var} = 0; {var} < {extent}; ++{var}) {{"));
        }
        let (var, extent) = (&last.var, index::text(&last.extent, &|v| v.to_owned()));
        let unroll = match last.extent {
            Expr::Int(extent) => [self.plan.unroll, self.plan.unroll / 2].into_iter().find(|u| *u > 1 && extent % *u as i64 == 0).unwrap_or(1),
            _ => 1,
        };
        let advance = if unroll == 1 { format!("++{var}") } else { format!("{var} += {unroll}") };
        self.out.open(format!("for (int64_t {var} = 0; {var} < {extent}; {advance}) {{"));
        let Some((tile, ..)) = self.tile() else { return Err(Unsupported::new("no vector of rows")) };
        self.open_lanes(step, "lanes", &tile, self.tile_variable());
        let copies: Vec<BodyCopy> = (0..unroll).map(|k| BodyCopy::of(k, var)).collect();
        for copy in &copies {
            self.local.clear();
            self.body(&step.values, &[], copy)?;
            self.keep_values(step, copy);
        }
        for fold in &step.folds {
            let (kind, arg) = self.fold_of(*fold);
            let dtype = self.graph.dtype(*fold);
            let texts: Vec<String> = copies.iter().map(|copy| self.operand(arg, copy)).collect();
            let combined = texts.into_iter().reduce(|a, b| format!("({})", value::fold(kind, dtype, &a, &b))).unwrap_or_default();
            let acc = format!("v{}[l]", self.numbers[fold]);
            self.out.line(format!("{acc} = {};", value::fold(kind, dtype, &acc, &combined)));
        }
        for copy in &copies {
            self.body(&[], &step.stores, copy)?;
        }
        self.out.close();
        self.out.close();
        outer.iter().for_each(|_| self.out.close());
        if within && !step.folds.is_empty() {
            for fold in &step.folds {
                let number = self.numbers[fold];
                self.out.line(format!("for (int64_t l = 0; l < lanes; ++l) part{}_{number}[thread][l] = v{number}[l];", self.region));
            }
            self.gather_partials(step)?;
        }
        Ok(())
    }

    fn is_last_pass(&self, domain: usize, at: usize) -> bool {
        !self.plan.steps[at + 1..].iter().any(|step| step.domain == Some(domain))
    }

    /// Fetches what the next row will read along `domain`.
    fn prefetch(&mut self, domain: usize, lanes: i64, start: &str) {
        let (Some(row), Some(last)) = (self.graph.rows.last(), self.graph.domains[domain].last()) else { return };
        let mut fetched = BTreeSet::new();
        for step in &self.plan.steps {
            for id in &step.values {
                let Op::Load { buffer, index, guarded: false } = &self.graph.value(*id).op else { continue };
                let moves = coefficient(index, &row.var).is_some_and(|stride| stride != Expr::Int(0));
                let streams = coefficient(index, &last.var) == Some(Expr::Int(1));
                if self.graph.level(*id) != Level::Inner(domain) || !moves || !streams {
                    continue;
                }
                let names = BTreeMap::from([(row.var.clone(), format!("({} + 1)", row.var)), (last.var.clone(), format!("({start} + l)"))]);
                let subscript = index::subscript(index, &|var| names.get(var).cloned().unwrap_or_else(|| var.to_owned()));
                let pointer = self.storage.read_through(buffer).map_or(buffer.as_str(), |argument| argument.name.as_str());
                fetched.insert(format!("for (int64_t l = 0; l < {lanes}; l += 16) __builtin_prefetch(&{pointer}[{subscript}]);"));
            }
        }
        fetched.iter().for_each(|line| self.out.line(line));
    }
}

impl BodyCopy {
    /// The `k`-th of several copies along the loop of `variable`.
    fn of(k: usize, variable: &str) -> Self {
        if k == 0 {
            return Self::default();
        }
        Self { suffix: format!("_{k}"), variables: BTreeMap::from([(variable.to_owned(), format!("({variable} + {k})"))]) }
    }

    fn variable(&self, name: &str) -> String {
        self.variables.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }
}
