//! What to do next: a pure function of the job's state, so that a resumed job goes on exactly where it stopped.

use std::time::Duration;

use kernelopt_shared::target::Target;
use kernelopt_shared::task::Depth;
use kernelopt_shared::verdict::Verdict;

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
/// Candidates judged without a better one before a target is left.
const PATIENCE: usize = 40;
/// Candidates of one target that may fail their confirmation before the baseline stands.
const CONFIRM_TRIES: usize = 3;
/// Least share of the model's time for a target to be searched.
pub const LEAST_SHARE: f64 = 0.002;

/// The next piece of work.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields are explained by their variant")]
pub enum Step {
    /// Measure the model as compiled.
    Profile,
    /// Ask the proposers for more candidates of `targets[target]`.
    Propose { target: usize },
    /// Judge candidate `tried` of `targets[target]`.
    Evaluate { target: usize, tried: usize, depth: Depth },
    /// Try these winners in the whole model.
    CheckModel { winners: Vec<WinnerRef> },
    /// Write the outputs.
    Finish,
}

/// Decides the next step.
pub fn next_step(state: &JobState, targets: &[Target], limits: &Limits) -> Step {
    let Some(profile) = &state.profile else { return Step::Profile };
    let weights = super::rank::weights(targets, profile);
    if !search_is_over(state, limits) {
        let open = (0..targets.len()).filter(|i| weights[*i].share >= LEAST_SHARE);
        let ranked = open
            .filter_map(|i| search_step(state, targets, i).map(|step| (weights[i].headroom(state.targets.get(&targets[i].label())), step)));
        if let Some((_, step)) = ranked.max_by(|(a, _), (b, _)| a.total_cmp(b)) {
            return step;
        }
    }
    (0..targets.len()).find_map(|i| confirm_step(state, targets, i)).unwrap_or_else(|| model_step(state, targets, &weights))
}

fn search_is_over(state: &JobState, limits: &Limits) -> bool {
    state.judged() >= limits.max_candidates || state.active >= limits.budget.mul_f64(SEARCH_SHARE) || !state.model_checks.is_empty()
}

fn search_step(state: &JobState, targets: &[Target], target: usize) -> Option<Step> {
    let Some(search) = state.targets.get(&targets[target].label()) else { return Some(Step::Propose { target }) };
    if search.abandoned.is_some() {
        return None;
    }
    for (tried, candidate) in search.tried.iter().enumerate() {
        if let Some(depth) = next_depth(search, candidate) {
            return Some(Step::Evaluate { target, tried, depth });
        }
    }
    (!search.exhausted && search.stale() < PATIENCE).then_some(Step::Propose { target })
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

/// Confirms the fastest; where it fails, the next.
fn confirm_step(state: &JobState, targets: &[Target], target: usize) -> Option<Step> {
    let search = state.targets.get(&targets[target].label())?;
    let failed = search.tried.iter().filter(|t| t.outcomes.contains_key(&Depth::Confirm)).count();
    if search.abandoned.is_some() || search.winner().is_some() || failed >= CONFIRM_TRIES {
        return None;
    }
    let open = search.tried.iter().enumerate().filter(|(_, t)| !t.outcomes.contains_key(&Depth::Confirm));
    let fastest =
        open.filter_map(|(i, t)| Some((i, t.accepted_at(Depth::Full)?.estimate))).max_by(|(i, a), (j, b)| a.total_cmp(b).then(j.cmp(i)))?;
    Some(Step::Evaluate { target, tried: fastest.0, depth: Depth::Confirm })
}

/// All winners first; where the model does not gain, the half that matters most; then the one. The baseline stands if none of these wins.
fn model_step(state: &JobState, targets: &[Target], weights: &[super::rank::Weight]) -> Step {
    let improved = state.model_checks.iter().any(|c| c.verdict.improved);
    let mut winners: Vec<(f64, WinnerRef)> = (0..targets.len())
        .filter_map(|i| {
            let label = targets[i].label();
            let (tried, speedup) = state.targets.get(&label)?.winner()?;
            let saved = weights[i].model_us * (1.0 - 1.0 / speedup.estimate);
            Some((saved, WinnerRef { target: label, candidate: tried.id }))
        })
        .collect();
    winners.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.cmp(y)));
    let sizes = [winners.len(), winners.len().div_ceil(2), 1];
    let next = sizes.get(state.model_checks.len()).copied().unwrap_or(0);
    let repeats = state.model_checks.iter().any(|c| c.winners.len() == next);
    if improved || winners.is_empty() || next == 0 || repeats {
        return Step::Finish;
    }
    Step::CheckModel { winners: winners.into_iter().take(next).map(|(_, winner)| winner).collect() }
}
