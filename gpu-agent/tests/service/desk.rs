//! The coordinator's end: gives tasks, hears reports and signs of life, accepts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kernelopt_shared::broker::Broker;
use kernelopt_shared::broker::link::CoordinatorEnd;
use kernelopt_shared::message::{AgentId, AgentMode, Beat, Control, DeviceClass, JobId, Lease, Pulse, Report, Task, Work};
use tokio::time::Instant;

/// Longest that anything may take: generous, the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Desk {
    pub end: CoordinatorEnd,
    heard: Mutex<Heard>,
    accepts: AtomicBool,
    serial: AtomicU64,
}

#[derive(Default)]
pub struct Heard {
    pub reports: Vec<Report>,
    pub pulses: Vec<Pulse>,
}

impl Heard {
    /// Reports under a lease.
    pub fn of(&self, lease: Lease) -> Vec<&Report> {
        self.reports.iter().filter(|report| report.lease == lease).collect()
    }

    /// The latest beat of an agent.
    pub fn beat(&self, of: &AgentId) -> Option<&Beat> {
        self.beats().rfind(|beat| beat.agent == *of)
    }

    pub fn beats(&self) -> impl DoubleEndedIterator<Item = &Beat> {
        self.pulses.iter().filter_map(|pulse| match pulse {
            Pulse::Beat(beat) => Some(beat),
            _ => None,
        })
    }

    pub fn started(&self, lease: Lease) -> usize {
        self.pulses.iter().filter(|pulse| matches!(pulse, Pulse::Started { lease: of, .. } if *of == lease)).count()
    }

    pub fn has_left(&self, who: &AgentId) -> bool {
        self.pulses.contains(&Pulse::Leaving { agent: who.clone() })
    }

    /// Its mode, as it last said.
    pub fn mode(&self, of: &AgentId) -> Option<&AgentMode> {
        self.beat(of).map(|beat| &beat.mode)
    }
}

impl Desk {
    pub async fn open(broker: Arc<dyn Broker>) -> Arc<Self> {
        let end = CoordinatorEnd::new(broker, Arc::new(|_| {}));
        let (mut reports, mut pulses) = (end.reports().await.unwrap(), end.pulses().await.unwrap());
        let desk = Arc::new(Self { end, heard: Mutex::default(), accepts: AtomicBool::new(true), serial: AtomicU64::new(1) });
        let ear = Arc::clone(&desk);
        tokio::spawn(async move {
            while let Some(pulse) = pulses.next().await {
                ear.heard().pulses.push(pulse.message);
                pulse.receipt.acknowledge().await;
            }
        });
        let ear = Arc::clone(&desk);
        tokio::spawn(async move {
            while let Some(report) = reports.next().await {
                ear.heard().reports.push(report.message.clone());
                report.receipt.acknowledge().await;
                if ear.accepts.load(Ordering::Relaxed) {
                    ear.accept(&report.message).await;
                }
            }
        });
        desk
    }

    pub fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap()
    }

    /// Whether reports are answered.
    pub fn accepts(&self, yes: bool) {
        self.accepts.store(yes, Ordering::Relaxed);
    }

    pub async fn accept(&self, report: &Report) {
        // An agent that is away hears it when it reports again.
        let _ = self.end.control(&report.agent, &Control::Accepted { task: report.task, lease: report.lease }).await;
    }

    /// A task of job `j` under a fresh lease of epoch 1.
    pub fn task(&self, work: Work) -> Task {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        Task {
            id: kernelopt_shared::digest::Digest::of([serial.to_le_bytes().as_slice()]),
            job: JobId::parse("j").unwrap(),
            lease: Lease { epoch: 1, serial },
            epoch: 1,
            bundle: crate::shelf::bundle_blob(),
            work,
            seed: serial,
            run_limit_ms: 20_000,
        }
    }

    pub async fn send(&self, class: &DeviceClass, task: &Task) {
        self.end.send_task(class, task).await.unwrap();
    }

    pub async fn tell(&self, agent: &AgentId, control: Control) {
        self.end.control(agent, &control).await.unwrap();
    }

    /// Waits until what was heard is so.
    pub async fn until(&self, what: &str, so: impl Fn(&Heard) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !so(&self.heard()) {
            assert!(Instant::now() < deadline, "waited in vain until {what}; reports: {:?}", self.heard().reports);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for the first report under a lease.
    pub async fn report(&self, lease: Lease) -> Report {
        self.until(&format!("{lease:?} is reported"), |heard| !heard.of(lease).is_empty()).await;
        self.heard().of(lease)[0].clone()
    }

    /// Waits until no frame of the lane waits. What agents hold is not seen here: their beats tell.
    pub async fn until_settled(&self, class: &DeviceClass, agent: &AgentId) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ready = self.end.lane_depth(class).await.unwrap().map_or(0, |depth| depth.ready);
            let from = self.heard().pulses.len();
            self.tell(agent, Control::Leading { epoch: 1 }).await;
            self.until("it beats", |heard| {
                heard.pulses[from..].iter().any(|pulse| matches!(pulse, Pulse::Beat(beat) if beat.agent == *agent))
            })
            .await;
            if ready == 0 && self.heard().beat(agent).unwrap().holds.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "it holds {:?}, {ready} wait", self.heard().beat(agent).unwrap().holds);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Desk {
    /// Waits until an agent holds nothing.
    pub async fn until_settled_but_for_lane(&self, agent: &AgentId) {
        self.until("it holds nothing", |heard| heard.beat(agent).is_some_and(|beat| beat.holds.is_empty())).await;
    }

    /// Readmits an agent and waits until it works.
    pub async fn until_works_when_told(&self, agent: &AgentId) {
        self.tell(agent, Control::Readmit).await;
        self.until("it works", |heard| heard.mode(agent) == Some(&AgentMode::Working)).await;
    }
}
