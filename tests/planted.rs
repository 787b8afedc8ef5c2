//! Planted candidates, each with the verdict that it must get, and honest ones, none of which may be called wrong.
//!
//! The list is `tests/fixtures/candidates/manifest.json`. Nothing here needs torch: the baselines are the compiler's own
//! kernels rewritten in plain C++.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use kernelopt_gpu_agent::agent::CpuAgent;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::{Agent, Depth, Evaluate};
use kernelopt_tests::targets::{candidate, plain_agent, plain_target};
use serde::Deserialize;

#[derive(Deserialize)]
struct Planted {
    file: String,
    target: String,
    expected: Vec<String>,
    note: String,
}

fn list() -> Vec<Planted> {
    let text = fs::read_to_string(folder().join("manifest.json")).expect("the list");
    serde_json::from_str(&text).expect("the list decodes")
}

fn folder() -> PathBuf {
    kernelopt_tests::root().join("tests/fixtures/candidates")
}

/// Judges and says where the verdict is not one of those expected.
fn judge(agent: &mut CpuAgent, target: &Target, planted: &Planted, seed: u64) -> Option<String> {
    let source = fs::read_to_string(folder().join(&planted.file)).expect("a fixture");
    let candidate: Candidate = candidate(source);
    let outcome = agent.evaluate(&Evaluate { target, candidate: &candidate, depth: Depth::Full, seed }).expect("a verdict");
    let found = outcome.verdict.kind();
    eprintln!("{:<36} {found:<12} {:?}", planted.file, outcome.verdict);
    let expected = planted.expected.iter().any(|kind| kind == found);
    (!expected).then(|| format!("{}: {:?}, expected {:?} ({})", planted.file, outcome.verdict, planted.expected, planted.note))
}

#[test]
fn every_planted_candidate_gets_its_verdict() {
    let mut agent = plain_agent(Stop::default());
    let targets: BTreeMap<&str, Target> = ["layer_norm", "softmax"].map(|name| (name, plain_target(name))).into();
    let planted = list();
    let honest = planted.iter().filter(|p| p.file.contains("honest")).count();
    assert!(honest >= 20, "{honest} honest candidates");
    let surprises: Vec<String> =
        planted.iter().enumerate().filter_map(|(i, p)| judge(&mut agent, &targets[p.target.as_str()], p, i as u64)).collect();
    assert!(surprises.is_empty(), "{} of {}:\n{}", surprises.len(), planted.len(), surprises.join("\n"));
}
