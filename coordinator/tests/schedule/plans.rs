//! What plans look like: passes over a row, stores, memory.

use std::collections::BTreeSet;

use kernelopt_coordinator::schedule::emit::Team;
use kernelopt_coordinator::schedule::space::{Algebra, Keep, Statistics, Threads};
use kernelopt_coordinator::schedule::{self, Schedule};
use kernelopt_shared::meaning::Meaning;

use super::harness::{self, Candidate};
use super::kernels::fixture;

fn source(meaning: &Meaning, scratch: &[&str], schedule: &Schedule) -> String {
    let scratch: BTreeSet<String> = scratch.iter().map(|name| (*name).to_owned()).collect();
    schedule::source(meaning, &scratch, schedule, Team(Some(2))).unwrap()
}

/// Loops over blocks of the row, a remainder's loop aside.
fn passes(source: &str) -> usize {
    source.matches("for (int64_t i0_ = ").count()
}

#[test]
fn token_loss_takes_three_passes_as_written_and_two_with_factored_sums() {
    let meaning = fixture("token_loss");
    let written = Schedule::default();
    assert_eq!(passes(&source(&meaning, &[], &written)), 3);
    let factored = Schedule { algebra: Algebra { factors: true, shifts: false, exponents: true, sums: true }, ..written };
    assert_eq!(passes(&source(&meaning, &[], &factored)), 2);
}

#[test]
fn an_exponential_is_kept_or_computed_again() {
    let meaning = fixture("softmax");
    let again = source(&meaning, &[], &Schedule { keep: Keep::Nothing, ..Schedule::default() });
    let kept = source(&meaning, &[], &Schedule { keep: Keep::Costly, ..Schedule::default() });
    let calls = |source: &str| source.rsplit("extern").next().unwrap().matches("exp_low_f32(").count();
    assert_eq!((calls(&again), calls(&kept)), (2, 1));
    assert!(kept.contains("alignas(64) float row"));
}

#[test]
fn scratch_is_not_written_and_everything_else_is() {
    let meaning = fixture("softmax");
    let all = source(&meaning, &[], &Schedule::default());
    let some = source(&meaning, &["out_ptr0", "out_ptr1"], &Schedule::default());
    for name in ["out_ptr0", "out_ptr1"] {
        assert!(all.contains(&format!("{name}[")) && !some.contains(&format!("{name}[")), "{name}");
    }
    assert!(some.contains("out_ptr2["));
}

#[test]
fn running_statistics_are_not_for_a_processor() {
    let running = Schedule { statistics: Statistics::Running, ..Schedule::default() };
    let refused = schedule::source(&fixture("layer_norm"), &BTreeSet::new(), &running, Team(Some(2))).unwrap_err();
    assert!(refused.to_string().contains("running statistics"), "{refused}");
}

#[test]
fn zeros_are_written_before_they_are_added_to() {
    let text = source(&fixture("scatter_add"), &[], &Schedule::default());
    let (zero, add) = (text.find("out_ptr0[r0] = 0.0f").or(text.find("= 0.0f;")), text.find("+= v"));
    assert!(zero.unwrap() < add.unwrap(), "{text}");
}

#[test]
fn a_batch_norm_channel_is_a_lane() {
    let text = source(&fixture("bn_relu_mean_channels_last"), &[], &Schedule { threads: Threads::One, ..Schedule::default() });
    assert!(text.contains("r1_ + l"), "{text}");
}

#[test]
fn a_size_that_no_argument_holds_is_refused() {
    let mut meaning = fixture("layer_norm_dynamic");
    meaning.arguments.retain(|argument| argument.value.is_none());
    assert!(schedule::source(&meaning, &BTreeSet::new(), &Schedule::default(), Team(None)).is_err());
}

