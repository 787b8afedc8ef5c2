//! An agent of a fleet: takes tasks from a broker, does them on this host's devices, and reports until it is heard.
//!
//! Each device has one `worker`, an asynchronous loop that owns all its state, and one thread (`hand`) on which the blocking
//! [`kernelopt_shared::task::Agent`] lives: one measurement at a time is a property of that thread, and across processes of the
//! lock that [`Workshop::turn`] waits for.
//!
//! | file | noun |
//! |---|---|
//! | `worker`, `intake`, `course`, `leaving` | the loop: its state; what arrives; what the device does; how it ends |
//! | `hand` | the device's thread |
//! | `workshop` | makes the blocking agent, for a CPU, a GPU, or a test |
//! | `job`, [`fetch`], [`store`] | a task with all that it needs; where that comes from: a role; the fleet's blobs |
//! | `holding`, `memory` | the tasks held; those that were |
//! | `running`, `device` | the clocks of the one task that runs |
//! | `streak`, `canary` | doubt, and what resolves it |
//! | `line` | the device's end of the broker |
//! | [`telemetry`] | what is said to Prometheus and to probes |
//! | `identity`, `discover` | which device this is; which may serve |
//! | [`idle`] | a device that only passes time |

mod busy;
pub mod canary;
mod course;
mod device;
pub mod discover;
pub mod fetch;
mod hand;
mod holding;
pub mod identity;
pub mod idle;
mod intake;
mod job;
mod leaving;
mod line;
mod memory;
mod reply;
mod running;
mod settings;
pub mod store;
mod streak;
pub mod telemetry;
mod worker;
mod workshop;

use std::sync::Arc;

use kernelopt_shared::broker::{Broker, BrokerError, Counted};
use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::message::{AgentId, DeviceIdentity, NameError};
use rand::RngExt as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use canary::Canary;
pub use fetch::{Fetch, FetchError, Held};
pub use settings::{PREFETCH, Settings};
pub use telemetry::Telemetry;
pub use workshop::{CpuWorkshop, CudaWorkshop, Workshop};

use holding::Errand;
use line::Line;
use worker::Parts;

/// A device that serves.
pub struct Served {
    /// Its name among those of the process: `cuda0`.
    pub name: String,
    /// Which it is.
    pub identity: DeviceIdentity,
    /// Where its agents come from.
    pub workshop: Arc<dyn Workshop>,
}

/// The agents of one process.
pub struct AgentService {
    /// The process's name; a host's, where it has one such process.
    pub name: String,
    /// Its devices.
    pub devices: Vec<Served>,
    /// Its times.
    pub settings: Settings,
    /// Where it says how it fares.
    pub telemetry: Telemetry,
}

/// Why the service ended by itself.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum ServiceError {
    #[error("{0}")]
    Name(#[from] NameError),
    #[error("a device's thread could not be started: {0}")]
    Thread(std::io::Error),
    #[error("{0}")]
    Broker(BrokerError),
    #[error("the broker was closed")]
    Closed,
    #[error("a worker broke: {0}")]
    Broken(tokio::task::JoinError),
}

impl UserError for ServiceError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Name(_) => ExitCode::Usage,
            Self::Thread(_) | Self::Broker(_) => ExitCode::Environment,
            Self::Closed | Self::Broken(_) => ExitCode::Failure,
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Name(_) => "Name the agent with --name.".into(),
            Self::Broker(error) => error.remedy().into(),
            Self::Thread(_) => "Look at the limits of the process (ulimit -u, the cgroup's pids.max).".into(),
            Self::Closed | Self::Broken(_) => "Start the agent again.".into(),
        })
    }
}

impl AgentService {
    /// Serves until `shutdown` is cancelled, or every device was told to drain: within 20 s after that.
    ///
    /// # Errors
    /// A name is none, or a device can no longer serve. The other devices leave in good order first.
    pub async fn run(self, broker: Arc<dyn Broker>, fetch: Arc<dyn Fetch>, shutdown: CancellationToken) -> Result<(), ServiceError> {
        let broker: Arc<dyn Broker> = match &self.telemetry.broker {
            Some(metrics) => Arc::new(Counted::new(broker, metrics.clone())),
            None => broker,
        };
        let incarnation = rand::rng().random();
        // Ends the others when one ends with an error.
        let shutdown = shutdown.child_token();
        let _following = Errand(tokio::spawn(self.telemetry.clone().follow(broker.state())).abort_handle());
        let mut workers = JoinSet::new();
        for Served { name, identity, workshop } in self.devices {
            let id = AgentId::parse(&format!("{}/{name}", self.name))?;
            tracing::info!(agent = %id, class = %identity.class(), device = identity.product, uuid = identity.uuid, "serving");
            workers.spawn(worker::serve(Parts {
                line: Arc::new(Line::new(Arc::clone(&broker), id.clone(), self.telemetry.on_unread())),
                id,
                incarnation,
                identity,
                workshop,
                fetch: Arc::clone(&fetch),
                settings: self.settings,
                telemetry: self.telemetry.clone(),
                shutdown: shutdown.clone(),
            }));
        }
        let mut ended = Ok(());
        while let Some(worker) = workers.join_next().await {
            if let Err(error) = worker.map_err(ServiceError::Broken).flatten() {
                tracing::error!(%error, "a device serves no longer");
                shutdown.cancel();
                ended = ended.and(Err(error));
            }
        }
        ended
    }
}
