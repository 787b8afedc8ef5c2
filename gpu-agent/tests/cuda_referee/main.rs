//! The GPU's referee on the simulated device: planted faults get their verdicts, honest kernels theirs, and nothing wins over itself.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod several;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use kernelopt_gpu_agent::cuda::device::Device as _;
use kernelopt_gpu_agent::cuda::order::{self, Built, Judge, OpenTarget, Twin};
use kernelopt_gpu_agent::cuda::referee::{Foul, Session, judge};
use kernelopt_gpu_agent::cuda::simulated::{Fault, Program, SimDevice, Stores};
use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::fingerprint::fingerprint;
use kernelopt_shared::meaning::traffic::traffic;
use kernelopt_shared::meaning::{Expr, Meaning, Role};
use kernelopt_shared::target::{Language, Target};
use kernelopt_shared::task::{BandwidthCurve, Depth};
use kernelopt_shared::verdict::{Evidence, Verdict};

/// Time of the compiler's kernel.
const BASELINE_NS: f64 = 30_000.0;
/// Spread of every time.
const NOISE: f64 = 0.01;

fn meaning(name: &str) -> Meaning {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/meanings").join(name).with_extension("json");
    let fixture: serde_json::Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    serde_json::from_value(fixture[0]["meaning"].clone()).unwrap()
}

fn launch() -> Launch {
    let grid = [Expr::Int(1), Expr::Int(1), Expr::Int(1)];
    Launch {
        entry: "k".into(),
        grid,
        constants: BTreeMap::new(),
        divisible_by_16: BTreeSet::new(),
        num_warps: 4,
        num_stages: 1,
        arguments: Vec::new(),
    }
}

fn target(meaning: &Meaning) -> Target {
    let origin = Origin { proposer: "baseline".into(), note: String::new(), parent: None, round: 0 };
    let baseline = Candidate {
        language: Language::Triton,
        source: String::new(),
        launch: Some(launch()),
        further: Vec::new(),
        scratch: Vec::new(),
        precision: Precision::Baseline,
        origin,
    };
    Target {
        kernel: meaning.kernel.clone(),
        graph: 0,
        fingerprint: fingerprint(meaning),
        meaning: meaning.clone(),
        baseline,
        scratch: BTreeSet::new(),
        calls: 1,
        traffic: traffic(meaning, &BTreeSet::new()),
        distributions: BTreeMap::new(),
    }
}

fn built(program: &Program) -> Built {
    Built { binary: program.binary().unwrap(), launch: launch() }
}

/// A candidate of one launch.
fn one(program: &Program) -> order::Candidate {
    order::Candidate { stages: vec![built(program)], scratch: Vec::new() }
}

fn program(meaning: &Meaning, time_ns: f64) -> Program {
    Program { noise: NOISE, ..Program::new(meaning.clone(), Stores::Rounded, time_ns) }
}

fn twin(meaning: &Meaning, stores: Stores) -> Twin {
    let outputs = meaning.arguments.iter().filter(|a| matches!(a.role, Role::Out | Role::Inout));
    let widened = outputs.filter(|a| meaning.buffers[&a.buffers[0]].dtype.is_float()).map(|a| a.name.clone()).collect();
    Twin { built: built(&Program::new(meaning.clone(), stores, BASELINE_NS)), widened }
}

fn order(meaning: &Meaning) -> OpenTarget {
    OpenTarget {
        target: target(meaning),
        baseline: built(&program(meaning, BASELINE_NS)),
        twin: twin(meaning, Stores::Wide),
        rounded: None,
        bandwidth: BandwidthCurve(vec![(1 << 20, 4.0e6)]),
        seed: 1,
    }
}

/// One target, open on a device of its own.
struct Bench {
    device: SimDevice,
    session: Session,
}

impl Bench {
    fn open(name: &str) -> Self {
        Self::of(&meaning(name))
    }

    fn of(meaning: &Meaning) -> Self {
        let mut device = SimDevice::new(7);
        let session = Session::open(&mut device, &order(meaning)).unwrap_or_else(|foul| panic!("{}: {foul:?}", meaning.kernel));
        Self { device, session }
    }

    fn judge(&mut self, candidate: &Program, depth: Depth, seed: u64) -> (Verdict, Evidence) {
        self.judge_several(one(candidate), depth, seed)
    }

    fn judge_several(&mut self, candidate: order::Candidate, depth: Depth, seed: u64) -> (Verdict, Evidence) {
        let mut evidence = Evidence::default();
        let order = Judge { candidate, depth, seed };
        let judgement = judge(&mut self.session, &mut self.device, &order, &mut evidence).unwrap();
        (judgement.verdict, evidence)
    }
}