/// Statements of a pointwise node over `[64, 16]`, and what they need around them.
fn by_hand(nodes: serde_json::Value, inout: &[&str]) -> Meaning {
    let buffer = |dtype: &str, size: &[&str], stride: &[&str]| serde_json::json!({"dtype": dtype, "size": size, "stride": stride});
    let float = || buffer("float32", &["64", "16"], &["16", "1"]);
    let mut scattered = float();
    scattered["mutates"] = "y".into();
    serde_json::from_value(serde_json::json!({
        "kernel": "by_hand",
        "arguments": [
            {"name": "in_ptr0", "type": "const int64_t*", "role": "in", "buffers": ["places"]},
            {"name": "in_ptr1", "type": "const float*", "role": "in", "buffers": ["x"]},
            {"name": "out_ptr0", "type": "float*", "role": "out", "buffers": inout},
            {"name": "out_ptr1", "type": "float*", "role": "out", "buffers": ["z"]},
        ],
        "buffers": {"places": buffer("int64", &["64"], &["1"]), "x": float(), "y": float(), "scattered": scattered, "z": float()},
        "nodes": nodes,
    }))
    .unwrap()
}

fn pointwise(name: &str, body: serde_json::Value) -> serde_json::Value {
    serde_json::json!({"name": name, "iter": [{"var": "i", "extent": "64"}, {"var": "j", "extent": "16"}], "reduce": [], "body": body})
}

#[test]
fn a_scatter_between_parallel_loops_is_done_once_and_in_order() {
    let nodes = serde_json::json!([
        pointwise(
            "copy",
            serde_json::json!([
                {"id": 0, "op": "load", "buffer": "x", "index": "16*i + j"},
                {"id": 1, "op": "store", "buffer": "y", "index": "16*i + j", "value": 0},
            ])
        ),
        pointwise(
            "scatter",
            serde_json::json!([
                {"id": 0, "op": "load", "buffer": "places", "index": "i"},
                {"id": 1, "op": "indirect", "value": 0, "variable": "place", "size": "64", "check": true, "wrap_negative": true},
                {"id": 2, "op": "load", "buffer": "x", "index": "16*i + j"},
                {"id": 3, "op": "pointwise", "function": "exp", "args": [2]},
                {"id": 4, "op": "store", "buffer": "scattered", "index": "16*place + j", "value": 3},
            ])
        ),
        pointwise(
            "after",
            serde_json::json!([
                {"id": 0, "op": "load", "buffer": "scattered", "index": "16*i + j"},
                {"id": 1, "op": "pointwise", "function": "neg", "args": [0]},
                {"id": 2, "op": "store", "buffer": "z", "index": "16*i + j", "value": 1},
            ])
        ),
    ]);
    let meaning = by_hand(nodes, &["y"]);
    let schedule = Schedule { threads: Threads::Rows, ..Schedule::default() };
    let source = source(&meaning, &[], &schedule);
    assert_eq!(source.matches("#pragma omp single").count(), 1, "{source}");
    let candidate = Candidate { note: schedule.note(), source, keeps_specials: true, slack: 1.0 };
    harness::check(&meaning, &BTreeSet::new(), &[candidate]);
}

#[test]
fn values_shared_many_times_over_are_walked_once() {
    let mut body = vec![serde_json::json!({"id": 0, "op": "load", "buffer": "x", "index": "16*i + j"})];
    for id in 1..200 {
        let function = ["add", "mul", "sub"][id % 3];
        body.push(serde_json::json!({"id": id, "op": "pointwise", "function": function, "args": [id - 1, id - 1]}));
    }
    body.push(serde_json::json!({"id": 200, "op": "pointwise", "function": "exp", "args": [199]}));
    body.push(serde_json::json!({"id": 201, "op": "store", "buffer": "z", "index": "16*i + j", "value": 200}));
    let meaning = by_hand(serde_json::json!([pointwise("tower", body.into())]), &["y"]);
    for schedule in schedule::portfolio(true) {
        schedule::source(&meaning, &["out_ptr0".to_owned()].into(), &schedule, Team(Some(2))).unwrap();
    }
}
