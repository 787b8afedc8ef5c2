//! Every schedule of the portfolio, on the meanings of real kernels, against their plain evaluation in double precision.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_coordinator::schedule::emit::Team;
use kernelopt_coordinator::schedule::space::{Algebra, Statistics};
use kernelopt_coordinator::schedule::{self, Schedule, neighbours};
use kernelopt_shared::meaning::Meaning;

use super::harness::{self, Candidate};

pub fn fixture(name: &str) -> Meaning {
    let path = format!("{}/tests/fixtures/schedule/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// Distinct sources of the portfolio, lengths and prefetching left out; with `wide`, all of it and the neighbours of its first.
fn candidates(meaning: &Meaning, scratch: &BTreeSet<String>, wide: bool) -> Vec<Candidate> {
    let mut schedules: Vec<Schedule> = schedule::portfolio(true);
    if wide {
        schedules.extend(neighbours(&schedules[0], true));
    } else {
        let guess = schedules[0].clone();
        schedules.retain(|s| s.stage || (s.lanes, s.unroll, s.prefetch) == (guess.lanes, guess.unroll, guess.prefetch));
    }
    let mut seen = BTreeMap::new();
    for schedule in schedules {
        if let Ok(source) = schedule::source(meaning, scratch, &schedule, Team(Some(2))) {
            seen.entry(source).or_insert(schedule);
        }
    }
    let candidate = |(source, schedule): (String, Schedule)| {
        // Shifts cancel where a mean is large against a deviation.
        let shifts = schedule.algebra.shifts || schedule.statistics == Statistics::Shifted;
        let keeps_specials = schedule.algebra == Algebra::default() && !shifts;
        Candidate { note: schedule.note(), source, keeps_specials, slack: if shifts { 100.0 } else { 1.0 } }
    };
    seen.into_iter().map(candidate).collect()
}

fn check(name: &str, at_least: usize, wide: bool) {
    let meaning = fixture(name);
    let candidates = candidates(&meaning, &BTreeSet::new(), wide);
    assert!(candidates.len() >= at_least, "{name}: only {} sources", candidates.len());
    harness::check(&meaning, &BTreeSet::new(), &candidates);
}

macro_rules! kernels {
    ($($name:ident: $at_least:literal $(, $wide:literal)?;)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name), $at_least, false $(|| $wide)?);
        })*
    };
}

kernels! {
    argmax: 2;
    token_loss: 8, true;
    layer_norm: 8, true;
    layer_norm_bf16: 3;
    layer_norm_dynamic: 3;
    softmax: 3;
    softmax_dynamic: 3;
    tril_softmax: 3;
    causal_softmax_dynamic: 3;
    logsumexp: 3;
    cross_entropy: 3;
    gelu: 2;
    gelu_bf16: 2;
    silu_mul: 2;
    bn_relu_mean: 3;
    bn_relu_mean_channels_last: 8, true;
    bn_add_relu_mean: 3;
    bn_relu_and_layout: 3;
    bn_training: 3;
    bn_backward: 3;
    group_norm: 3;
    conv_layouts: 3;
    attention_layouts: 3;
    cat: 2;
    embedding: 2;
    index_put: 2;
    scatter_add: 2;
    add_inplace: 2;
    maxpool: 2;
    pad: 2;
    rope: 2;
    uint8: 2;
    full_sum: 2;
    variance_of_columns: 3;
    training_forward: 3;
    training_backward: 3;
}

#[test]
fn the_comparison_catches_a_changed_constant() {
    let meaning = fixture("layer_norm");
    let mut candidate = candidates(&meaning, &BTreeSet::new(), false).swap_remove(0);
    candidate.source = candidate.source.replace("1e-5f", "1.1e-5f").replace("256.0f", "255.0f");
    let caught = std::panic::catch_unwind(|| harness::check(&meaning, &BTreeSet::new(), &[candidate]));
    assert!(caught.is_err());
}
