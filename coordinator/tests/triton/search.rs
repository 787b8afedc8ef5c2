//! The proposer's walk through Triton schedules.

use std::collections::BTreeSet;

use kernelopt_coordinator::schedule::ScheduleProposer;
use kernelopt_coordinator::search::proposer::{Judged, Proposer, Scene};
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::meaning::Role;
use kernelopt_shared::stats::Interval;
use kernelopt_shared::target::{Language, Target};
use kernelopt_shared::verdict::Verdict;

use super::fixtures::target;

/// A judge for whom a program of many warps is fast, and nothing else.
fn judge(candidate: Candidate) -> Judged {
    let estimate = f64::from(candidate.launch.as_ref().unwrap().num_warps);
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
        assert!(history.len() < 300, "no end");
    }
}

#[test]
fn a_walk_ends_without_repeating_itself_and_goes_uphill() {
    for name in ["softmax_h200", "rope_queries_h200", "column_mean_h200"] {
        let history = walk(&target(name), 16);
        let ids: BTreeSet<Digest> = history.iter().map(|judged| judged.candidate.id()).collect();
        assert_eq!(ids.len(), history.len());
        assert!((20..=140).contains(&history.len()), "{name}: {}", history.len());
        let warps = |judged: &Judged| judged.candidate.launch.as_ref().unwrap().num_warps;
        let first = history.iter().filter(|judged| judged.candidate.origin.round == 0).map(warps).max();
        assert!(history.iter().map(warps).max() >= first);
    }
}

#[test]
fn the_same_history_gives_the_same_proposals() {
    let target = target("cross_entropy_h200");
    let history = walk(&target, 16);
    for split in [0, 5, history.len() - 1] {
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
}

#[test]
fn a_candidate_takes_the_targets_arguments_and_its_alignment() {
    let target = target("nll_loss_h200");
    for candidate in ScheduleProposer::new().propose(&Scene::of(&target, &[], 4)).candidates {
        let launch = candidate.launch.unwrap();
        assert_eq!(candidate.language, Language::Triton);
        assert_eq!(launch.divisible_by_16, target.baseline.launch.as_ref().unwrap().divisible_by_16);
        let names: Vec<&str> = target.meaning.arguments.iter().map(|argument| argument.name.as_str()).collect();
        assert!(candidate.source.contains(&format!("def {}({}", launch.entry, names.join(", "))), "{}", candidate.source);
        assert!(target.meaning.arguments.iter().any(|argument| argument.role == Role::Size));
    }
}

/// The compiler's call passes it, the code has it as a constant, and a launch that does not say so cannot be built.
#[test]
fn a_size_that_the_compiler_fixed_is_a_constant_of_every_candidate() {
    for name in ["nll_loss", "nll_loss_h200", "nll_loss_rows", "mean_of_all"] {
        let target = target(name);
        let fixed = target.fixed_arguments();
        assert_eq!(fixed, [("xnumel".to_owned(), 1)].into(), "{name}");
        let offered = ScheduleProposer::new().propose(&Scene::of(&target, &[], usize::MAX)).candidates;
        assert!(!offered.is_empty());
        for launch in offered.into_iter().filter_map(|candidate| candidate.launch) {
            assert_eq!(launch.constants.get("xnumel"), Some(&1), "{name}: {launch:?}");
        }
    }
    assert!(target("softmax_h200").fixed_arguments().is_empty());
}

#[test]
fn the_best_known_ways_come_early() {
    let first = |name: &str, count: usize| -> Vec<String> {
        let offered = ScheduleProposer::new().propose(&Scene::of(&target(name), &[], count)).candidates;
        offered.into_iter().map(|candidate| candidate.origin.note).collect()
    };
    let among = |name: &str, count: usize, want: &str| {
        let notes = first(name, count);
        assert!(notes.iter().any(|note| note.starts_with(want)), "{name}: {want} is not among {notes:#?}");
    };
    // What variants by hand reached on an H200 (docs/performance.md).
    among("softmax_h200", 6, "whole rows, 1 x 32768, 16 warps");
    among("softmax_h200", 16, "rows in a loop, 1 x 4096, 8 warps");
    among("cross_entropy_h200", 6, "rows in a loop, 1 x 2048, 16 warps");
    among("silu_mul_h200", 4, "blocks of 2048, 4 warps");
    among("rms_norm_h200", 6, "whole rows, 1 x 8192, 16 warps");
    among("transpose_h200", 6, "tiles of 64 x 64, tiling 0, 8 warps");
    among("group_norm_parts_h200", 1, "rows in a loop, 1 x 2048, 8 warps, pipelined loads, tail apart, running statistics");
    among("rope_queries_h200", 6, "tiles of 32 x 64, tiling 0, 2 warps");
    among("rope_keys_h200", 6, "tiles of 4 x 512, tiling 0, 2 warps");
}
