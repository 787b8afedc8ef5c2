//! A search whose candidates are judged many at a time finds what one finds that waits for each.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use kernelopt_coordinator::job::{Job, KernelSearch, Order, Terms, Wish};
use kernelopt_coordinator::schedule::ScheduleProposer;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::language_model::NanoUsd;
use kernelopt_shared::message::{DeviceIdentity, DeviceKind, JobId, Reply, Work};
use kernelopt_shared::stats::Interval;
use kernelopt_shared::task::{BandwidthCurve, GraphProfile, KernelProfile, ModelProfile};
use kernelopt_shared::verdict::{Evidence, Outcome, Verdict};

const KERNEL: &str = "triton_red_fused__softmax_exp_prepare_softmax_online_sub_0";

fn device() -> DeviceIdentity {
    DeviceIdentity {
        kind: DeviceKind::Cuda,
        uuid: "GPU-0".into(),
        product: "gpu".into(),
        memory_bytes: 1 << 37,
        architecture: "sm_90".into(),
        partition: None,
        driver: "1".into(),
        threads: 0,
    }
}

fn job() -> Job {
    let terms = Terms {
        name: String::new(),
        class: Some(device().class()),
        budget_ms: 3_600_000,
        max_candidates: 10_000,
        seed: 0,
        proposers: Vec::new(),
        priority: 5,
        weight: 10,
        model: String::new(),
        max_tokens: 0,
        max_cost: NanoUsd::ZERO,
    };
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/bundles/softmax_cuda");
    let search = KernelSearch::open(&bundle, None, &terms, vec![Box::new(ScheduleProposer::new())]).unwrap();
    Job::open(JobId::parse("search").unwrap(), terms, Box::new(search), &mut Vec::new())
}

fn profile(kernel: &str) -> ModelProfile {
    let kernel_profile = KernelProfile { launches: 1, us: vec![280.0] };
    let kernels = BTreeMap::from([(kernel.to_owned(), kernel_profile)]);
    let graph = GraphProfile { index: 0, calls_per_run: 1, call_us: vec![281.0], kernels };
    ModelProfile { graphs: vec![graph], bandwidth: BandwidthCurve(vec![(1 << 30, 4e6)]), device: String::new() }
}

/// A landscape with one summit, some steps away from where the search begins: a block of 8192, 32 warps, no row factors.
fn speed(candidate: &Candidate) -> f64 {
    let note = &candidate.origin.note;
    let number = |is_it: &dyn Fn(&str) -> Option<&str>| note.split(", ").find_map(is_it).unwrap().parse::<f64>().unwrap();
    let block = number(&|part| Some(part.split_once(" x ")?.1));
    let warps = number(&|part| part.strip_suffix(" warps"));
    let steps = (block / 8192.0).log2().abs() + (warps / 32.0).log2().abs() + f64::from(u8::from(note.contains("row factors")));
    if note.starts_with("rows in a loop") { 3.0 - 0.2 * steps } else { 1.2 }
}

fn verdict(candidate: &Candidate) -> Verdict {
    let estimate = speed(candidate);
    Verdict::Accepted { speedup: Interval { estimate, low: estimate * 0.99, high: estimate * 1.01 } }
}

/// Runs the search with `held` tasks under way at a time, which end in the order of `pick`; what was tried, and the best.
fn search(held: usize, pick: impl Fn(usize) -> usize) -> (BTreeSet<Digest>, f64) {
    let (mut job, mut under_way, mut tried, mut best) = (job(), Vec::<Order>::new(), BTreeSet::new(), 0.0f64);
    loop {
        let now = Instant::now();
        while under_way.len() < held {
            match job.next(held, now, &mut Vec::new()) {
                Wish::Run(order) => under_way.push(*order),
                Wish::Ask(_) | Wish::Hush | Wish::Wait | Wish::Pause | Wish::Finish => break,
            }
        }
        if under_way.is_empty() {
            return (tried, best);
        }
        let order = under_way.remove(pick(under_way.len()));
        let reply = match order.work {
            Work::Profile => Reply::Profiled(profile(KERNEL)),
            Work::Evaluate { candidate, .. } => {
                tried.insert(candidate.id());
                best = best.max(speed(&candidate));
                Reply::Judged(Box::new(Outcome { candidate: candidate.id(), verdict: verdict(&candidate), evidence: Evidence::default() }))
            }
            // The search is over: what a gate would say is another matter.
            _ => return (tried, best),
        };
        job.settle(order.task, reply, &device(), now, &mut Vec::new());
    }
}

#[test]
fn verdicts_in_parallel_lead_to_the_same_summit() {
    let (_, alone) = search(1, |_| 0);
    assert!(alone > 2.9, "the search is not to end before the summit: {alone}");
    for held in [4, 12] {
        for (order, pick) in [("first in, first out", (|_| 0) as fn(usize) -> usize), ("last in, first out", |n| n - 1)] {
            let (tried, best) = search(held, pick);
            assert!(best >= alone, "{held} at a time, {order}: {best} after {} candidates instead of {alone}", tried.len());
        }
    }
}
