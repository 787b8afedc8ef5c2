//! What a job's state looks like from outside.

use std::collections::BTreeMap;

use kernelopt_shared::api::{Best, ModelVerdictView, TargetPhase, TargetView};
use kernelopt_shared::stats::{Interval, median};
use kernelopt_shared::task::{Depth, ModelProfile};

use crate::search::rank;
use crate::search::state::{JobState, TargetState, Tried};
use crate::tune::model;

/// Every target with a measured share, greatest first, and those that were searched without one.
pub fn targets(state: &JobState) -> Vec<TargetView> {
    let shares = state.profile.as_ref().map(shares).unwrap_or_default();
    let searched = state.targets.iter().map(|(label, search)| target(label, search, shares.get(label).copied()));
    let mut views: Vec<TargetView> = searched.collect();
    views.sort_by(|a, b| b.share.unwrap_or(0.0).total_cmp(&a.share.unwrap_or(0.0)).then_with(|| a.label.cmp(&b.label)));
    views
}

/// What was decided of the whole model: the improvement, or the last look.
pub fn verdict(state: &JobState) -> Option<ModelVerdictView> {
    let improved = state.model_checks.iter().rev().find(|check| check.verdict.improved);
    let shown = improved.or(state.model_checks.last())?;
    Some(ModelVerdictView {
        improved: shown.verdict.improved,
        speedup: shown.check.input_sets.first().and_then(model::speedup),
        reason: shown.verdict.reason.clone(),
    })
}

/// Share of the model's time by label of kernel.
fn shares(profile: &ModelProfile) -> BTreeMap<String, f64> {
    let total = rank::model_us(profile);
    let kernels = profile.graphs.iter().flat_map(|graph| graph.kernels.iter().map(move |(name, kernel)| (graph, name, kernel)));
    let share = |us: f64| if total > 0.0 { us / total } else { 0.0 };
    kernels.map(|(g, name, kernel)| (format!("{}/{name}", g.index), share(median(&kernel.us) * f64::from(g.calls_per_run)))).collect()
}

fn target(label: &str, search: &TargetState, share: Option<f64>) -> TargetView {
    let judged = || search.tried.iter().filter(|tried| !tried.outcomes.is_empty());
    let state = match search {
        search if search.abandoned.is_some() => TargetPhase::Abandoned,
        search if search.winner().is_some() => TargetPhase::Confirmed,
        search if search.exhausted => TargetPhase::Exhausted,
        _ if judged().next().is_some() => TargetPhase::Searching,
        _ => TargetPhase::Waiting,
    };
    TargetView {
        label: label.to_owned(),
        share,
        baseline_us: search.tried.iter().rev().find_map(baseline_us),
        best: best(search),
        tried: judged().count() as u64,
        state,
        reason: search.abandoned.clone(),
    }
}

/// The confirmed one; before there is one, the fastest of a full look.
fn best(search: &TargetState) -> Option<Best> {
    let confirmed = search.winner().map(|(_, speedup)| Best { speedup, confirmed: true });
    let measured = || search.tried.iter().filter_map(|tried| tried.accepted_at(Depth::Full));
    let fastest = |a: Interval, b: Interval| if b.estimate > a.estimate { b } else { a };
    confirmed.or_else(|| measured().reduce(fastest).map(|speedup| Best { speedup, confirmed: false }))
}

/// Median time of the baseline beside a candidate.
fn baseline_us(tried: &Tried) -> Option<f64> {
    let samples: Vec<f64> = tried.outcomes.values().flat_map(|o| &o.evidence.pairs_ns).map(|(baseline, _)| baseline / 1e3).collect();
    (!samples.is_empty()).then(|| median(&samples))
}
