//! Mean and squared deviations in one pass over a row.
//!
//! Every lane has statistics of its own (Welford 1962). In blocks that are not cut all lanes have seen equally many elements,
//! so that the factor of a new one is one number for the whole block: no lane divides. An element outside of the row counts
//! as its lane's mean, which changes nothing. Lanes are combined at the end (Chan, Golub, LeVeque 1983, section 2), by sums.

use kernelopt_shared::meaning::Expr;

use super::super::Unsupported;
use super::super::graph::{Fold, Id, Moment, Op};
use super::super::plan::Step;
use super::super::reduction::prefix;
use super::body::Emitter;
use super::function::{Text, type_name};
use super::space::Tail;

/// How far a pass goes along the row.
pub struct Span {
    /// Elements.
    pub length: String,
    /// Up to where its blocks are whole; none where every block is masked.
    pub whole: Option<String>,
    /// Something may come after the whole blocks.
    pub has_rest: bool,
    /// The condition that holds for these elements of the row and for no other.
    pub condition: Option<Id>,
    /// From where to where it goes; none for all of it.
    pub range: Option<(String, String)>,
}

/// Statistics of one value under way.
pub struct Running {
    /// The value.
    of: Id,
    /// The condition under which an element takes part.
    condition: Option<Id>,
    /// The reductions that ask for them.
    wanted: Vec<(Moment, Id)>,
    /// Names: blocks so far, elements of each lane, means, squared deviations.
    pub blocks: String,
    pub counts: String,
    pub mean: String,
    pub squares: String,
}

impl Running {
    /// True where the arguments of a reduction are these.
    pub fn is_of(&self, args: &[Id]) -> bool {
        args.first() == Some(&self.of) && args.get(1) == self.condition.as_ref()
    }

    /// The value.
    pub const fn of(&self) -> Id {
        self.of
    }

    /// True where only some elements take part.
    pub const fn is_conditional(&self) -> bool {
        self.condition.is_some()
    }

    /// Adds a reduction.
    pub fn add(&mut self, moment: Moment, id: Id) {
        self.wanted.push((moment, id));
    }
}