#[test]
fn honest_kernels_are_judged_by_their_time() {
    for name in ["softmax", "layer_norm", "gelu_bf16", "in_place", "argmax_int", "reread_bf16"] {
        let meaning = meaning(name);
        let mut bench = Bench::open(name);
        for (time_ns, expected) in [(0.6, "accepted"), (1.0, "no_change"), (1.5, "slower")] {
            let (verdict, evidence) = bench.judge(&program(&meaning, time_ns * BASELINE_NS), Depth::Full, 3);
            assert_eq!(verdict.kind(), expected, "{name}: {verdict:?}");
            assert!(!evidence.checks.is_empty() && evidence.pairs_ns.len() == evidence.control_ns.len(), "{name}");
        }
    }
}

#[test]
fn planted_faults_get_their_verdicts() {
    let planted = [
        (Fault::Tail, "wrong"),
        (Fault::Zero, "wrong"),
        (Fault::LowPrecision, "wrong"),
        (Fault::WritesPast, "wrong"),
        (Fault::ChangesInput, "wrong"),
        (Fault::WorksFirst(1), "wrong"),
        (Fault::WorksFirst(12), "wrong"),
        (Fault::RemembersFirst, "wrong"),
        (Fault::IllegalAddress, "crashed"),
    ];
    let meaning = meaning("softmax");
    for (fault, expected) in planted {
        let mut bench = Bench::open("softmax");
        let (verdict, _) = bench.judge(&program(&meaning, 0.5 * BASELINE_NS).with(fault), Depth::Full, 5);
        assert_eq!(verdict.kind(), expected, "{fault:?}: {verdict:?}");
    }
}

#[test]
fn a_wrong_candidate_leaves_the_next_ones_number_alone() {
    let meaning = meaning("softmax");
    let mut bench = Bench::open("softmax");
    for (i, fault) in [Fault::WritesPast, Fault::ChangesInput, Fault::Zero].into_iter().enumerate() {
        assert_eq!(bench.judge(&program(&meaning, BASELINE_NS).with(fault), Depth::Screen, i as u64).0.kind(), "wrong", "{fault:?}");
        let (verdict, _) = bench.judge(&program(&meaning, 0.5 * BASELINE_NS), Depth::Full, i as u64);
        let speedup = verdict.speedup().unwrap();
        assert!((1.9..2.1).contains(&speedup.estimate), "{verdict:?}");
    }
}

#[test]
fn faster_than_memory_is_impossible() {
    let meaning = meaning("softmax");
    let mut bench = Bench::open("softmax");
    let least_ns = 1e3 * bench.session.bandwidth.least_us(bench.session.target.traffic.total_bytes()).unwrap();
    let (verdict, _) = bench.judge(&program(&meaning, 0.5 * least_ns), Depth::Full, 3);
    assert_eq!(verdict.kind(), "rejected", "{verdict:?}");
}

#[test]
fn the_baseline_never_beats_itself() {
    let meaning = meaning("gelu");
    let mut bench = Bench::open("gelu");
    for seed in 0..100 {
        let (verdict, _) = bench.judge(&program(&meaning, BASELINE_NS), Depth::Full, seed);
        assert_eq!(verdict.kind(), "no_change", "{seed}: {verdict:?}");
    }
}

#[test]
fn a_baseline_that_its_twin_contradicts_is_not_judged_by() {
    let meaning = meaning("softmax");
    let spoiled = OpenTarget { baseline: built(&program(&meaning, BASELINE_NS).with(Fault::Zero)), ..order(&meaning) };
    let refused = Session::open(&mut SimDevice::new(7), &spoiled).err();
    assert!(matches!(&refused, Some(Foul::Baseline(_))), "{refused:?}");
}

#[test]
fn nothing_is_left_on_the_device() {
    let mut device = SimDevice::new(7);
    let before = device.allocated_bytes();
    let meaning = meaning("softmax");
    let mut session = Session::open(&mut device, &order(&meaning)).unwrap();
    for (seed, fault) in [Fault::Zero, Fault::Tail].into_iter().enumerate() {
        let order = Judge { candidate: one(&program(&meaning, BASELINE_NS).with(fault)), depth: Depth::Full, seed: seed as u64 };
        judge(&mut session, &mut device, &order, &mut Evidence::default()).unwrap();
    }
    session.close(&mut device).unwrap();
    assert_eq!(device.allocated_bytes(), before);
}
