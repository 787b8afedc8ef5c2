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
use kernelopt_shared::digest::Digest;
use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::fingerprint::fingerprint;
use kernelopt_shared::meaning::traffic::traffic;
use kernelopt_shared::meaning::{Expr, Meaning, Role};
use kernelopt_shared::target::{Language, Target};
use kernelopt_shared::task::{BandwidthCurve, Depth};
use kernelopt_shared::verdict::{Evidence, Verdict};

/// Time of the compiler's kernel.
const BASELINE_NS: f64 = 30_000.0;
/// That of one whose launches are timed sixteen at a time.
const SHORT_NS: f64 = 3_000.0;
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
    order_of(meaning, BASELINE_NS)
}

fn order_of(meaning: &Meaning, baseline_ns: f64) -> OpenTarget {
    OpenTarget {
        target: target(meaning),
        baseline: built(&program(meaning, baseline_ns)),
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
        Self::open_at(name, BASELINE_NS)
    }

    /// With a kernel of the compiler's that takes so long: the shorter, the more slots there are.
    fn open_at(name: &str, baseline_ns: f64) -> Self {
        Self::of_order(&order_of(&meaning(name), baseline_ns))
    }

    fn of(meaning: &Meaning) -> Self {
        Self::of_order(&order(meaning))
    }

    fn of_order(order: &OpenTarget) -> Self {
        let mut device = SimDevice::new(7);
        let session = Session::open(&mut device, order).unwrap_or_else(|foul| panic!("{}: {foul:?}", order.target.kernel));
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

/// What is known of the same kernel where the model's author wrote it: arguments and a text.
fn as_authors(meaning: &Meaning) -> Meaning {
    let mut known = Meaning { nodes: Vec::new(), program: Some(Digest::of([meaning.kernel.as_bytes()])), ..meaning.clone() };
    let named: BTreeSet<String> = known.arguments.iter().flat_map(|argument| argument.buffers.clone()).collect();
    known.buffers.retain(|name, _| named.contains(name));
    known.validate().unwrap();
    known
}

#[test]
fn a_kernel_that_is_known_by_its_text_alone_is_judged_by_its_twin() {
    for name in ["softmax", "gelu_bf16", "in_place"] {
        let meaning = meaning(name);
        let mut device = SimDevice::new(7);
        let order = OpenTarget { target: target(&as_authors(&meaning)), ..order(&meaning) };
        assert!(!order.target.traffic.exact);
        let session = Session::open(&mut device, &order).unwrap_or_else(|foul| panic!("{name}: {foul:?}"));
        let mut bench = Bench { device, session };
        for (time_ns, expected) in [(0.6, "accepted"), (1.0, "no_change"), (1.5, "slower")] {
            let (verdict, _) = bench.judge(&program(&meaning, time_ns * BASELINE_NS), Depth::Full, 3);
            assert_eq!(verdict.kind(), expected, "{name}: {verdict:?}");
        }
        let mut known = Bench::open(name);
        for fault in [Fault::Tail, Fault::Zero, Fault::LowPrecision, Fault::WritesPast, Fault::RemembersFirst] {
            let candidate = program(&meaning, 0.5 * BASELINE_NS).with(fault);
            let [by_text, by_loops] = [&mut bench, &mut known].map(|bench| bench.judge(&candidate, Depth::Full, 5).0.kind());
            assert_eq!(by_text, by_loops, "{name}, {fault:?}");
            assert!(by_text == "wrong" || fault == Fault::LowPrecision, "{name}, {fault:?}: {by_text}");
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

/// By address of the last launch, by address and size of the inputs, by nothing at all: none of them is left to the seed, though
/// with so many slots no two random ones would often be the same.
#[test]
fn what_is_kept_from_other_launches_is_wrong_at_every_depth_and_seed() {
    for name in ["softmax", "layer_norm", "gelu_bf16", "in_place"] {
        let meaning = meaning(name);
        let mut bench = Bench::open_at(name, SHORT_NS);
        assert!(bench.session.slots.len() > 40, "{name}: {} slots", bench.session.slots.len());
        for fault in [Fault::SkipsLastAddresses, Fault::RemembersByInput, Fault::RemembersFirst] {
            let candidate = program(&meaning, 0.5 * SHORT_NS).with(fault);
            for depth in [Depth::Screen, Depth::Full, Depth::Confirm] {
                for seed in 0..10 {
                    let (verdict, evidence) = bench.judge(&candidate, depth, seed);
                    assert_eq!(verdict.kind(), "wrong", "{name} {fault:?} {depth:?} {seed}: {verdict:?}");
                    assert!(evidence.pairs_ns.is_empty(), "{name} {fault:?} {depth:?} {seed} was measured");
                }
            }
        }
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
