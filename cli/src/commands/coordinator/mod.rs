//! `kernelopt coordinator`: leads a fleet.

mod config;

use std::sync::Arc;

use kernelopt_coordinator::fleet::Policy;
use kernelopt_coordinator::service::cluster::Cluster;
use kernelopt_shared::blobs::Blobs;
use kernelopt_shared::broker::rabbit::RabbitBroker;
use kernelopt_shared::exit::ExitCode;
use kernelopt_shared::frontier::redis::RedisFrontier;
use kernelopt_shared::frontier::{Frontier, MemoryFrontier};

use crate::args::coordinator::Coordinator;
use crate::failure::Failure;
use crate::interrupt;
use crate::language_model;
use config::Config;

/// Runs the command.
pub fn run(options: &Coordinator) -> crate::CommandResult {
    let config = Config::of(options)?;
    super::runtime()?.block_on(lead(config))
}

async fn lead(config: Config) -> crate::CommandResult {
    let stop = interrupt::shutdown("stopping: whatever is journaled stays; once more ends at once")?;
    let frontier: Arc<dyn Frontier> = match config.redis {
        Some(options) => Arc::new(RedisFrontier::open(options).await?),
        None => {
            eprintln!("note: no Redis is named: the best known candidates are kept in memory, and made from the journal at every start");
            Arc::new(MemoryFrontier::default())
        }
    };
    let model = config.gateway.as_deref().map(language_model::gateway).transpose()?;
    let cluster = Cluster {
        listen: config.listen,
        data: config.data,
        tokens: config.tokens,
        policy: Policy::default(),
        broker: Arc::new(RabbitBroker::start(config.broker)?),
        blobs: Blobs::open(&config.blobs)?,
        frontier,
        model,
    };
    eprintln!("waiting for the turn to lead");
    cluster.run(|address| eprintln!("leading; the API is at http://{address}"), stop).await.map_err(Failure::from)?;
    Ok(ExitCode::Success)
}
