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
/// Least share of mutants that must be caught.
const LEAST_SHARE: f64 = 0.93;

#[derive(Default)]
struct Count {
    caught: usize,
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
                let caught = match Truth::compile(&mutant.meaning) {
                    // What leaves its buffers is caught before it runs.
                    Err(_) => true,
                    Ok(truth) => !session.would_pass(&truth).unwrap_or(false),
                };
                if caught { count.caught += 1 } else { count.missed.push(mutant.description) }
            }
        }
    }
    let (mut caught, mut missed) = (0, 0);
    for (name, count) in &counts {
        eprintln!("{name}: {} caught, {} missed", count.caught, count.missed.len());
        count.missed.iter().for_each(|what| eprintln!("    {what}"));
        caught += count.caught;
        missed += count.missed.len();
    }
    let share = caught as f64 / (caught + missed) as f64;
    eprintln!("{caught} of {} caught ({:.1} %)", caught + missed, 100.0 * share);
    assert!(share >= LEAST_SHARE, "{share}");
}
