//! Rows in which messages come that no process of this version, in this state, would send.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kernelopt_coordinator::journal::Event;
use kernelopt_shared::broker::link::AgentEnd;
use kernelopt_shared::broker::{Address, Delivery, Frame};
use kernelopt_shared::message::{AgentId, AgentMode, Beat, DeviceIdentity, Lease, Pulse, Reply, Report, Task, Times};
use kernelopt_shared::wire::{self, Message};
use kernelopt_tests::rig::{get, lead};

use crate::fleet::{Fleet, LEASE, LONG, agents};
use crate::wire::Wire;

/// Row 8: every task, and every report, comes three times and in reverse order.
pub fn messages_three_times_and_out_of_order_count_once() {
    let mut fleet = Fleet::start();
    let wire = Wire::connect(&fleet.rig.rabbit.url());
    let (job, class) = fleet.stranded("gone", 24, 50, &[]);
    let lane = Address::Lane(class);
    fleet.until_waiting(&wire, &lane);
    let enough = wire.ready(&lane) as usize;
    thrice::<Task>(&wire, &lane, enough);
    let _agent = fleet.agent("host1");
    fleet.until_done(&job, 6);
    // While nobody takes reports they wait.
    fleet.coordinator.kill9();
    let deadline = Instant::now() + LONG;
    while wire.ready(&Address::Reports) < 3 {
        assert!(Instant::now() < deadline, "no reports wait");
        std::thread::sleep(Duration::from_millis(50));
    }
    let enough = wire.ready(&Address::Reports) as usize;
    thrice::<Report>(&wire, &Address::Reports, enough);
    (fleet.coordinator, fleet.address) = lead(&mut fleet.rig.coordinator_command(fleet.listen()));
    fleet.drill_ends_well(&job, 24, LONG);
    assert!(fleet.charged(&job).is_empty(), "{:?}", fleet.charged(&job));
    let strange: Vec<_> = fleet.kinds(&job).into_iter().filter(|kind| matches!(*kind, "evidence" | "quarantined")).collect();
    assert!(strange.is_empty(), "{strange:?}");
}

/// Takes frames and sends each three times, last first.
fn thrice<M: Message>(wire: &Wire, at: &Address, enough: usize) {
    let taken: Vec<Delivery> = wire.intercept(at, enough);
    for delivery in taken.iter().rev() {
        let message: M = wire::decode(&delivery.body).expect("a message of this version");
        (0..3).for_each(|_| wire.send(at, &message));
    }
    wire.block_on(async {
        for delivery in taken {
            assert!(delivery.receipt.acknowledge().await);
        }
    });
}

/// An agent that the test plays.
struct Puppet {
    end: AgentEnd,
    id: AgentId,
    device: DeviceIdentity,
}

impl Puppet {
    /// On a device like that of the fleet's agents, with another serial number.
    fn of(fleet: &Fleet, wire: &Wire, name: &str) -> Self {
        let page = fleet.rig.json(&fleet.address, &["agents"]);
        let device: DeviceIdentity = serde_json::from_value(agents(&page)[0]["device"].clone()).expect("a device");
        let id = AgentId::parse(&format!("{name}/cpu")).expect("a name");
        let end = AgentEnd::new(wire.broker.clone(), id.clone(), Arc::new(|_| {}));
        Self { end, id, device: DeviceIdentity { uuid: format!("CPU-{name}"), ..device } }
    }

    fn beat(&self, wire: &Wire, holds: Vec<Lease>) {
        let (agent, device, version) = (self.id.clone(), self.device.clone(), "puppet".into());
        let beat = Beat { agent, incarnation: 1, version, device, epoch: 1, mode: AgentMode::Working, capacity: 2, holds, busy: 0.0 };
        wire.block_on(self.end.pulse(&Pulse::Beat(beat))).expect("the broker takes it");
    }

    fn start(&self, wire: &Wire, task: &Task) {
        let started = Pulse::Started { agent: self.id.clone(), task: task.id, lease: task.lease };
        wire.block_on(self.end.pulse(&started)).expect("the broker takes it");
    }

    fn report(&self, wire: &Wire, task: &Task) {
        let (job, agent, device) = (task.job.clone(), self.id.clone(), self.device.clone());
        let report = Report { task: task.id, job, lease: task.lease, agent, device, reply: Reply::Nothing, times: Times::default() };
        wire.block_on(self.end.report(&report)).expect("the broker takes it");
    }
}

