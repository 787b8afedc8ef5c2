//! Candidates of several launches with memory between them: sums of rows in two halves of the work.

use kernelopt_gpu_agent::cuda::order;
use kernelopt_gpu_agent::cuda::simulated::{Fault, Program};
use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::launch::{Launch, Scratch};
use serde_json::{Value, json};

use super::*;

const ROWS: usize = 6;
const COLUMNS: usize = 96;
const PARTS: usize = 4;

fn buffer(size: &[usize]) -> Value {
    let stride: Vec<usize> = (0..size.len()).map(|k| size[k + 1..].iter().product()).collect();
    let texts = |numbers: &[usize]| numbers.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({"dtype": "float32", "size": texts(size), "stride": texts(&stride), "offset": "0"})
}

fn pointer(name: &str, role: &str, buffers: &[&str]) -> Value {
    json!({"name": name, "type": "*fp32", "role": role, "buffers": buffers})
}

/// A node that adds `length` neighbours of `from` to one element of `to`, for each of `count`.
fn sums(name: &str, (from, to): (&str, &str), count: usize, length: usize) -> Value {
    json!({"name": name, "iter": [{"var": "p0", "extent": count.to_string()}], "reduce": [{"var": "p1", "extent": length.to_string()}], "body": [
        {"id": 0, "op": "load", "buffer": from, "index": format!("{length}*p0 + p1")},
        {"id": 1, "op": "reduction", "kind": "sum", "dtype": "float32", "values": [0]},
        {"id": 2, "op": "store", "buffer": to, "index": "p0", "value": 1},
    ]})
}

fn parsed(meaning: Value) -> Meaning {
    serde_json::from_value(meaning).unwrap()
}

/// The target: `out[r] = sum(x[r])`.
fn row_sums() -> Meaning {
    parsed(json!({
        "kernel": "row_sums",
        "arguments": [pointer("x", "in", &["a"]), pointer("out", "out", &["c"])],
        "buffers": {"a": buffer(&[ROWS, COLUMNS]), "c": buffer(&[ROWS])},
        "nodes": [sums("op0", ("a", "c"), ROWS, COLUMNS)],
    }))
}

/// `parts[r, k]` is the sum of part `k` of row `r`.
fn partial() -> Meaning {
    parsed(json!({
        "kernel": "partial",
        "arguments": [pointer("x", "in", &["a"]), pointer("parts", "out", &["b"])],
        "buffers": {"a": buffer(&[ROWS, COLUMNS]), "b": buffer(&[ROWS, PARTS])},
        "nodes": [sums("op0", ("a", "b"), ROWS * PARTS, COLUMNS / PARTS)],
    }))
}

/// The same, added to what is there.
fn accumulated() -> Meaning {
    let inside = json!({"dtype": "float32", "size": [(ROWS * PARTS).to_string()], "stride": ["1"], "offset": "0", "internal": true});
    parsed(json!({
        "kernel": "partial",
        "arguments": [pointer("x", "in", &["a"]), pointer("parts", "inout", &["b", "d"])],
        "buffers": {"a": buffer(&[ROWS, COLUMNS]), "b": buffer(&[ROWS, PARTS]), "d": buffer(&[ROWS, PARTS]), "s": inside},
        "nodes": [sums("op0", ("a", "s"), ROWS * PARTS, COLUMNS / PARTS), {
            "name": "op1", "iter": [{"var": "p0", "extent": (ROWS * PARTS).to_string()}], "reduce": [], "body": [
                {"id": 0, "op": "load", "buffer": "b", "index": "p0"},
                {"id": 1, "op": "load", "buffer": "s", "index": "p0"},
                {"id": 2, "op": "pointwise", "function": "add", "args": [0, 1]},
                {"id": 3, "op": "store", "buffer": "d", "index": "p0", "value": 2},
            ],
        }],
    }))
}

fn combine() -> Meaning {
    parsed(json!({
        "kernel": "combine",
        "arguments": [pointer("parts", "in", &["b"]), pointer("out", "out", &["c"])],
        "buffers": {"b": buffer(&[ROWS, PARTS]), "c": buffer(&[ROWS])},
        "nodes": [sums("op0", ("b", "c"), ROWS, PARTS)],
    }))
}

fn stage(program: &Program) -> Built {
    let arguments = program.meaning.arguments.iter().map(|argument| argument.name.clone()).collect();
    Built { binary: program.binary().unwrap(), launch: Launch { arguments, ..launch() } }
}

fn parts(elements: &str, zeroed: bool) -> Scratch {
    Scratch { name: "parts".into(), dtype: Dtype::Float32, elements: elements.parse().unwrap(), zeroed }
}

fn split(stages: &[Program], scratch: Scratch) -> order::Candidate {
    order::Candidate { stages: stages.iter().map(stage).collect(), scratch: vec![scratch] }
}

