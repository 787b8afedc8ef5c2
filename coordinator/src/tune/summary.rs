//! From a journal to `result.json`: a pure function, so that a report can be made again at any time.

use std::collections::BTreeMap;

use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::result::{
    BudgetSpent, ModelResult, ModelVerdict, RESULT_SCHEMA_VERSION, TargetResult, TuneResult, Untouched, Winner,
};
use kernelopt_shared::stats::median;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::{Depth, ModelProfile};

use super::model;
use crate::journal::{Entry, Event, WinnerRef};
use crate::llm;
use crate::search::allowance::Spent;
use crate::search::rank::{self, Weight};
use crate::search::state::{JobState, ModelCheckRecord, TargetState, Tried};

/// Summarises a job.
pub fn summarize(bundle: &Bundle, targets: &[Target], untouched: &[Untouched], entries: &[Entry]) -> TuneResult {
    let state = JobState::replay(entries);
    let empty = ModelProfile { graphs: Vec::new(), bandwidth: Default::default(), device: String::new() };
    let profile = state.profile.clone().unwrap_or(empty);
    let weights = rank::weights(targets, &profile);
    let kept = state.model_checks.iter().rev().find(|c| c.verdict.improved);
    let winners = kept.map(|c| c.winners.as_slice()).unwrap_or_default();
    let mut rows: Vec<TargetResult> = targets.iter().zip(&weights).map(|(t, w)| target_result(t, *w, &profile, &state, winners)).collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.name.cmp(&b.name)));
    TuneResult {
        schema_version: RESULT_SCHEMA_VERSION,
        bundle: bundle.digest,
        device: profile.device.clone(),
        versions: versions(bundle),
        model: model_result(&state, &profile, kept, &rows),
        rejected: rejected(&rows),
        targets: rows,
        untouched: untouched.iter().cloned().chain(abandoned(targets, &state)).collect(),
        budget: budget(targets, &state, entries),
    }
}

fn versions(bundle: &Bundle) -> BTreeMap<String, String> {
    let mut versions = bundle.manifest.versions.clone();
    versions.insert("kernelopt".into(), env!("CARGO_PKG_VERSION").into());
    versions
}

fn target_result(target: &Target, weight: Weight, profile: &ModelProfile, state: &JobState, winners: &[WinnerRef]) -> TargetResult {
    let label = target.label();
    let none = TargetState::default();
    let search = state.targets.get(&label).unwrap_or(&none);
    let in_model = winners.iter().find(|w| w.target == label);
    let winner = in_model.and_then(|w| search.tried.iter().find(|t| t.id == w.candidate));
    let speedup = winner.and_then(|t| t.accepted_at(Depth::Confirm));
    let samples =
        |t: &Tried| -> Vec<f64> { t.outcomes.values().flat_map(|o| &o.evidence.pairs_ns).map(|(baseline, _)| baseline / 1e3).collect() };
    // Without a winner, the baseline's time is that beside the last candidate that was measured.
    let measured = winner.into_iter().chain(search.tried.iter().rev()).map(samples).find(|samples| !samples.is_empty());
    let baseline_us = measured.map_or(0.0, |samples| median(&samples));
    let estimate = speedup.map_or(1.0, |s| s.estimate);
    let best_us = baseline_us / estimate;
    // Where some bytes could not be counted, the roof is not known.
    let floor_us = profile.bandwidth.least_us(target.traffic.total_bytes()).filter(|_| target.traffic.exact).unwrap_or(0.0);
    let fraction = |us: f64| if us > 0.0 { floor_us / us } else { 0.0 };
    TargetResult {
        name: target.kernel.clone(),
        graph: target.graph,
        fingerprint: target.fingerprint,
        share: weight.share,
        baseline_us,
        best_us,
        speedup: estimate,
        ci95: speedup.map_or([1.0, 1.0], |s| [s.low, s.high]),
        roofline_fraction: fraction(best_us),
        baseline_roofline_fraction: fraction(baseline_us),
        verdict_counts: search.verdict_counts(),
        winner: winner.map(|t| Winner {
            candidate: t.id,
            proposer: t.candidate.origin.proposer.clone(),
            note: t.candidate.origin.note.clone(),
        }),
    }
}

