//! Rows in which Redis forgets, refuses, or is wiped together with the broker.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kernelopt_coordinator::job::Terms;
use kernelopt_coordinator::journal::{Draft, Event, Journal};
use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::language_model::NanoUsd;
use kernelopt_shared::message::{DeviceIdentity, DeviceKind, JobId};
use kernelopt_shared::stats::Interval;
use kernelopt_shared::target::Language;
use kernelopt_shared::task::Depth;
use kernelopt_shared::verdict::{Evidence, Outcome, Verdict};
use kernelopt_tests::rig::Rig;
use serde_json::Value;

use crate::fleet::{Fleet, LONG};

/// Kernels in the journal of the rows here.
const KERNELS: usize = 25;
/// Longest until a frontier that lost something has it again: it is looked at every five seconds.
const REBUILT: Duration = Duration::from_secs(20);
/// Longer than the coordinator goes without a look at it.
const NOTICED: Duration = Duration::from_secs(6);

/// A fleet whose journal has a job of before, with a confirmed winner for each of some kernels.
fn fleet_with_a_past() -> Fleet {
    let rig = Rig::start();
    let mut journal = Journal::open(rig.data.path()).expect("a journal");
    journal.append(&past()).expect("it can be written");
    drop(journal);
    let fleet = Fleet::on(rig);
    fleet.rig.until(&fleet.address, &["frontier"], REBUILT, |page| rows(page).len() == KERNELS);
    fleet
}

