//! The proposer's walk: deterministic, never twice the same source, uphill, and it ends.

use std::collections::BTreeSet;

use kernelopt_coordinator::schedule::ScheduleProposer;
use kernelopt_coordinator::search::proposer::{Judged, Proposer, Scene};
use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::meaning::traffic::Traffic;
use kernelopt_shared::stats::Interval;
use kernelopt_shared::target::{Language, Target};
use kernelopt_shared::verdict::Verdict;

use super::kernels::fixture;

fn target(name: &str) -> Target {
    let origin = Origin { proposer: "baseline".into(), note: String::new(), parent: None, round: 0 };
    let source = "#pragma omp parallel num_threads(3)".to_owned();
    Target {
        kernel: name.into(),
        graph: 0,
        fingerprint: Digest::of([name.as_bytes()]),
        meaning: fixture(name),
        baseline: Candidate {
            language: Language::Cpp,
            source,
            launch: None,
            further: Vec::new(),
            scratch: Vec::new(),
            precision: Precision::Baseline,
            origin,
        },
        scratch: BTreeSet::new(),
        calls: 1,
        traffic: Traffic::default(),
        distributions: Default::default(),
    }
}

/// A judge that likes long vectors and nothing else.
fn judge(candidate: Candidate) -> Judged {
    let lanes = (8..=256).rev().find(|lanes| candidate.origin.note.contains(&format!(" {lanes} lanes"))).unwrap_or(1);
    let estimate = f64::from(lanes) / 32.0;
    let verdict = Verdict::Accepted { speedup: Interval { estimate, low: estimate, high: estimate } };
    Judged { candidate, verdict }
}

fn walk(target: &Target, want: usize) -> Vec<Judged> {
    let mut history = Vec::new();
    loop {
        let offered = ScheduleProposer::new().propose(&Scene::of(target, &history, want)).candidates;
        if offered.is_empty() {
            return history;
        }
        assert!(offered.len() <= want);
        history.extend(offered.into_iter().map(judge));
        assert!(history.len() < 500, "no end");
    }
}

#[test]
fn a_walk_ends_without_repeating_itself_and_goes_uphill() {
    let history = walk(&target("token_loss"), 4);
    let ids: BTreeSet<Digest> = history.iter().map(|judged| judged.candidate.id()).collect();
    assert_eq!(ids.len(), history.len());
    let best =
        history.iter().max_by(|a, b| a.verdict.speedup().unwrap().estimate.total_cmp(&b.verdict.speedup().unwrap().estimate)).unwrap();
    assert!(best.candidate.origin.note.contains(" 256 lanes"), "{}", best.candidate.origin.note);
    assert!(best.candidate.origin.parent.is_some());
}

#[test]
fn the_same_history_gives_the_same_proposals() {
    let target = target("softmax");
    let history = walk(&target, 5);
    for split in [0, 3, 8, history.len() - 1] {
        let propose = || {
            ScheduleProposer::new()
                .propose(&Scene::of(&target, &history[..split], 6))
                .candidates
                .iter()
                .map(Candidate::id)
                .collect::<Vec<_>>()
        };
        assert_eq!(propose(), propose());
    }
    assert_eq!(walk(&target, 1).len(), history.len());
}

#[test]
fn threads_are_those_of_the_compiler() {
    let offered = ScheduleProposer::new().propose(&Scene::of(&target("layer_norm"), &[], 1)).candidates;
    assert!(offered[0].source.contains("num_threads(3)"));
}

#[test]
fn a_cuda_target_gets_nothing() {
    let mut target = target("layer_norm");
    target.baseline.language = Language::Cuda;
    assert!(ScheduleProposer::new().propose(&Scene::of(&target, &[], 8)).candidates.is_empty());
}
