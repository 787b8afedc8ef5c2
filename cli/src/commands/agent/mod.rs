//! `kernelopt agent`: serves a fleet with this host's devices.

mod config;

use std::sync::Arc;
use std::time::Duration;

use kernelopt_gpu_agent::cuda::CudaOptions;
use kernelopt_gpu_agent::python::Python;
use kernelopt_gpu_agent::service::discover::{self, Found};
use kernelopt_gpu_agent::service::store::BlobStore;
use kernelopt_gpu_agent::service::telemetry::BROKER;
use kernelopt_gpu_agent::service::{AgentService, Canary, CpuWorkshop, CudaWorkshop, Served, Settings, Telemetry, Workshop};
use kernelopt_shared::blobs::Blobs;
use kernelopt_shared::broker::rabbit::RabbitBroker;
use kernelopt_shared::exit::ExitCode;
use kernelopt_shared::message::DeviceKind;
use kernelopt_shared::telemetry::health::Health;
use kernelopt_shared::telemetry::server;
use kernelopt_shared::telemetry::{AgentMetrics, BrokerMetrics, ProcessMetrics, Registry, TelemetryError};
use tokio_util::sync::CancellationToken;

use crate::args::agent::Agent;
use crate::failure::Failure;
use crate::interrupt;
use config::Config;

/// Longest that the service's loops may be silent before a probe says that they hang.
const LONGEST_TURN: Duration = Duration::from_secs(30);
/// For what still runs on the runtime's threads when all is said.
const ENDING: Duration = Duration::from_millis(200);

/// Runs the command.
pub fn run(options: &Agent) -> crate::CommandResult {
    let config = Config::of(options)?;
    let (found, refused) = discover::find(config.choice, config.permit_shared, &super::reexec()?)?;
    refused.iter().for_each(|reason| eprintln!("note: {reason}"));
    let devices = found.into_iter().map(served).collect::<Result<Vec<_>, _>>()?;
    let runtime = tokio::runtime::Runtime::new().map_err(|e| failed(format!("no threads for the service: {e}")))?;
    let done = runtime.block_on(serve(config, devices));
    // A device that does not come to an end is left to the end of the process.
    runtime.shutdown_timeout(ENDING);
    done.map(|()| ExitCode::Success)
}

async fn serve(config: Config, devices: Vec<Served>) -> Result<(), Failure> {
    let shutdown = interrupt::shutdown("draining: what runs is finished or handed back within 20 s; once more ends at once")?;
    let blobs = Blobs::open(&config.blobs)?;
    let store = BlobStore::open(blobs, &super::cache_folder().join("fleet"), config.cache_bytes)?;
    let broker = RabbitBroker::start(config.broker)?;
    let (telemetry, served) = telemetry().map_err(failed)?;
    let ended = CancellationToken::new();
    let _ends_with_this = ended.clone().drop_guard();
    if let Some(address) = config.metrics {
        let listener = tokio::net::TcpListener::bind(address).await;
        let remedy = "Name another address with --metrics.";
        let listener = listener.map_err(|e| Failure::new(ExitCode::Environment, format!("{address}: {e}"), remedy))?;
        tokio::spawn(server::serve(listener, served, ended));
    }
    let service = AgentService { name: config.name, devices, settings: Settings::default(), telemetry };
    Ok(service.run(Arc::new(broker), Arc::new(store), shutdown).await?)
}

/// A device with what makes its agents.
fn served(found: Found) -> Result<Served, Failure> {
    let (name, identity, reexec) = (found.name(), found.identity(), super::reexec()?);
    let (python, cache) = (Python::find(), super::cache_folder());
    let broken = |error: serde_json::Error| failed(format!("the canary of this program: {error}"));
    let workshop: Arc<dyn Workshop> = match found {
        Found::Cpu => {
            let (uuid, canary) = (identity.uuid.clone(), Canary::cpu().map_err(broken)?);
            Arc::new(CpuWorkshop { reexec, cache: cache.join("builds"), python, uuid, canary })
        }
        Found::Gpu(ordinal, facts) => {
            let options = CudaOptions { reexec, cache: cache.join("kernels"), python, ordinal };
            Arc::new(CudaWorkshop { facts, options, canary: Canary::cuda().map_err(broken)? })
        }
    };
    let kind = if identity.kind == DeviceKind::Cpu { "processor" } else { "GPU" };
    eprintln!("serving: {name}, {kind} {}, class {}", identity.product, identity.class());
    Ok(Served { name, identity, workshop })
}

/// Metrics and health: what the service writes, and what is served of it.
fn telemetry() -> Result<(Telemetry, server::Telemetry), TelemetryError> {
    let registry = Registry::new();
    let process = ProcessMetrics::new(&registry, "agent")?;
    let health = Health::new(LONGEST_TURN, [BROKER]);
    let told = Telemetry {
        agent: Some(Arc::new(AgentMetrics::new(&registry)?)),
        broker: Some(BrokerMetrics::new(&registry)?),
        health: Some(health.clone()),
    };
    Ok((told, server::Telemetry { registry, process, health }))
}

fn failed(what: impl std::fmt::Display) -> Failure {
    Failure::new(ExitCode::Failure, what, "Run it again with -v, and report what it says.")
}
