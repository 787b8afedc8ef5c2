//! A broker, a desk, a shelf and services on scripted devices.

use std::sync::Arc;
use std::time::Duration;

use kernelopt_gpu_agent::service::{AgentService, Served, ServiceError, Settings, Telemetry};
use kernelopt_shared::broker::Broker;
use kernelopt_shared::broker::memory::MemoryBroker;
use kernelopt_shared::message::{AgentId, DeviceClass, DeviceIdentity, DeviceKind, Task};
use kernelopt_shared::task::Depth;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::desk::Desk;
use crate::script::{Script, Shop};
use crate::shelf::Shelf;

pub struct Rig {
    pub broker: MemoryBroker,
    pub desk: Arc<Desk>,
    pub shelf: Arc<Shelf>,
    pub class: DeviceClass,
}

/// A service that runs.
pub struct Running {
    pub agent: AgentId,
    pub shutdown: CancellationToken,
    pub ended: JoinHandle<Result<(), ServiceError>>,
}

impl Running {
    /// Ends without a word, as a process that is killed does: its connection closes.
    pub async fn kill(self, connection: &dyn Broker) {
        self.ended.abort();
        let _ = self.ended.await;
        connection.close().await;
    }
}

pub fn identity(uuid: &str) -> DeviceIdentity {
    DeviceIdentity {
        kind: DeviceKind::Cpu,
        uuid: uuid.into(),
        product: "Scripted".into(),
        memory_bytes: 0,
        architecture: "test".into(),
        partition: None,
        driver: String::new(),
        threads: 1,
    }
}

/// Times of tests: short, but long enough for a busy machine.
pub fn settings() -> Settings {
    Settings {
        beat: Duration::from_millis(100),
        resend: Duration::from_millis(150),
        fetching: Duration::from_millis(600),
        ending: Duration::from_millis(300),
        drain: Duration::from_millis(600),
        farewell: Duration::from_millis(1500),
        ..Settings::default()
    }
}

impl Rig {
    pub async fn new() -> Self {
        let broker = MemoryBroker::new();
        let desk = Desk::open(Arc::new(broker.connect())).await;
        Self { broker, desk, shelf: Shelf::new(), class: identity("").class() }
    }

    /// A service on one device, `NAME/cpu`, over a connection of its own.
    pub fn serve(&self, name: &str, script: &Arc<Script>) -> Running {
        self.serve_over(name, script, Arc::new(self.broker.connect()))
    }

    pub fn serve_over(&self, name: &str, script: &Arc<Script>, broker: Arc<dyn Broker>) -> Running {
        let served = Served { name: "cpu".into(), identity: identity(name), workshop: Arc::new(Shop(Arc::clone(script))) };
        let service = AgentService { name: name.into(), devices: vec![served], settings: settings(), telemetry: Telemetry::default() };
        let shutdown = CancellationToken::new();
        let agent = AgentId::parse(&format!("{name}/cpu")).unwrap();
        let ended = tokio::spawn(service.run(broker, self.shelf.clone(), shutdown.clone()));
        Running { agent, shutdown, ended }
    }

    /// Gives the lane a candidate with this source to judge.
    pub async fn judge(&self, source: &str) -> Task {
        let task = self.task(source);
        self.desk.send(&self.class, &task).await;
        task
    }

    pub fn task(&self, source: &str) -> Task {
        self.desk.task(self.shelf.evaluate(source, Depth::Screen))
    }

    /// Waits until an agent has sent its first beat.
    pub async fn beating(&self, running: &Running) {
        self.desk.until("it beats", |heard| heard.beat(&running.agent).is_some()).await;
    }

    /// Frames that wait in the lane.
    pub async fn waiting(&self) -> u64 {
        self.desk.end.lane_depth(&self.class).await.unwrap().map_or(0, |depth| depth.ready)
    }
}
