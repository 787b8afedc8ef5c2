//! What a job can do next: a pure function of its state and of what is under way, so that a resumed job goes on exactly where it stopped.

use std::collections::BTreeSet;
use std::time::Duration;

use kernelopt_shared::digest::Digest;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::Depth;
use kernelopt_shared::verdict::Verdict;
use serde::{Deserialize, Serialize};

use super::rank::Weight;
use super::state::{JobState, TargetState, Tried};
use crate::journal::WinnerRef;

/// Limits of a job.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Time to spend, over all runs.
    pub budget: Duration,
    /// Candidates to judge.
    pub max_candidates: u64,
}

/// Share of the budget after which the search stops, so that winners can be confirmed and the model checked.
const SEARCH_SHARE: f64 = 0.7;
/// Candidates of a proposer judged without a better one before it is not listened to any more.
pub const PATIENCE: usize = 40;
/// Candidates of one target that may fail their confirmation before the baseline stands.
const CONFIRM_TRIES: usize = 3;
/// Least share of the model's time for a target to be searched.
pub const LEAST_SHARE: f64 = 0.002;

/// A piece of work that needs a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "fields are explained by their variant")]
pub enum Step {
    /// Measure the model as compiled.
    Profile,
    /// Judge a candidate of the target with this label.
    Evaluate { target: String, candidate: Digest, depth: Depth },
    /// Try these winners in the whole model.
    CheckModel { winners: Vec<WinnerRef> },
    /// Nothing, to measure the queue.
    Nothing { number: u64 },
}

impl Step {
    /// True for a look at a candidate of the target with this label.
    pub fn is_of(&self, label: &str) -> bool {
        matches!(self, Self::Evaluate { target, .. } if target == label)
    }
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields are explained by their variant")]
pub enum Next {
    /// Have this done.
    Run(Step),
    /// Ask the proposers for more candidates of `targets[target]`.
    Propose { target: usize },
    /// Nothing, until something that is under way has ended.
    Wait,
    /// Write the outputs.
    Finish,
}

/// A job as the plan sees it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// What its journal says.
    pub state: &'a JobState,
    /// Its targets.
    pub targets: &'a [Target],
    /// What each weighs; empty before the profile.
    pub weights: &'a [Weight],
    /// When to end.
    pub limits: &'a Limits,
    /// What is under way.
    pub running: &'a BTreeSet<Step>,
    /// Targets whose proposers have nothing to say until something of theirs has ended.
    pub quiet: &'a BTreeSet<usize>,
    /// Candidates that may be under way at once on all devices. More are proposed once fewer than a quarter of these are left, so that
    /// proposers have heard most verdicts; on one device that takes four, all of them.
    pub batch: usize,
}