impl Emitter<'_> {
    /// How far a pass has to go: where nothing but statistics of the row's first elements is asked for, up to those.
    pub fn span(&mut self, step: &Step) -> Result<Span, Unsupported> {
        let Some(r) = self.block.r.clone() else { return Err(Unsupported::new("a pass over nothing")) };
        let is_peeled = self.schedule.tail == Tail::Peel;
        if let Some((condition, length)) = self.common_prefix(step) {
            let count = self.spelling.plain(&r.count);
            let row = self.spelling.text(&length, &self.graph.ranges, &|_| String::new());
            let narrow = if r.is_wide { "" } else { ".to(tl.int32)" };
            let length = self.named("length", &format!("tl.minimum({row}, {count}){narrow}"));
            let whole = is_peeled.then(|| self.named("whole", &format!("{length} // RBLOCK * RBLOCK")));
            return Ok(Span { length, whole, has_rest: is_peeled, condition: Some(condition), range: None });
        }
        let whole = match r.count {
            Expr::Int(count) if r.divides() => Some(count),
            Expr::Int(count) if is_peeled => Some(count / r.block * r.block),
            _ => None,
        };
        Ok(Span {
            length: self.spelling.plain(&r.count),
            has_rest: whole.is_some() && !r.divides(),
            whole: whole.map(|end| end.to_string()),
            condition: None,
            range: None,
        })
    }

    /// The condition under which all that a step takes of a row takes part, and how many of the row's elements that are.
    fn common_prefix(&self, step: &Step) -> Option<(Id, Expr)> {
        // Several rows end in several places.
        if self.block.has_rows() || !step.stores.is_empty() {
            return None;
        }
        let condition = |id: &Id| match (&self.graph.value(*id).op, self.graph.value(*id).args.get(1)) {
            (Op::Reduce { fold: Fold::Running(_), .. }, Some(condition)) => Some(*condition),
            _ => None,
        };
        let first = condition(step.folds.first()?)?;
        let is_common = step.folds.iter().all(|fold| condition(fold) == Some(first));
        is_common.then(|| prefix(self.graph, step.domain?, first)).flatten().map(|length| (first, length))
    }

    /// Starts statistics of a value.
    pub fn declare_running(&mut self, of: Id, condition: Option<Id>, span: &Span) -> Running {
        let (shape, dtype) = (self.block.shape(), type_name(self.graph.dtype(of)));
        let [blocks, mean, squares, counts] = ["blocks", "mean", "squares", "counts"].map(|stem| self.fresh(stem));
        self.out.line(format!("{blocks} = tl.full([], 0.0, {dtype})"));
        self.out.line(format!("{mean} = tl.full({shape}, 0.0, {dtype})"));
        self.out.line(format!("{squares} = tl.full({shape}, 0.0, {dtype})"));
        let running = Running { of, condition, wanted: Vec::new(), blocks, counts, mean, squares };
        if running.cuts_in_loop(span) {
            self.out.line(format!("{} = tl.full({shape}, 0.0, {dtype})", running.counts));
        }
        running
    }

    /// One more element in every lane.
    pub fn accumulate_running(&mut self, running: &Running, span: &Span) -> Result<(), Unsupported> {
        let Running { blocks, counts, mean, squares, .. } = running;
        let mut x = self.inner(running.of)?;
        let (part, delta) = (self.fresh("part"), self.fresh("delta"));
        self.out.line(format!("{blocks} += 1.0"));
        self.out.line(format!("{part} = 1.0 / {blocks}"));
        let own = running.condition.filter(|condition| span.condition != Some(*condition));
        let bound = if self.masked.r { Some("rmask".to_owned()) } else { None };
        let condition = own.map(|condition| self.inner(condition)).transpose()?;
        let mask: Vec<String> = bound.into_iter().chain(condition).collect();
        if !mask.is_empty() {
            let mask = mask.join(" & ");
            x = self.named("tmp", &format!("tl.where({mask}, {x}, {mean})"));
            // Before a rest, all lanes have had the same.
            let before = if running.cuts_in_loop(span) { counts.clone() } else { format!("{blocks} - 1.0") };
            self.out.line(format!("{counts} = tl.where({mask}, {blocks}, {before})"));
        }
        self.out.line(format!("{delta} = {x} - {mean}"));
        self.out.line(format!("{mean} += {delta} * {part}"));
        self.out.line(format!("{squares} += {delta} * ({x} - {mean})"));
        Ok(())
    }

    /// Statistics of the lanes as those of the row.
    pub fn finish_running(&mut self, running: &Running, span: &Span) {
        let (axis, row) = self.block.reduction();
        let Running { blocks, counts, mean, squares, .. } = running;
        let dtype = type_name(self.graph.dtype(running.of));
        let is_cut = span.has_rest || running.cuts_in_loop(span);
        let (weights, total) = match (running.condition, span.condition) {
            (None, _) if !is_cut => (blocks, None),
            (None, _) => (counts, Some(number(&span.length))),
            (Some(_), Some(_)) => (counts, Some(self.named("total", &format!("{}.to({dtype})", span.length)))),
            (Some(_), None) => (counts, Some(self.named("total", &format!("tl.sum({counts}, {axis}){row}")))),
        };
        let (average, sum) = self.merged(mean, squares, weights, total.as_deref());
        self.result_of_statistics(running, &average, &sum, &total.unwrap_or_else(|| number(&span.length)));
    }

    /// Means and squared deviations of lanes as those of the row. Each lane counts as much as its weight; without a total all weigh
    /// the same, in all of a block.
    pub fn merged(&mut self, mean: &str, squares: &str, weights: &str, total: Option<&str>) -> (String, String) {
        let (axis, row) = self.block.reduction();
        let average = match total {
            None => format!("tl.sum({mean}, {axis}){row} / RBLOCK"),
            Some(total) => format!("tl.sum({weights} * {mean}, {axis}){row} / {total}"),
        };
        let average = self.named("mean", &average);
        let drift = self.named("delta", &format!("{mean} - {average}"));
        let sum = self.named("squares", &format!("tl.sum({squares} + {weights} * {drift} * {drift}, {axis}){row}"));
        (average, sum)
    }

    /// Statistics of a row for those who ask.
    pub fn result_of_statistics(&mut self, running: &Running, average: &str, sum: &str, total: &str) {
        for (moment, id) in &running.wanted {
            let name = match moment {
                // What is infinite has no mean, whichever lane it came to and when.
                Moment::Mean => self.named("mean", &format!("tl.where({sum} == {sum}, {average}, {sum})")),
                Moment::Deviations => sum.to_owned(),
                Moment::Count => total.to_owned(),
            };
            self.names.insert(*id, Text::atom(name));
        }
    }
}

impl Running {
    /// True where lanes differ in their counts within the loop already.
    fn cuts_in_loop(&self, span: &Span) -> bool {
        span.whole.is_none() || self.condition.is_some() && span.condition.is_none()
    }
}

/// A length as a divisor.
fn number(length: &str) -> String {
    if length.bytes().all(|byte| byte.is_ascii_digit()) { format!("{length}.0") } else { format!("({length})") }
}
