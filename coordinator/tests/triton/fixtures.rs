//! Kernels that the compiler generated for a GPU: their text and their meaning.

use std::collections::BTreeSet;

use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::traffic::Traffic;
use kernelopt_shared::meaning::{Expr, Meaning, Role};
use kernelopt_shared::target::{Language, Target};
use serde::Deserialize;

/// One kernel.
#[derive(Deserialize)]
pub struct Fixture {
    /// The compiler's own module.
    pub source: String,
    /// What it computes.
    pub meaning: Meaning,
}

/// Names of all fixtures.
pub fn names() -> Vec<String> {
    let folder = format!("{}/tests/fixtures/triton", env!("CARGO_MANIFEST_DIR"));
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// The kernel of that name.
pub fn load(name: &str) -> Fixture {
    let path = format!("{}/tests/fixtures/triton/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// The kernel of that name as a target whose pointers are aligned.
pub fn target(name: &str) -> Target {
    let Fixture { source, meaning } = load(name);
    let pointers: BTreeSet<String> = meaning.arguments.iter().filter(|a| a.role != Role::Size).map(|a| a.name.clone()).collect();
    let launch = Launch {
        entry: meaning.kernel.clone(),
        grid: [Expr::Int(1), Expr::Int(1), Expr::Int(1)],
        constants: Default::default(),
        divisible_by_16: pointers,
        num_warps: 4,
        num_stages: 1,
        arguments: Vec::new(),
    };
    let origin = Origin { proposer: "baseline".into(), note: String::new(), parent: None, round: 0 };
    Target {
        kernel: meaning.kernel.clone(),
        graph: 0,
        fingerprint: Digest::of([name.as_bytes()]),
        meaning,
        baseline: Candidate {
            language: Language::Triton,
            source,
            launch: Some(launch),
            further: Vec::new(),
            scratch: Vec::new(),
            precision: Precision::Baseline,
            origin,
        },
        scratch: BTreeSet::new(),
        calls: 1,
        traffic: Traffic::default(),
        distributions: Default::default(),
    }
}
