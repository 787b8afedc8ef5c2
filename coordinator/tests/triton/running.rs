//! Running statistics: as exact as two passes, in all the ways in which a row can end.

use std::collections::BTreeSet;

use kernelopt_coordinator::schedule::space::Statistics;
use kernelopt_coordinator::schedule::triton::space::{Schedule, Shape, Tail};
use kernelopt_coordinator::schedule::triton::{ENTRY, kernel};
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::Expr;
use kernelopt_shared::target::Target;
use serde_json::{Value, json};

use super::fixtures::target;
use super::python::{check, job};

/// How much closer to the truth than other candidates: 6e-7.
const TOLERANCE: f64 = 0.02;
/// The same where the mean is a thousand deviations: a lane's mean is rounded to 3e-5 of one.
const FAR_TOLERANCE: f64 = 0.1;

fn looped(x_block: u32, r_block: u32, warps: u32) -> Schedule {
    Schedule { shape: Shape::Loop, x_block, r_block, warps, statistics: Statistics::Running, ..Schedule::default() }
}

fn candidate(target: &Target, schedule: &Schedule) -> Candidate {
    let kernel = kernel(&target.meaning, &BTreeSet::new(), schedule).unwrap();
    let mut candidate = target.baseline.clone();
    candidate.origin.note = schedule.note();
    candidate.launch = Some(Launch {
        entry: ENTRY.to_owned(),
        grid: [kernel.programs, Expr::Int(1), Expr::Int(1)],
        constants: kernel.constants,
        num_warps: schedule.warps,
        num_stages: schedule.stages,
        ..candidate.launch.unwrap()
    });
    Candidate { source: kernel.source, ..candidate }
}

fn jobs(name: &str, target: &Target, schedules: &[Schedule], regimes: &[&str]) -> Value {
    let candidates: Vec<Candidate> = schedules.iter().map(|schedule| candidate(target, schedule)).collect();
    let mut job = job(name, target, &candidates, regimes);
    job["tolerance"] = json!(TOLERANCE);
    job
}

/// Parts of rows, of which the last is shorter: a small group norm.
fn parts() -> Target {
    let mut target = target("group_norm_parts_h200");
    let mut text = serde_json::to_string(&target.meaning).unwrap();
    let sizes = [("524288", "20483"), ("104858", "4097"), ("\"128\"", "\"2\""), ("\"640\"", "\"10\"")];
    sizes.iter().for_each(|(large, small)| text = text.replace(large, small));
    target.meaning = serde_json::from_str(&text).unwrap();
    // What is read: two rows of 20483.
    let input = target.meaning.arguments[0].buffers[0].clone();
    let buffer = target.meaning.buffers.get_mut(&input).unwrap();
    (buffer.size, buffer.stride) = (vec![Expr::Int(2 * 20483)], vec![Expr::Int(1)]);
    target
}

/// Statistics, and a pass that uses them.
fn layer_norm() -> Value {
    let schedules = [
        looped(1, 1024, 4),
        Schedule { stages: 3, ..looped(1, 512, 4) },
        Schedule { unroll: 2, ..looped(1, 256, 4) },
        Schedule { tail: Tail::Mask, ..looped(1, 1024, 4) },
    ];
    let mut job = jobs("layer_norm_long", &target("layer_norm_long"), &schedules, &["usual", "large", "far", "special"]);
    // The output has three digits.
    job["tolerance"] = json!(1.0);
    job
}

/// Rows whose length only the call knows.
fn dynamic() -> Value {
    let mut target = target("layer_norm_long");
    let text = serde_json::to_string(&target.meaning).unwrap().replace("\"2500\"", "\"s0\"").replace("2500*", "s0*");
    target.meaning = serde_json::from_str(&text).unwrap();
    target.meaning.symbols.insert("s0".into(), 2500);
    let mut job = jobs("dynamic", &target, &[looped(1, 512, 4), looped(2, 256, 4)], &["usual", "far"]);
    job["tolerance"] = json!(1.0);
    let source = job["candidates"][0]["source"].as_str().unwrap();
    assert!(source.contains("rmask = rindex < r0_numel") && source.contains("/ (r0_numel)"), "{source}");
    job
}

