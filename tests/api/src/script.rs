//! What devices say of a job, made up: one candidate that wins, one that is slower, one that is wrong.

use kernelopt_coordinator::journal::{Event, ModelVerdictRecord, WinnerRef};
use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{AgentId, AgentMode, Beat, DeviceIdentity, DeviceKind, JobId};
use kernelopt_shared::stats::Interval;
use kernelopt_shared::target::{Language, Target};
use kernelopt_shared::task::{BandwidthCurve, Depth, GraphProfile, InputSetCheck, KernelProfile, ModelCheck, ModelProfile};
use kernelopt_shared::verdict::{Evidence, Outcome, Verdict};

use crate::MemoryDesk;

/// Time of one launch of the compiler's own code, in microseconds.
const BASELINE_US: f64 = 40.0;

/// Everything that happens in a job on `targets` after it was opened.
pub fn events(targets: &[Target]) -> Vec<Event> {
    let mut events = vec![Event::Profiled { profile: profile(targets) }];
    let mut winners = Vec::new();
    for target in targets {
        let label = target.label();
        let [fast, slow, wrong] = ["rows per program 4, exp2", "rows per program 64", "one lane too few"].map(candidate);
        winners.push(WinnerRef { target: label.clone(), candidate: fast.id() });
        let candidates = vec![fast.clone(), slow.clone(), wrong.clone()];
        events.push(Event::Proposed { target: label.clone(), proposer: "schedule".into(), candidates });
        let judged = |candidate: &Candidate, depth, verdict| Event::Judged {
            target: label.clone(),
            depth,
            outcome: outcome(candidate, verdict),
            device: None,
        };
        events.push(judged(&fast, Depth::Screen, Verdict::Accepted { speedup: interval(1.5) }));
        events.push(judged(&slow, Depth::Screen, Verdict::Slower { speedup: interval(0.5) }));
        let reason = "out_ptr0[0, 31]: 0.4 instead of 0.5".into();
        events.push(judged(&wrong, Depth::Screen, Verdict::Wrong { reason }));
        events.push(judged(&fast, Depth::Full, Verdict::Accepted { speedup: interval(1.6) }));
        events.push(Event::Exhausted { target: label.clone() });
        events.push(judged(&fast, Depth::Confirm, Verdict::Accepted { speedup: interval(1.6) }));
    }
    let pairs_us = (0..20).map(|i| (100.0 + f64::from(i % 3), 80.0 + f64::from(i % 3))).collect();
    let captured = InputSetCheck { name: "captured".into(), outputs: Vec::new(), faults: Vec::new(), pairs_us, control_us: Vec::new() };
    let verdict = ModelVerdictRecord { right: true, improved: true, reason: "right on all input sets, and faster".into() };
    events.push(Event::ModelChecked { winners, check: ModelCheck { input_sets: vec![captured] }, verdict });
    events.push(Event::Finished { frontier: Digest::of([b"frontier".as_slice()]) });
    events
}

/// Plays all of it.
pub fn play(desk: &MemoryDesk, job: &JobId) {
    events(&desk.targets(job)).into_iter().for_each(|event| desk.append(job, event));
}

/// A sign of life of a device.
pub fn beat(agent: &str) -> Beat {
    let device = DeviceIdentity {
        kind: DeviceKind::Cuda,
        uuid: "GPU-210d51c9".into(),
        product: "NVIDIA H200".into(),
        memory_bytes: 139 << 30,
        architecture: "sm_90".into(),
        partition: None,
        driver: "580.159".into(),
        threads: 0,
    };
    let agent = AgentId::parse(agent).expect("a name");
    Beat {
        agent,
        incarnation: 1,
        version: "0.1.0".into(),
        device,
        epoch: 1,
        mode: AgentMode::Working,
        capacity: 2,
        holds: Vec::new(),
        busy: 0.75,
    }
}

fn profile(targets: &[Target]) -> ModelProfile {
    let kernels = targets.iter().map(|target| (target.kernel.clone(), KernelProfile { launches: 1, us: vec![BASELINE_US; 3] })).collect();
    let graph = GraphProfile { index: 0, calls_per_run: 1, call_us: vec![100.0; 3], kernels };
    ModelProfile { graphs: vec![graph], bandwidth: BandwidthCurve::default(), device: "NVIDIA H200".into() }
}

fn candidate(note: &str) -> Candidate {
    let origin = Origin { proposer: "schedule".into(), note: note.into(), parent: None, round: 0 };
    Candidate {
        language: Language::Triton,
        source: format!("# {note}\n"),
        launch: None,
        further: Vec::new(),
        scratch: Vec::new(),
        precision: Precision::Baseline,
        origin,
    }
}

fn outcome(candidate: &Candidate, verdict: Verdict) -> Outcome {
    let ratio = verdict.speedup().map(|speedup| speedup.estimate);
    let pairs_ns = ratio.map(|ratio| vec![(BASELINE_US * 1e3, BASELINE_US * 1e3 / ratio); 3]).unwrap_or_default();
    Outcome { candidate: candidate.id(), verdict, evidence: Evidence { pairs_ns, ..Evidence::default() } }
}

fn interval(estimate: f64) -> Interval {
    Interval { estimate, low: estimate * 0.97, high: estimate * 1.03 }
}
