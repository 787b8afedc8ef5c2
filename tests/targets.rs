//! Targets of `tests/fixtures/targets`: a meaning and the compiler's kernel for it, rewritten so that it needs no torch.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use kernelopt_gpu_agent::agent::CpuAgent;
use kernelopt_gpu_agent::cpu::child::Reexec;
use kernelopt_gpu_agent::python::Python;
use kernelopt_shared::bundle::{BUNDLE_SCHEMA_VERSION, CapturedDevice, Manifest};
use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::meaning::Meaning;
use kernelopt_shared::meaning::fingerprint::fingerprint;
use kernelopt_shared::meaning::traffic::traffic;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::target::{Language, Target};

use crate::{binary, root};

/// Threads of the compiler's kernels in the fixtures.
const THREADS: u32 = 2;

/// The target `name`.
pub fn plain_target(name: &str) -> Target {
    let folder = root().join("tests/fixtures/targets").join(name);
    let read = |file: &str| fs::read_to_string(folder.join(file)).expect("a fixture");
    let meaning: Meaning = serde_json::from_str(&read("meaning.json")).expect("a meaning");
    target(meaning, read("baseline_plain.cpp"))
}

/// A target of this meaning whose baseline is `source`.
pub fn target(meaning: Meaning, source: String) -> Target {
    Target {
        kernel: meaning.kernel.clone(),
        graph: 0,
        fingerprint: fingerprint(&meaning),
        baseline: candidate(source),
        scratch: BTreeSet::new(),
        calls: 1,
        traffic: traffic(&meaning, &BTreeSet::new()),
        distributions: BTreeMap::new(),
        meaning,
    }
}

/// A candidate of this source.
pub fn candidate(source: String) -> Candidate {
    let origin = Origin { proposer: "test".into(), note: String::new(), parent: None, round: 0 };
    Candidate {
        language: Language::Cpp,
        source,
        launch: None,
        further: Vec::new(),
        scratch: Vec::new(),
        precision: Precision::Baseline,
        origin,
    }
}

/// An agent that builds without torch.
pub fn plain_agent(stop: Stop) -> CpuAgent {
    let manifest = Manifest {
        schema_version: BUNDLE_SCHEMA_VERSION,
        model: "fixtures".into(),
        versions: BTreeMap::new(),
        device: CapturedDevice { kind: "cpu".into(), name: String::new(), threads: THREADS, capability: None },
        precision: BTreeMap::new(),
        inductor: BTreeMap::new(),
        compile_command: Vec::new(),
        graphs: Vec::new(),
        files: BTreeMap::new(),
    };
    let reexec = Reexec { program: binary(), words: vec!["runner".into()] };
    let cache = binary().parent().expect("the binary lies in a folder").join("test-builds");
    CpuAgent::new(&manifest, reexec, cache, Python::find(), stop).expect("an agent")
}