fn all() -> Vec<Value> {
    let masked = |schedule: Schedule| Schedule { tail: Tail::Mask, ..schedule };
    let ends = [looped(1, 256, 1), masked(looped(1, 1024, 1)), looped(2, 256, 2), masked(looped(2, 512, 2)), looped(1, 4096, 2)];
    let regimes = ["usual", "large", "special", "infinite"];
    // Rows of 4224 elements: blocks of 128 leave no rest.
    let whole = [looped(1, 1024, 4), looped(1, 128, 1), masked(looped(1, 2048, 4)), looped(2, 128, 4)];
    let mut far = jobs("parts", &parts(), &ends, &["far"]);
    far["tolerance"] = json!(FAR_TOLERANCE);
    vec![
        far,
        layer_norm(),
        dynamic(),
        jobs("parts", &parts(), &ends, &regimes),
        jobs("group_norm_parts", &target("group_norm_parts"), &whole, &regimes),
        jobs("bn_train", &target("bn_train"), &[looped(4, 64, 1), looped(1, 256, 1)], &["usual", "large", "special"]),
    ]
}

#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn running_statistics_are_as_exact_as_two_passes() {
    println!("{}", check("interpret", &all()).unwrap_or_else(|why| panic!("{why}")));
}

/// A mean that is stored is none where a value is infinite, as the compiler's in one pass.
#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn a_row_with_an_infinite_value_has_no_mean_however_it_is_computed() {
    let ways = [Statistics::TwoPass, Statistics::Shifted];
    let schedules = ways.map(|statistics| Schedule { statistics, ..looped(1, 256, 1) });
    let job = |name: &str, target: &Target| {
        let mut job = jobs(name, target, &schedules, &["usual", "special", "infinite"]);
        job["tolerance"] = json!(1.0);
        job
    };
    let all = [job("group_norm_parts", &target("group_norm_parts")), job("parts", &parts())];
    println!("{}", check("interpret", &all).unwrap_or_else(|why| panic!("{why}")));
}

#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn running_statistics_compile_however_a_row_ends() {
    println!("{}", check("compile", &all()).unwrap_or_else(|why| panic!("{why}")));
}

#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn no_lane_divides_and_loads_are_wide() {
    // Each block, the rest, and the mean divide once; a loop of two blocks is none any more. Parts of rows begin at every
    // other element.
    let compiled = |name: &str, divisions: u32, vector: &str| {
        let mut job = jobs(name, &target(name), &[looped(1, 2048, 4), looped(1, 2048, 8)], &[]);
        (job["divisions"], job["vector"]) = (json!(divisions), json!(vector));
        job
    };
    let all = [compiled("group_norm_parts_h200", 3, "v2"), compiled("group_norm_parts", 4, "v4")];
    println!("{}", check("compile", &all).unwrap_or_else(|why| panic!("{why}")));
}

#[test]
fn a_row_ends_where_its_elements_do() {
    let source = |schedule: &Schedule| kernel(&parts().meaning, &BTreeSet::new(), schedule).unwrap().source;
    let one = source(&looped(1, 256, 1));
    let (in_loop, rest) = one.split_once("for offset").unwrap().1.split_once("# The rest of the row.").unwrap();
    assert!(!in_loop.contains("mask") && !in_loop.contains("where"), "{one}");
    assert!(rest.contains("rmask = rindex < length0"), "{one}");
    // Rows of a block end in several places.
    let several = source(&looped(2, 256, 2));
    assert!(!several.contains("length0") && several.contains("counts0 = tl.where("), "{several}");
}

#[test]
fn only_loops_have_running_statistics() {
    let whole = |statistics| {
        let schedule = Schedule { shape: Shape::Row, r_block: 4096, x_block: 1, statistics, ..Schedule::default() };
        kernel(&target("layer_norm_long").meaning, &BTreeSet::new(), &schedule).unwrap()
    };
    assert_eq!(whole(Statistics::Running), whole(Statistics::TwoPass));
    let passes = |statistics| {
        let schedule = Schedule { statistics, ..looped(1, 1024, 4) };
        kernel(&target("layer_norm_long").meaning, &BTreeSet::new(), &schedule).unwrap().source.matches("for offset").count()
    };
    assert_eq!([Statistics::Running, Statistics::TwoPass].map(passes), [2, 3]);
}
