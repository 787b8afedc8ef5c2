//! One message of each variant, with its golden file's name. A sample never changes; a new variant gets a new one.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::launch::Launch;
use kernelopt_shared::message::{
    AgentId, AgentMode, Beat, Control, DeviceIdentity, DeviceKind, Failure, FailureKind, JobId, Lease, Pulse, Reply, Report, Task, Times,
    Work,
};
use kernelopt_shared::stats::Interval;
use kernelopt_shared::target::Language;
use kernelopt_shared::task::{BandwidthCurve, Depth, GraphProfile, InputSetCheck, KernelProfile, ModelCheck, ModelProfile, OutputCheck};
use kernelopt_shared::verdict::{Check, CodeFacts, Conditions, Evidence, Outcome, Verdict};

fn digest(text: &str) -> Digest {
    Digest::of([text.as_bytes()])
}

fn agent() -> AgentId {
    AgentId::parse("gpu7.example/cuda0").unwrap()
}

pub fn job() -> JobId {
    JobId::parse("7f3a9c2e41").unwrap()
}

const LEASE: Lease = Lease { epoch: 3, serial: 0x0102_0304_0506_0708 };

pub fn gpu() -> DeviceIdentity {
    DeviceIdentity {
        kind: DeviceKind::Cuda,
        uuid: "GPU-210d51c9-5d3b".into(),
        product: "NVIDIA H200".into(),
        memory_bytes: 150_754_820_096,
        architecture: "sm_90".into(),
        partition: Some("1g.18gb".into()),
        driver: "580.159".into(),
        threads: 0,
    }
}

fn cpu() -> DeviceIdentity {
    DeviceIdentity {
        kind: DeviceKind::Cpu,
        uuid: "b08dfa6083e7567a1921a715000001fb".into(),
        product: "AMD EPYC 7763".into(),
        memory_bytes: 0,
        architecture: "x86_64-avx2".into(),
        partition: None,
        driver: String::new(),
        threads: 16,
    }
}

pub fn candidate() -> Candidate {
    Candidate {
        language: Language::Triton,
        source: "@triton.jit\ndef k(x, n, XBLOCK: tl.constexpr):\n    pass  # \"ü\"\n".into(),
        launch: Some(Launch {
            entry: "k".into(),
            grid: ["(n + XBLOCK - 1) // XBLOCK".parse().unwrap(), "1".parse().unwrap(), "1".parse().unwrap()],
            constants: BTreeMap::from([("XBLOCK".into(), 128)]),
            divisible_by_16: BTreeSet::from(["x".into()]),
            num_warps: 4,
            num_stages: 2,
            arguments: Vec::new(),
        }),
        further: Vec::new(),
        scratch: Vec::new(),
        precision: Precision::Baseline,
        origin: Origin { proposer: "schedule".into(), note: "rows per thread 1".into(), parent: Some(digest("parent")), round: 2 },
    }
}

fn task(work: Work) -> Task {
    Task { id: digest("task"), job: job(), lease: LEASE, epoch: 4, bundle: digest("bundle"), work, seed: 99, run_limit_ms: 60_000 }
}

fn report(reply: Reply) -> Report {
    let times = Times { waited_ms: 5, fetch_ms: 6, run_ms: 7 };
    Report { task: digest("task"), job: job(), lease: LEASE, agent: agent(), device: gpu(), reply, times }
}

pub fn outcome(verdict: Verdict) -> Outcome {
    let check = Check { regime: "captured".into(), output: "out_ptr0".into(), worst: 0.25, max_error: 1e-7 };
    let evidence = Evidence {
        seed: u64::MAX,
        checks: vec![check],
        pairs_ns: vec![(1234.5, 1000.25), (0.1, 1e300)],
        control_ns: vec![1233.0],
        rounds_disturbed: 1,
        timed_outputs_checked: 12,
        build_ms: 250,
        verify_ms: 30,
        measure_ms: 400,
        device: "NVIDIA H200, driver 580".into(),
        conditions: Some(Conditions { sm_mhz: [1900, 1980], memory_mhz: 3201, power_mw: 350_000, celsius: 51, throttle: 4 }),
        code: Some(CodeFacts {
            registers: 32,
            spill_bytes: 0,
            shared_bytes: 1024,
            occupancy: Some(0.75),
            limiter: Some("registers".into()),
        }),
        further_code: Vec::new(),
        scratch_bytes: 0,
    };
    Outcome { candidate: digest("candidate"), verdict, evidence }
}

