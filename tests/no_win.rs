//! Baseline against baseline: a difference that is not there must not be seen.

use kernelopt_shared::stop::Stop;
use kernelopt_shared::task::{Agent, Depth, Evaluate};
use kernelopt_shared::verdict::Verdict;
use kernelopt_tests::targets::{candidate, plain_agent, plain_target};

/// Evaluations of the baseline against itself.
const RUNS: u64 = 50;

#[test]
fn the_baseline_never_beats_itself() {
    let mut agent = plain_agent(Stop::default());
    let targets = [plain_target("layer_norm"), plain_target("softmax")];
    let mut wins = Vec::new();
    let mut measured = 0;
    for run in 0..RUNS {
        let target = &targets[run as usize % targets.len()];
        // Another text, so that nothing knows it for the baseline.
        let twin = candidate(format!("{}\n// twin {run}\n", target.baseline.source));
        let outcome = agent.evaluate(&Evaluate { target, candidate: &twin, depth: Depth::Full, seed: run }).expect("a verdict");
        eprintln!("{run:>3} {:?}", outcome.verdict);
        match outcome.verdict {
            Verdict::Accepted { .. } => wins.push(outcome.verdict),
            // The host was busy; that must not become a win either.
            Verdict::Unstable { .. } => continue,
            _ => assert!(outcome.verdict.is_right(), "{:?}", outcome.verdict),
        }
        measured += 1;
    }
    assert!(wins.is_empty(), "{} wins: {wins:?}", wins.len());
    assert!(measured > RUNS / 2, "the host is too busy to prove anything: {measured} of {RUNS} runs gave a figure");
}
