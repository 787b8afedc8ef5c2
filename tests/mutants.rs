//! Mutants of real meanings: is a perfect implementation of something slightly else called wrong?
//!
//! The baseline is the meaning's own code from the `schedule` proposer, built and run. A mutant's outputs are its float64
//! truth, rounded once: the hardest case for the referee, since no rounding of its own gives it away.

use std::collections::BTreeMap;
use std::fs;

use kernelopt_coordinator::schedule::emit::Team;
use kernelopt_coordinator::schedule::{Schedule, source};
use kernelopt_gpu_agent::truth::Truth;
use kernelopt_shared::meaning::Meaning;
use kernelopt_shared::meaning::mutate::mutants;
use kernelopt_shared::stop::Stop;
use kernelopt_tests::root;
use kernelopt_tests::targets::{plain_agent, target};

/// Kernels whose mutants are tried: norms, softmaxes, activations, copies, gathers, reductions of several kinds.
const KERNELS: [&str; 14] = [
    "batch_norm_relu_mean",
    "causal_softmax",
    "column_sum",
    "cross_entropy",
    "gelu",
    "gelu_tanh",
    "layer_norm",
    "logsumexp",
    "pad",
    "rms_norm",
    "rope",
    "silu_mul",
    "softmax",
    "token_loss",
];
/// Least share that must be caught of the mutants whose outputs differ at all on the inputs drawn.
const LEAST_SHARE: f64 = 0.98;

#[derive(Default)]
struct Count {
    caught: usize,
    /// Leave the very bytes that the original leaves: the order inside a sum, a maximum that cancels, a bound not reached.
    same: Vec<String>,
    /// Differ, and pass.
    missed: Vec<String>,
}

fn meanings(name: &str) -> Vec<Meaning> {
    let text = fs::read(root().join(format!("tests/fixtures/meanings/{name}.json"))).expect("a fixture");
    let value: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let found = find_meanings(&value);
    assert!(!found.is_empty(), "{name} holds no meaning");
    found
}

/// Every meaning in a fixture, whatever is around it.
fn find_meanings(value: &serde_json::Value) -> Vec<Meaning> {
    if let Ok(meaning) = serde_json::from_value(value.clone()) {
        return vec![meaning];
    }
    match value {
        serde_json::Value::Object(map) => map.values().flat_map(find_meanings).collect(),
        serde_json::Value::Array(items) => items.iter().flat_map(find_meanings).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn mutants_are_caught() {
    let agent = plain_agent(Stop::default());
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    for name in KERNELS {
        for meaning in meanings(name) {
            let code = source(&meaning, &Default::default(), &Schedule::default(), Team(Some(2))).expect("code of the meaning");
            let target = target(meaning, code);
            let session = agent.open_session(&target, 1).unwrap_or_else(|e| panic!("{name}: {e}"));
            let truth = Truth::compile(&target.meaning).expect("a truth");
            assert!(session.would_pass(&truth).expect("it runs"), "{name}: the meaning itself is called wrong");
            let count = counts.entry(name).or_default();
            for mutant in mutants(&target.meaning) {
                match Truth::compile(&mutant.meaning) {
                    Ok(other) if session.would_pass(&other).unwrap_or(false) => {
                        let same = session.leave_the_same(&truth, &other).expect("both run");
                        if same { count.same.push(mutant.description) } else { count.missed.push(mutant.description) }
                    }
                    // What does not compile leaves its buffers: caught before it runs.
                    _ => count.caught += 1,
                }
            }
        }
    }
    let (mut caught, mut same, mut missed) = (0, 0, 0);
    for (name, count) in &counts {
        eprintln!("{name}: {} caught, {} leave the same bytes, {} missed", count.caught, count.same.len(), count.missed.len());
        count.same.iter().for_each(|what| eprintln!("    same: {what}"));
        count.missed.iter().for_each(|what| eprintln!("    MISSED: {what}"));
        caught += count.caught;
        same += count.same.len();
        missed += count.missed.len();
    }
    let share = caught as f64 / (caught + missed) as f64;
    eprintln!("{} mutants: {caught} caught, {same} leave the same bytes, {missed} missed: {:.1} %", caught + same + missed, 100.0 * share);
    assert!(share >= LEAST_SHARE, "{share}");
}
