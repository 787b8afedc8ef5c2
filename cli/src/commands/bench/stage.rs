//! The servers that a drill is played on, under names that nobody else uses.

use std::sync::Arc;

use kernelopt_gpu_agent::service::idle;
use kernelopt_shared::broker::Broker;
use kernelopt_shared::broker::memory::MemoryBroker;
use kernelopt_shared::broker::rabbit::{self, RabbitBroker, RabbitOptions};
use kernelopt_shared::exit::ExitCode;
use kernelopt_shared::frontier::redis::{RedisFrontier, RedisOptions};
use kernelopt_shared::frontier::{Frontier, MemoryFrontier};
use kernelopt_shared::message::DeviceClass;
use kernelopt_shared::secret;
use rand::RngExt as _;

use super::crew::Crew;
use crate::failure::Failure;

/// The broker's address, with user and password; `_FILE` behind it names a file.
const BROKER_URL: &str = "KERNELOPT_BROKER_URL";
/// That of Redis.
const REDIS_URL: &str = "KERNELOPT_REDIS_URL";

/// Where messages travel and what is known is kept.
pub enum Stage {
    /// In servers.
    Servers {
        /// RabbitMQ.
        broker: Arc<RabbitBroker>,
        /// Its release, where it says so.
        broker_version: Option<String>,
        /// Redis.
        frontier: Arc<RedisFrontier>,
        /// Its release.
        redis_version: String,
        /// What every name on the broker begins with.
        prefix: String,
        /// What every key begins with.
        keys: String,
    },
    /// In this process.
    Memory {
        /// In memory.
        broker: Arc<MemoryBroker>,
        /// In memory.
        frontier: Arc<MemoryFrontier>,
    },
}

impl Stage {
    /// In memory.
    pub fn memory() -> Self {
        Self::Memory { broker: Arc::new(MemoryBroker::new()), frontier: Arc::default() }
    }

    /// On the servers that the environment names.
    ///
    /// # Errors
    /// One is not named, cannot be reached, or refuses.
    pub async fn servers() -> Result<Self, Failure> {
        let mut broker = rabbit_options()?;
        let redis =
            RedisOptions::from_env().map_err(|e| Failure::new(ExitCode::Usage, e, "Set one of the two, and let it be readable."))?;
        let mut redis = redis.ok_or_else(|| missing("Redis", REDIS_URL, "redis://HOST:6379/0"))?;
        // Begins as a fleet's own names do, so that the rights of a fleet's account reach it.
        let drawn = format!("bench-{:08x}", rand::rng().random::<u32>());
        let prefix = format!("{}.{drawn}", broker.prefix);
        broker.prefix.clone_from(&prefix);
        broker.connection_name = "kernelopt bench".into();
        let keys = format!("{}:{drawn}", redis.prefix);
        redis.prefix.clone_from(&keys);
        let broker_version = rabbit::version(&broker).await;
        let frontier = RedisFrontier::open(redis).await?;
        let redis_version = frontier.version().await?;
        let broker = Arc::new(RabbitBroker::start(broker)?);
        Ok(Self::Servers { broker, broker_version, frontier: Arc::new(frontier), redis_version, prefix, keys })
    }

    /// The broker, as a coordinator uses it.
    pub fn broker(&self) -> Arc<dyn Broker> {
        match self {
            Self::Servers { broker, .. } => broker.clone(),
            Self::Memory { broker, .. } => broker.clone(),
        }
    }

    /// The frontier.
    pub fn frontier(&self) -> Arc<dyn Frontier> {
        match self {
            Self::Servers { frontier, .. } => frontier.clone(),
            Self::Memory { frontier, .. } => frontier.clone(),
        }
    }

    /// Starts agents on it.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn crew(&self, count: u16) -> Result<Crew, Failure> {
        match self {
            Self::Servers { prefix, .. } => Crew::processes(count, prefix),
            Self::Memory { broker, .. } => Crew::tasks(count, broker),
        }
    }

    /// Takes away what the drill left in the servers.
    pub async fn clear(&self) {
        let Self::Servers { broker, frontier, prefix, keys, .. } = self else { return };
        if let Err(error) = broker.remove(&[class()]).await {
            eprintln!("note: queues and exchanges that begin with {prefix} are left in the broker: {error}");
        }
        if let Err(error) = frontier.remove().await {
            eprintln!("note: keys that begin with {keys}: are left in Redis: {error}");
        }
        broker.close().await;
    }
}

/// The class of all its agents.
pub fn class() -> DeviceClass {
    idle::identity("").class()
}

/// The broker that the environment names.
///
/// # Errors
/// None is named, or it cannot be read.
pub fn rabbit_options() -> Result<RabbitOptions, Failure> {
    let url = secret::from_env(BROKER_URL).map_err(|e| Failure::new(ExitCode::Usage, e, "Set one of the two, and let it be readable."))?;
    Ok(RabbitOptions::new(url.ok_or_else(|| missing("broker", BROKER_URL, "amqp://USER:PASSWORD@HOST/VHOST"))?))
}

fn missing(what: &str, variable: &str, example: &str) -> Failure {
    let remedy =
        format!("Set {variable} to {example}, or measure one process alone with --embedded; `make bench-queue` starts private servers.");
    Failure::new(ExitCode::Usage, format!("no {what} is named"), &remedy)
}