fn rows(page: &Value) -> &[Value] {
    page["rows"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What a job leaves in the journal that matters to the frontier.
fn past() -> Vec<Draft> {
    let job = JobId::parse("of-before").expect("a name");
    let label = |kernel: usize| format!("0/kernel_{kernel}");
    let fingerprint = |kernel: usize| Digest::of([b"kernel".as_slice(), &kernel.to_le_bytes()]);
    let terms = Terms {
        name: "before".into(),
        class: None,
        budget_ms: 1000,
        max_candidates: 100,
        seed: 0,
        proposers: Vec::new(),
        priority: 5,
        weight: 10,
        model: String::new(),
        max_tokens: 0,
        max_cost: NanoUsd::ZERO,
    };
    let mut events = vec![Event::Opened {
        bundle: Digest::of([]),
        bundle_path: String::new(),
        blob: None,
        model: "before".into(),
        program_version: "0".into(),
        opened_unix_ms: 1,
        terms,
        fingerprints: (0..KERNELS).map(|kernel| (label(kernel), fingerprint(kernel))).collect::<BTreeMap<_, _>>(),
    }];
    for kernel in 0..KERNELS {
        let candidate = candidate(kernel);
        events.push(Event::Proposed { target: label(kernel), proposer: "schedule".into(), candidates: vec![candidate.clone()] });
        events.push(Event::Judged {
            target: label(kernel),
            depth: Depth::Confirm,
            outcome: accepted(&candidate, kernel),
            device: Some(device()),
        });
    }
    events.push(Event::Failed { reason: "it is of before".into() });
    events.into_iter().map(|event| Draft { job: Some(job.clone()), active: Duration::ZERO, event }).collect()
}

fn candidate(kernel: usize) -> Candidate {
    let origin = Origin { proposer: "schedule".into(), note: String::new(), parent: None, round: 0 };
    let source = format!("extern \"C\" void kernel() {{ /* {kernel} */ }}");
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

fn accepted(candidate: &Candidate, kernel: usize) -> Outcome {
    let time = 1000.0 + kernel as f64;
    let evidence = Evidence { pairs_ns: vec![(2.0 * time, time); 5], ..Evidence::default() };
    Outcome { candidate: candidate.id(), verdict: Verdict::Accepted { speedup: Interval { estimate: 2.0, low: 1.9, high: 2.1 } }, evidence }
}

fn device() -> DeviceIdentity {
    DeviceIdentity {
        kind: DeviceKind::Cuda,
        uuid: "GPU-1".into(),
        product: "NVIDIA H200".into(),
        memory_bytes: 140 << 30,
        architecture: "sm_90".into(),
        partition: None,
        driver: "580".into(),
        threads: 0,
    }
}

/// Row 12: emptied, turned into somebody's replica, out of memory, gone. Work goes on, and afterwards it holds what it held.
pub fn emptied_read_only_and_full_it_is_rebuilt() {
    let mut fleet = fleet_with_a_past();
    let _agent = fleet.agent("host1");
    // None while it cannot be asked.
    let frontier = |fleet: &Fleet| serde_json::from_slice::<Value>(&fleet.rig.client(&fleet.address, &["frontier", "--json"]).stdout).ok();
    let before = frontier(&fleet).expect("it can be asked");
    let job = fleet.drill(400, 100, &[]);
    let faults: [(&str, Fault); 4] = [("emptied", empty), ("read-only", read_only), ("out of memory", out_of_memory), ("gone", go_away)];
    for (what, fault) in faults {
        let done = fleet.kinds(&job).len();
        fault(&mut fleet);
        let deadline = Instant::now() + REBUILT;
        while frontier(&fleet) != Some(before.clone()) {
            assert!(Instant::now() < deadline, "{what}: {:#?}", frontier(&fleet));
            std::thread::sleep(Duration::from_millis(300));
        }
        assert!(fleet.kinds(&job).len() > done, "{what}: work did not go on");
    }
    fleet.drill_ends_well(&job, 400, LONG);
    assert!(fleet.charged(&job).is_empty());
}

/// Something done to Redis, and undone.
type Fault = fn(&mut Fleet);

fn empty(fleet: &mut Fleet) {
    redis(fleet, &[&["FLUSHALL"]]);
}

/// It becomes somebody's replica, and is an empty master when it is back.
fn read_only(fleet: &mut Fleet) {
    redis(fleet, &[&["REPLICAOF", "127.0.0.1", "1"]]);
    std::thread::sleep(NOTICED);
    redis(fleet, &[&["REPLICAOF", "NO", "ONE"], &["FLUSHALL"]]);
}

fn out_of_memory(fleet: &mut Fleet) {
    redis(fleet, &[&["FLUSHALL"], &["CONFIG", "SET", "maxmemory", "1"]]);
    std::thread::sleep(NOTICED);
    redis(fleet, &[&["CONFIG", "SET", "maxmemory", "0"]]);
}

fn go_away(fleet: &mut Fleet) {
    fleet.rig.redis.kill9();
    std::thread::sleep(NOTICED);
    fleet.rig.redis.restart().expect("Redis starts again");
}

fn redis(fleet: &Fleet, commands: &[&[&str]]) {
    commands.iter().for_each(|command| drop(fleet.rig.redis.command(command).expect("Redis obeys")));
}

/// Row 13: broker and Redis are wiped in mid-search: the journal alone restores both, and the search ends as any other.
pub fn wiped_together_with_the_broker_the_journal_restores_both() {
    let mut fleet = fleet_with_a_past();
    let _agent = fleet.agent("host1");
    let before = fleet.rig.json(&fleet.address, &["frontier"]);
    let (search, drill) = (fleet.submit(), fleet.drill(60, 50, &[]));
    fleet.until_running(&search);
    fleet.rig.rabbit.wipe().expect("the broker forgets");
    fleet.rig.redis.command(&["FLUSHALL"]).expect("Redis forgets");
    fleet.rig.rabbit.restart().expect("RabbitMQ starts again");
    fleet.search_ends_well(&search);
    fleet.drill_ends_well(&drill, 60, LONG);
    let known = |page: &Value| rows(&before).iter().all(|row| rows(page).contains(row));
    let after = fleet.rig.until(&fleet.address, &["frontier"], REBUILT, known);
    // What the search found on this host is there too, and nothing else.
    let found = fleet.events(&search).iter().filter(|entry| is_win(&entry.event)).count();
    assert!(rows(&after).len() <= KERNELS + found, "{after:#}");
    redis(&fleet, &[&["FLUSHALL"]]);
    fleet.rig.until(&fleet.address, &["frontier"], REBUILT, |page| *page == after);
}

fn is_win(event: &Event) -> bool {
    matches!(event, Event::Judged { depth: Depth::Confirm, outcome, .. } if matches!(outcome.verdict, Verdict::Accepted { .. }))
}