/// Row 16: an agent falls silent, loses its task, takes the next one, and only then answers the first: the answer is filed under the first.
pub fn a_late_reply_is_filed_under_its_own_task() {
    let fleet = Fleet::start();
    let wire = Wire::connect(&fleet.rig.rabbit.url());
    let real = fleet.agent("host1");
    let puppet = Puppet::of(&fleet, &wire, "puppet");
    drop(real);
    // The class's only agent for the moment.
    fleet.rig.until(&fleet.address, &["agents"], LEASE + LEASE, |page| agents(page).iter().all(|agent| agent["mode"] == "silent"));
    puppet.beat(&wire, Vec::new());
    let job = fleet.drill(6, 100, &[]);
    let mut tasks = wire.block_on(puppet.end.tasks(&puppet.device.class(), 1)).expect("the broker lets it listen");
    let first = wire.block_on(tasks.next()).expect("a task");
    puppet.start(&wire, &first.message);
    let lost = |event: &Event| matches!(event, Event::Released { task, .. } if *task == first.message.id);
    fleet.until_event(&job, LEASE, lost);
    // It is back, and takes what comes.
    puppet.beat(&wire, Vec::new());
    wire.block_on(first.receipt.acknowledge());
    let second = wire.block_on(tasks.next()).expect("another task");
    puppet.start(&wire, &second.message);
    puppet.report(&wire, &first.message);
    let filed = |event: &Event| matches!(event, Event::Evidence { report } if report.task == first.message.id && report.lease == first.message.lease);
    fleet.until_event(&job, LEASE, filed);
    assert!(!fleet.kinds(&job).contains(&"done"), "a late answer was taken for another: {:#?}", fleet.kinds(&job));
    puppet.report(&wire, &second.message);
    fleet.until_done(&job, 1);
    wire.block_on(second.receipt.acknowledge());
    drop(tasks);
    let _real = fleet.agent("host2");
    fleet.drill_ends_well(&job, 6, LONG);
}

/// Row 28: tasks, reports and signs of life of other versions, and things that are none: set aside and counted, and the work is done all the
/// same.
pub fn other_versions_are_refused_and_the_work_is_done() {
    let fleet = Fleet::start();
    let wire = Wire::connect(&fleet.rig.rabbit.url());
    let (job, class) = fleet.stranded("gone", 8, 50, &[]);
    let lane = Address::Lane(class);
    fleet.until_waiting(&wire, &lane);
    let enough = wire.ready(&lane) as usize;
    // As a coordinator of another version would have sent them.
    let taken = wire.intercept(&lane, enough);
    for delivery in &taken {
        [0, 2].iter().for_each(|version| wire.publish(&lane, of_version(*version, "task", &delivery.body)));
    }
    let report = taken[0].body.clone();
    wire.block_on(async {
        for delivery in taken {
            delivery.receipt.acknowledge().await;
        }
    });
    let mut agent = fleet.agent("host1");
    wire.publish(&Address::Reports, of_version(2, "report", &report));
    wire.publish(&Address::Pulses, of_version(7, "pulse", &report));
    wire.publish(&Address::Reports, Frame { kind: "report", version: 1, id: "noise".into(), body: Bytes::from_static(b"hello") });
    fleet.drill_ends_well(&job, 8, LONG);
    assert!(fleet.charged(&job).is_empty() && !fleet.kinds(&job).contains(&"evidence"));
    let dead = wire.ready(&Address::Dead);
    assert_eq!(dead, 2 * enough as u64 + 3, "what nobody can read are kept for people");
    let metrics = get(&fleet.address, "/metrics").1;
    for reason in ["version", "foreign"] {
        let counted = metrics.lines().any(|line| line.contains("malformed") && line.contains(reason) && !line.ends_with(" 0"));
        assert!(counted, "{reason} is not counted:\n{metrics}");
    }
    assert!(agent.words().contains("version"), "{}", agent.words());
}

/// The same envelope with another version in it, whole otherwise.
fn of_version(version: u16, kind: &'static str, body: &Bytes) -> Frame {
    let mut bytes = body.to_vec();
    bytes[4..6].copy_from_slice(&version.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    bytes[12..16].copy_from_slice(&hasher.finalize().to_le_bytes());
    Frame { kind, version, id: "another-version".into(), body: bytes.into() }
}
