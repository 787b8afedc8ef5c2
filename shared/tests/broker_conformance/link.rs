//! The typed ends.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use kernelopt_shared::broker::link::{AgentEnd, CoordinatorEnd, OnUnread, SendError};
use kernelopt_shared::broker::memory::MemoryBroker;
use kernelopt_shared::broker::{Address, Broker, BrokerError, Depth};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{
    AgentId, Control, DeviceClass, DeviceIdentity, DeviceKind, JobId, Lease, Pulse, Reply, Report, Task, Times, Work,
};
use kernelopt_shared::wire::{self, WireError};

use crate::stand::{frame, next};

fn class() -> DeviceClass {
    DeviceClass::parse("epyc-16t").unwrap()
}

fn me() -> AgentId {
    AgentId::parse("host/cpu0").unwrap()
}

fn task() -> Task {
    Task {
        id: Digest::of([b"t".as_slice()]),
        job: JobId::parse("j").unwrap(),
        lease: Lease { epoch: 1, serial: 2 },
        epoch: 1,
        bundle: Digest::of([b"b".as_slice()]),
        work: Work::Nothing { busy_us: 5 },
        seed: 3,
        run_limit_ms: 1000,
    }
}

fn report(reply: Reply) -> Report {
    let device = DeviceIdentity {
        kind: DeviceKind::Cpu,
        uuid: "u".into(),
        product: "EPYC".into(),
        memory_bytes: 0,
        architecture: "x86_64".into(),
        partition: None,
        driver: String::new(),
        threads: 16,
    };
    let Task { id, job, lease, .. } = task();
    Report { task: id, job, lease, agent: me(), device, reply, times: Times::default() }
}

/// Counts, and keeps the last reason.
fn counter() -> (OnUnread, Arc<AtomicU32>, Arc<Mutex<Vec<&'static str>>>) {
    let (count, reasons) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (counted, noted) = (count.clone(), reasons.clone());
    let on_unread: OnUnread = Arc::new(move |unread| {
        counted.fetch_add(1, Ordering::Relaxed);
        noted.lock().unwrap().push(unread.error.reason());
    });
    (on_unread, count, reasons)
}

#[tokio::test]
async fn every_message_finds_its_way() {
    let hub = MemoryBroker::new();
    let coordinator = CoordinatorEnd::new(Arc::new(hub.connect()), counter().0);
    let agent = AgentEnd::new(Arc::new(hub.connect()), me(), counter().0);

    assert!(matches!(coordinator.control(&me(), &Control::Drain).await, Err(SendError::Broker(BrokerError::Unroutable(_)))));
    let (mut reports, mut pulses) = (coordinator.reports().await.unwrap(), coordinator.pulses().await.unwrap());
    let mut controls = agent.controls().await.unwrap();
    coordinator.send_task(&class(), &task()).await.unwrap();
    assert_eq!(coordinator.lane_depth(&class()).await.unwrap(), Some(Depth { ready: 1, consumers: 0 }));

    let mut tasks = agent.tasks(&class(), 2).await.unwrap();
    let taken = tasks.next().await.unwrap();
    assert_eq!(taken.message, task());
    agent.pulse(&Pulse::Leaving { agent: me() }).await.unwrap();
    assert_eq!(pulses.next().await.unwrap().message, Pulse::Leaving { agent: me() });
    agent.report(&report(Reply::Nothing)).await.unwrap();
    let reported = reports.next().await.unwrap();
    assert_eq!(reported.message, report(Reply::Nothing));
    assert!(reported.receipt.acknowledge().await);
    coordinator.broadcast(&Control::Leading { epoch: 1 }).await.unwrap();
    coordinator.control(&me(), &Control::Readmit).await.unwrap();
    for told in [Control::Leading { epoch: 1 }, Control::Readmit] {
        let control = controls.next().await.unwrap();
        assert_eq!(control.message, told);
        assert!(control.receipt.acknowledge().await);
    }
    assert!(taken.receipt.acknowledge().await);
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_and_counted_and_the_next_one_comes() {
    let hub = MemoryBroker::new();
    let raw: Arc<dyn Broker> = Arc::new(hub.connect());
    let (on_unread, count, reasons) = counter();
    let agent = AgentEnd::new(Arc::new(hub.connect()), me(), on_unread);
    let lane = Address::Lane(class());

    let mut later = wire::encode(&task()).unwrap().body.to_vec();
    later[4] = 2;
    let mut summed = later[..12].to_vec();
    summed.extend_from_slice(&later[16..]);
    let sum = crc32fast::hash(&summed).to_le_bytes();
    later[12..16].copy_from_slice(&sum);
    let bodies = [b"noise".to_vec(), later, wire::encode(&Control::Drain).unwrap().body.to_vec()];
    for body in bodies {
        let bad = kernelopt_shared::broker::Frame { body: Bytes::from(body), ..frame("bad") };
        raw.publish(&lane, bad).await.unwrap();
    }
    raw.publish(&lane, wire::encode(&task()).unwrap()).await.unwrap();

    // With room for one: what is refused makes room.
    let mut tasks = agent.tasks(&class(), 1).await.unwrap();
    assert_eq!(tasks.next().await.unwrap().message, task());
    assert_eq!(count.load(Ordering::Relaxed), 3);
    assert_eq!(*reasons.lock().unwrap(), ["foreign", "version", "unexpected"]);
    let mut dead = raw.subscribe(&Address::Dead, 8).await.unwrap();
    for _ in 0..3 {
        next(&mut dead).await;
    }
}

#[tokio::test]
async fn a_large_report_travels_and_a_larger_one_is_the_senders_error() {
    let hub = MemoryBroker::new();
    let coordinator = CoordinatorEnd::new(Arc::new(hub.connect()), counter().0);
    let agent = AgentEnd::new(Arc::new(hub.connect()), me(), counter().0);
    let mut reports = coordinator.reports().await.unwrap();
    let profile = |bytes| {
        let (graphs, bandwidth) = (vec![], Default::default());
        report(Reply::Profiled(kernelopt_shared::task::ModelProfile { graphs, bandwidth, device: "x".repeat(bytes) }))
    };
    let large = profile(1 << 20);
    agent.report(&large).await.unwrap();
    assert_eq!(reports.next().await.unwrap().message, large);
    let error = agent.report(&profile(9 << 20)).await;
    assert!(matches!(error, Err(SendError::Wire(WireError::TooLarge { .. }))));
}