fn half(meaning: &Meaning, share: f64) -> Program {
    program(meaning, share / 2.0 * BASELINE_NS)
}

fn exact() -> Scratch {
    parts(&(ROWS * PARTS).to_string(), false)
}

#[test]
fn two_launches_are_judged_by_their_time_together() {
    let mut bench = Bench::of(&row_sums());
    for (share, expected) in [(0.6, "accepted"), (1.0, "no_change"), (1.5, "slower")] {
        let candidate = split(&[half(&partial(), share), half(&combine(), share)], exact());
        let (verdict, evidence) = bench.judge_several(candidate, Depth::Full, 3);
        assert_eq!(verdict.kind(), expected, "{verdict:?}");
        assert_eq!(evidence.scratch_bytes, (4 * ROWS * PARTS) as u64);
        assert!(evidence.timed_outputs_checked > 0);
    }
}

#[test]
fn what_is_wrong_with_scratch_is_found() {
    let (first, second) = (half(&partial(), 0.5), half(&combine(), 0.5));
    let planted = [
        ("a part that overruns its scratch", vec![first.clone().with(Fault::WritesPast), second.clone()]),
        ("a part that is left out", vec![first.clone().with(Fault::Tail), second.clone()]),
        ("parts of a former run", vec![first.clone().with(Fault::RemembersFirst), second.clone()]),
        ("parts that are made at first only", vec![first.clone().with(Fault::WorksFirst(3)), second.clone()]),
        ("nothing but the end", vec![second.clone()]),
        ("the end before the beginning", vec![second, first]),
    ];
    for (what, stages) in planted {
        for depth in [Depth::Screen, Depth::Full] {
            let mut bench = Bench::of(&row_sums());
            let (verdict, _) = bench.judge_several(split(&stages, exact()), depth, 5);
            let is_late = depth == Depth::Screen && what.contains("at first only");
            assert!(is_late || verdict.kind() == "wrong", "{what}: {verdict:?}");
        }
    }
}

#[test]
fn memory_is_zero_where_it_is_asked_for_and_nowhere_else() {
    let stages = [half(&accumulated(), 0.6), half(&combine(), 0.6)];
    for (zeroed, expected) in [(true, "accepted"), (false, "wrong")] {
        let mut bench = Bench::of(&row_sums());
        let (verdict, _) = bench.judge_several(split(&stages, parts("24", zeroed)), Depth::Full, 5);
        assert_eq!(verdict.kind(), expected, "{verdict:?}");
    }
}

#[test]
fn setting_memory_to_zero_is_on_the_clock() {
    let stages = [half(&accumulated(), 0.6), half(&combine(), 0.6)];
    let mut bench = Bench::of(&row_sums());
    let (verdict, evidence) = bench.judge_several(split(&stages, parts("4*1024*1024", true)), Depth::Full, 5);
    assert_eq!(verdict.kind(), "accepted", "{verdict:?}");
    let zeros_ns = 4.0 * (1 << 22) as f64 / 4000.0;
    let fastest_ns = evidence.pairs_ns.iter().map(|(_, candidate)| *candidate).fold(f64::MAX, f64::min);
    assert!(fastest_ns > 0.9 * 0.6 * BASELINE_NS + zeros_ns, "{fastest_ns} ns, of which {zeros_ns} are zeros");
}

#[test]
fn scratch_without_a_size_or_beyond_reason_is_rejected() {
    let stages = [half(&partial(), 0.5), half(&combine(), 0.5)];
    let mut bench = Bench::of(&row_sums());
    for (elements, reason) in [("xnumel", "no value"), ("0", "0 elements"), ("4194305", "allowed"), ("1 - 2", "elements")] {
        let (verdict, _) = bench.judge_several(split(&stages, parts(elements, false)), Depth::Screen, 5);
        assert!(matches!(&verdict, Verdict::Rejected { reason: why } if why.contains(reason)), "{elements}: {verdict:?}");
    }
    let unknown = order::Candidate { scratch: Vec::new(), ..split(&stages, exact()) };
    let (verdict, _) = bench.judge_several(unknown, Depth::Screen, 5);
    assert!(matches!(&verdict, Verdict::Rejected { reason } if reason.contains("passed parts")), "{verdict:?}");
}

#[test]
fn scratch_is_given_back_whatever_came_of_it() {
    let (first, second) = (half(&partial(), 0.5), half(&combine(), 0.5));
    let mut bench = Bench::of(&row_sums());
    let before = bench.device.allocated_bytes();
    for stages in [vec![first.clone(), second.clone()], vec![second.clone()], vec![first.with(Fault::WritesPast), second]] {
        bench.judge_several(split(&stages, exact()), Depth::Full, 5);
        assert_eq!(bench.device.allocated_bytes(), before);
    }
}