fn model_result(state: &JobState, profile: &ModelProfile, kept: Option<&ModelCheckRecord>, rows: &[TargetResult]) -> ModelResult {
    let shown = kept.or(state.model_checks.last());
    let captured = shown.and_then(|c| c.check.input_sets.first());
    let baseline_us = captured.map_or_else(|| rank::model_us(profile), |set| median(&column(&set.pairs_us, |p| p.0)));
    let errors = |pick: fn(&kernelopt_shared::task::OutputCheck) -> Option<f64>| {
        let outputs = kept.iter().flat_map(|c| &c.check.input_sets).flat_map(|s| &s.outputs);
        outputs.filter_map(|o| Some(pick(o)? / o.scale.max(f64::MIN_POSITIVE))).fold(0.0, f64::max)
    };
    let reason = match (shown, rows.is_empty()) {
        (Some(check), _) => check.verdict.reason.clone(),
        (None, true) => "no generated kernel could be searched".into(),
        (None, false) => "no candidate was right, faster and confirmed".into(),
    };
    let speedup = kept.and_then(|c| model::speedup(c.check.input_sets.first()?));
    ModelResult {
        verdict: if kept.is_some() { ModelVerdict::Improved } else { ModelVerdict::Kept },
        reason,
        baseline_us,
        optimized_us: if kept.is_some() {
            captured.map_or(baseline_us, |set| median(&column(&set.pairs_us, |p| p.1)))
        } else {
            baseline_us
        },
        speedup: speedup.map_or(1.0, |s| s.estimate),
        ci95: speedup.map_or([1.0, 1.0], |s| [s.low, s.high]),
        inputs_checked: shown.map_or(0, |c| c.check.input_sets.len() as u32),
        max_error: errors(|o| o.max_error_optimized),
        baseline_max_error: errors(|o| o.max_error_baseline),
        parts: parts(profile, rows),
    }
}

fn abandoned<'a>(targets: &'a [Target], state: &'a JobState) -> impl Iterator<Item = Untouched> + 'a {
    targets.iter().filter_map(|target| {
        let reason = state.targets.get(&target.label())?.abandoned.clone()?;
        Some(Untouched { name: target.kernel.clone(), graph: target.graph, reason })
    })
}

fn column(pairs: &[(f64, f64)], pick: fn(&(f64, f64)) -> f64) -> Vec<f64> {
    pairs.iter().map(pick).collect()
}

/// Kernels as measured inside `call`, each divided by its confirmed speed-up, and the rest.
fn parts(profile: &ModelProfile, rows: &[TargetResult]) -> Vec<(String, f64, f64)> {
    let total = rank::model_us(profile);
    let mut parts: Vec<_> = rows.iter().map(|row| (row.name.clone(), row.share * total, row.share * total / row.speedup)).collect();
    let rest = total - parts.iter().map(|(_, before, _)| before).sum::<f64>();
    parts.push(("vendor calls and the rest".into(), rest.max(0.0), rest.max(0.0)));
    parts
}

fn rejected(rows: &[TargetResult]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (kind, count) in rows.iter().flat_map(|row| &row.verdict_counts) {
        if !matches!(kind.as_str(), "accepted" | "no_change" | "slower") {
            *counts.entry(kind.clone()).or_default() += count;
        }
    }
    counts
}

/// Where the wall time went. What is left is profiling, drawing input sets and the whole-model gate.
fn budget(targets: &[Target], state: &JobState, entries: &[Entry]) -> BudgetSpent {
    let (mut building_ms, mut verifying_ms, mut measuring_ms) = (0, 0, 0);
    for entry in entries {
        if let Event::Judged { outcome, .. } = &entry.event {
            building_ms += outcome.evidence.build_ms;
            verifying_ms += outcome.evidence.verify_ms;
            measuring_ms += outcome.evidence.measure_ms;
        }
    }
    let seconds = state.active.as_secs_f64();
    let parts = [("building", building_ms), ("verifying", verifying_ms), ("measuring", measuring_ms)];
    let share = parts.map(|(name, ms)| (name.to_owned(), share_of(ms, seconds))).into();
    let Spent { tokens, cost } = Spent::of(state);
    let language_model = llm::account(targets, state);
    BudgetSpent { seconds, candidates: state.judged(), tokens, cost_usd: cost.dollars(), share, language_model }
}

fn share_of(ms: u64, seconds: f64) -> f64 {
    ms as f64 / 1e3 / seconds.max(f64::MIN_POSITIVE)
}
