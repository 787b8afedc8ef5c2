//! The portfolio on the meanings of real kernels: every candidate compiles for an H200, and means what the kernel means.

use kernelopt_coordinator::schedule::ScheduleProposer;
use kernelopt_coordinator::search::proposer::{Proposer, Scene};
use kernelopt_shared::candidate::Candidate;
use serde_json::Value;

use super::fixtures::{names, target};
use super::python::{check, job};

/// Kernels at the sizes of real models; the others are small enough for the interpreter.
fn is_full_size(name: &str) -> bool {
    name.ends_with("_h200")
}

pub fn portfolio(name: &str) -> Vec<Candidate> {
    ScheduleProposer::new().propose(&Scene::of(&target(name), &[], usize::MAX)).candidates
}

/// Jobs of every `of`-th kernel from `part`, so that tests can share the work.
fn compile(part: usize, of: usize) {
    let names: Vec<String> = names().into_iter().filter(|name| is_full_size(name) || name == "maths" || name == "integers").collect();
    let jobs: Vec<Value> = names.iter().skip(part).step_by(of).map(|name| job(name, &target(name), &portfolio(name), &[])).collect();
    println!("{}", check("compile", &jobs).unwrap_or_else(|why| panic!("{why}")));
}

#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn every_candidate_compiles() {
    compile(0, 2);
}

#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn every_other_candidate_compiles() {
    compile(1, 2);
}

/// Arguments that the compiler fixed have a value in every launch.
#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn every_candidate_with_a_size_of_one_compiles() {
    let fixed: Vec<String> = names().into_iter().filter(|name| !target(name).fixed_arguments().is_empty()).collect();
    assert!(["mean_of_all", "nll_loss_rows", "nll_loss_h200"].iter().all(|name| fixed.iter().any(|found| found == name)), "{fixed:?}");
    let jobs: Vec<Value> = fixed.iter().map(|name| job(name, &target(name), &portfolio(name), &[])).collect();
    println!("{}", check("compile", &jobs).unwrap_or_else(|why| panic!("{why}")));
}

fn interpret(part: usize, of: usize) {
    let names: Vec<String> = names().into_iter().filter(|name| !is_full_size(name)).collect();
    let with_regimes = |name: &&String| {
        let regimes: &[&str] = match name.as_str() {
            // Roots and powers of what is not finite are not what this is about.
            "maths" | "group_norm_combine" | "group_norm_apply" => &["usual"],
            // A product of large numbers is not finite.
            "amax_any" => &["usual", "special"],
            _ => &["usual", "large", "special"],
        };
        job(name, &target(name), &portfolio(name), regimes)
    };
    let jobs: Vec<Value> = names.iter().skip(part).step_by(of).map(|name| with_regimes(&name)).collect();
    println!("{}", check("interpret", &jobs).unwrap_or_else(|why| panic!("{why}")));
}

#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn every_candidate_means_what_the_kernel_means() {
    interpret(0, 2);
}

#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn every_other_candidate_means_what_the_kernel_means() {
    interpret(1, 2);
}

#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn the_comparison_catches_a_changed_constant() {
    let mut candidates = portfolio("rms_norm");
    candidates.truncate(1);
    candidates[0].source = candidates[0].source.replace("700.0", "650.0");
    let caught = check("interpret", &[job("rms_norm", &target("rms_norm"), &candidates, &["usual"])]);
    assert!(caught.unwrap_err().contains("relative error"));
}

#[test]
fn every_kernel_has_candidates() {
    for name in names() {
        let offered = portfolio(&name).len();
        println!("{name}: {offered}");
        // One thread has nothing to choose.
        assert!(offered >= if name == "nll_loss" { 1 } else { 4 }, "{name}: {offered} candidates");
    }
}