impl View<'_> {
    /// Decides what comes next.
    pub fn next(&self) -> Next {
        if self.state.profile.is_none() {
            return if self.running.is_empty() { Next::Run(Step::Profile) } else { Next::Wait };
        }
        if !self.search_is_over() {
            let open = (0..self.targets.len()).filter(|i| self.weights[*i].share >= LEAST_SHARE);
            let ranked = open.filter_map(|i| {
                let next = self.search_step(i)?;
                Some((self.weights[i].headroom(self.state.targets.get(&self.targets[i].label())), next))
            });
            if let Some((_, next)) = ranked.max_by(|(a, _), (b, _)| a.total_cmp(b)) {
                return next;
            }
        }
        // What its proposers wait for may still be better than the best so far.
        let waits = |target: &usize| !self.search_is_over() && self.quiet.contains(target);
        let settled = (0..self.targets.len()).filter(|target| !waits(target));
        if let Some(step) = settled.clone().find_map(|i| self.last_look(i).or_else(|| self.confirm_step(i))) {
            return Next::Run(step);
        }
        // Whatever is under way may still change which winners there are.
        let all_settled = settled.count() == self.targets.len();
        if self.running.is_empty() && all_settled { self.model_step() } else { Next::Wait }
    }

    /// True once no more candidates are looked for.
    pub fn search_is_over(&self) -> bool {
        let state = self.state;
        state.judged() + self.first_looks() >= self.limits.max_candidates
            || state.active >= self.limits.budget.mul_f64(SEARCH_SHARE)
            || !state.model_checks.is_empty()
    }

    /// Candidates under way that nothing has been said of yet.
    fn first_looks(&self) -> u64 {
        self.running.iter().filter(|step| matches!(step, Step::Evaluate { depth: Depth::Screen, .. })).count() as u64
    }

    fn search_step(&self, target: usize) -> Option<Next> {
        let label = self.targets[target].label();
        let Some(search) = self.state.targets.get(&label) else { return Some(Next::Propose { target }) };
        if search.abandoned.is_some() {
            return None;
        }
        // What is known of a kernel is confirmed, not searched again.
        if search.is_solved() {
            return None;
        }
        let idle = |step: &Step| !self.running.contains(step);
        for tried in search.tried.iter().filter(|t| t.quarantined.is_none()) {
            let step = |depth| Step::Evaluate { target: label.clone(), candidate: tried.id, depth };
            if let Some(step) = next_depth(search, tried).map(step).filter(idle) {
                return Some(Next::Run(step));
            }
        }
        let under_way = self.under_way(target).count();
        let heard_enough = under_way == 0 || under_way < self.batch / 4;
        (heard_enough && !search.exhausted && !self.quiet.contains(&target)).then_some(Next::Propose { target })
    }

    fn under_way(&self, target: usize) -> impl Iterator<Item = &Step> {
        let label = self.targets[target].label();
        self.running.iter().filter(move |step| step.is_of(&label))
    }

    /// True while a candidate of `targets[target]` is under way.
    pub fn is_under_way(&self, target: usize) -> bool {
        self.under_way(target).next().is_some()
    }

    /// When the time is up before anything was looked at for long: the best of what was seen.
    fn last_look(&self, target: usize) -> Option<Step> {
        let label = self.targets[target].label();
        let search = self.state.targets.get(&label).filter(|search| search.abandoned.is_none())?;
        let looked_long = |t: &Tried| t.outcomes.contains_key(&Depth::Full);
        if self.is_under_way(target) || search.tried.iter().any(looked_long) {
            return None;
        }
        let seen = search.tried.iter().filter(|t| t.quarantined.is_none());
        let best = seen.filter_map(|t| Some((t, t.accepted_at(Depth::Screen)?.estimate))).max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        Some(Step::Evaluate { target: label, candidate: best.0.id, depth: Depth::Full })
    }

    /// Confirms the fastest; where it fails, the next.
    fn confirm_step(&self, target: usize) -> Option<Step> {
        let label = self.targets[target].label();
        let search = self.state.targets.get(&label)?;
        let failed = search.tried.iter().filter(|t| t.outcomes.contains_key(&Depth::Confirm)).count();
        if search.abandoned.is_some() || search.winner().is_some() || failed >= CONFIRM_TRIES || self.is_under_way(target) {
            return None;
        }
        let open = search.tried.iter().enumerate().filter(|(_, t)| t.quarantined.is_none() && !t.outcomes.contains_key(&Depth::Confirm));
        let fastest = open
            .filter_map(|(i, t)| Some((i, t, t.accepted_at(Depth::Full)?.estimate)))
            .max_by(|(i, _, a), (j, _, b)| a.total_cmp(b).then(j.cmp(i)))?;
        Some(Step::Evaluate { target: label, candidate: fastest.1.id, depth: Depth::Confirm })
    }

    /// All winners first; where the model does not gain, the half that matters most; then the one. The baseline stands if none of these wins.
    fn model_step(&self) -> Next {
        let (state, targets) = (self.state, self.targets);
        let improved = state.model_checks.iter().any(|c| c.verdict.improved);
        let mut winners: Vec<(f64, WinnerRef)> = (0..targets.len())
            .filter_map(|i| {
                let label = targets[i].label();
                let (tried, speedup) = state.targets.get(&label)?.winner()?;
                let saved = self.weights[i].model_us * (1.0 - 1.0 / speedup.estimate);
                Some((saved, WinnerRef { target: label, candidate: tried.id }))
            })
            .collect();
        winners.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.cmp(y)));
        let sizes = [winners.len(), winners.len().div_ceil(2), 1];
        let next = sizes.get(state.model_checks.len()).copied().unwrap_or(0);
        let repeats = state.model_checks.iter().any(|c| c.winners.len() == next);
        if improved || winners.is_empty() || next == 0 || repeats {
            return Next::Finish;
        }
        Next::Run(Step::CheckModel { winners: winners.into_iter().take(next).map(|(_, winner)| winner).collect() })
    }
}

/// Screen everything; look long only at what may beat the best so far.
fn next_depth(search: &TargetState, tried: &Tried) -> Option<Depth> {
    match tried.verdict_at(Depth::Screen) {
        None => Some(Depth::Screen),
        Some(Verdict::Accepted { speedup } | Verdict::NoChange { speedup }) => {
            let promising = speedup.high > search.best_full() * 1.01;
            (promising && !tried.outcomes.contains_key(&Depth::Full)).then_some(Depth::Full)
        }
        Some(_) => None,
    }
}