fn profile() -> ModelProfile {
    let kernels = BTreeMap::from([("triton_poi_fused_0".into(), KernelProfile { launches: 3, us: vec![10.5, 10.25] })]);
    let graph = GraphProfile { index: 0, calls_per_run: 1, call_us: vec![99.5], kernels };
    ModelProfile { graphs: vec![graph], bandwidth: BandwidthCurve(vec![(1 << 20, 4000.5)]), device: "NVIDIA H200".into() }
}

fn check() -> ModelCheck {
    let output = OutputCheck {
        graph: 0,
        index: 1,
        max_error_baseline: Some(1e-6),
        max_error_optimized: None,
        scale: 2.0,
        unit_roundoff: 5.960_464_477_539_063e-8,
        same_class: true,
    };
    let set = InputSetCheck {
        name: "captured".into(),
        outputs: vec![output],
        faults: vec!["output 2: NaN".into()],
        pairs_us: vec![(10.0, 9.0)],
        control_us: vec![(10.0, 10.1)],
    };
    ModelCheck { input_sets: vec![set] }
}

fn beat(device: DeviceIdentity, mode: AgentMode, holds: Vec<Lease>) -> Pulse {
    Pulse::Beat(Beat { agent: agent(), incarnation: 77, version: "0.1.0".into(), device, epoch: 4, mode, capacity: 12, holds, busy: 0.875 })
}

fn evaluate(depth: Depth) -> Task {
    task(Work::Evaluate { target: digest("target"), candidate: candidate(), depth })
}

pub fn tasks() -> Vec<(&'static str, Task)> {
    vec![
        ("task-profile", task(Work::Profile)),
        ("task-screen", evaluate(Depth::Screen)),
        ("task-full", evaluate(Depth::Full)),
        ("task-confirm", evaluate(Depth::Confirm)),
        ("task-check-model", task(Work::CheckModel { optimized: digest("optimized") })),
        ("task-nothing", task(Work::Nothing { busy_us: 1500 })),
    ]
}

pub fn reports() -> Vec<(&'static str, Report)> {
    let failed = |kind| Reply::Failed(Failure { kind, what: "no compiler".into(), remedy: "Install gcc.".into() });
    let interval = Interval { estimate: 1.25, low: 1.2, high: 1.3 };
    vec![
        ("report-profiled", report(Reply::Profiled(profile()))),
        ("report-judged-accepted", report(Reply::Judged(Box::new(outcome(Verdict::Accepted { speedup: interval }))))),
        ("report-judged-wrong", report(Reply::Judged(Box::new(outcome(Verdict::Wrong { reason: "out_ptr0[3]".into() }))))),
        ("report-model-checked", report(Reply::ModelChecked(check()))),
        ("report-nothing", report(Reply::Nothing)),
        ("report-handed-back", report(Reply::HandedBack { reason: "draining".into() })),
        ("report-failed-environment", report(failed(FailureKind::Environment))),
        ("report-failed-baseline", report(failed(FailureKind::Baseline))),
        ("report-failed-timed-out", report(failed(FailureKind::TimedOut))),
        ("report-failed-internal", report(failed(FailureKind::Internal))),
    ]
}

pub fn pulses() -> Vec<(&'static str, Pulse)> {
    let quarantined = AgentMode::Quarantined { reason: "the canary failed".into() };
    vec![
        ("pulse-beat-working", beat(gpu(), AgentMode::Working, vec![LEASE, Lease { epoch: 0, serial: 0 }])),
        ("pulse-beat-draining", beat(cpu(), AgentMode::Draining, vec![])),
        ("pulse-beat-quarantined", beat(gpu(), quarantined, vec![])),
        ("pulse-started", Pulse::Started { agent: agent(), task: digest("task"), lease: LEASE }),
        ("pulse-leaving", Pulse::Leaving { agent: agent() }),
    ]
}

pub fn controls() -> Vec<(&'static str, Control)> {
    vec![
        ("control-leading", Control::Leading { epoch: 5 }),
        ("control-accepted", Control::Accepted { task: digest("task"), lease: LEASE }),
        ("control-assigned", Control::Assigned(Box::new(evaluate(Depth::Confirm)))),
        ("control-cancel", Control::Cancel { lease: LEASE }),
        ("control-cancel-job", Control::CancelJob { job: job() }),
        ("control-drain", Control::Drain),
        ("control-quarantine", Control::Quarantine { reason: "an operator's wish".into() }),
        ("control-readmit", Control::Readmit),
    ]
}
