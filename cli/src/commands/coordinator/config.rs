//! What a coordinator is started with: command line, environment and file in one.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use kernelopt_coordinator::http::Tokens;
use kernelopt_shared::api::DEFAULT_PORT;
use kernelopt_shared::blobs::BlobOptions;
use kernelopt_shared::broker::rabbit::RabbitOptions;
use kernelopt_shared::frontier::redis::RedisOptions;
use kernelopt_shared::secret::{self, SecretString};
use serde::Deserialize;

use crate::args::coordinator::Coordinator;
use crate::config_file::{read, wrong};
use crate::failure::Failure;

/// What there is to set.
const EXAMPLE: &str = "deploy/config/coordinator.toml";
/// The broker's address, with user and password; `_FILE` behind it names a file.
const BROKER_URL: &str = "KERNELOPT_BROKER_URL";

/// Everything that was set.
pub struct Config {
    /// Where the API listens.
    pub listen: SocketAddr,
    /// Folder of the journal.
    pub data: PathBuf,
    /// Who may do what.
    pub tokens: Option<Tokens>,
    /// The broker.
    pub broker: RabbitOptions,
    /// The frontier; none keeps it in memory.
    pub redis: Option<RedisOptions>,
    /// The store.
    pub blobs: BlobOptions,
    /// Address of the gateway to language models; none asks nobody.
    pub gateway: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    listen: Option<SocketAddr>,
    data: Option<PathBuf>,
    tokens_file: Option<PathBuf>,
    broker: Broker,
    redis: Redis,
    blobs: Blobs,
    gateway: Gateway,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Broker {
    url: Option<String>,
    prefix: Option<String>,
    ca_file: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Redis {
    url: Option<String>,
    prefix: Option<String>,
    ca_file: Option<PathBuf>,
    allow_eviction: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Blobs {
    url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Gateway {
    url: Option<String>,
}

impl Config {
    /// Puts together what was set.
    ///
    /// # Errors
    /// A file cannot be read or has a word too many, or there is no broker or no folder.
    pub fn of(given: &Coordinator) -> Result<Self, Failure> {
        let written = given.config.as_deref().map(|path| read::<Written>(path, EXAMPLE)).transpose()?.unwrap_or_default();
        let in_environment = |name| secret::from_env(name).map_err(|e| wrong(e, "Set one of the two, and let it be readable."));
        let url = in_environment(BROKER_URL)?.or(written.broker.url.map(SecretString::from));
        let url = url.ok_or_else(|| wrong("no broker is named", &format!("Set {BROKER_URL} to amqps://USER:PASSWORD@HOST/VHOST.")))?;
        let mut broker = RabbitOptions::new(url);
        broker.connection_name = "kernelopt coordinator".into();
        broker.ca_file = written.broker.ca_file;
        broker.prefix = written.broker.prefix.unwrap_or(broker.prefix);
        let data = given.data.clone().or(written.data).ok_or_else(|| wrong("no folder is named", "Name one with --data."))?;
        let tokens = given.tokens_file.clone().or(written.tokens_file);
        let blobs = written.blobs.url.unwrap_or_else(|| data.join("blobs").display().to_string());
        Ok(Self {
            listen: given.listen.or(written.listen).unwrap_or_else(|| (Ipv4Addr::LOCALHOST, DEFAULT_PORT).into()),
            tokens: tokens.map(|path| Tokens::read(&path)).transpose()?,
            broker,
            redis: redis(written.redis)?,
            blobs: BlobOptions::new(blobs),
            gateway: written.gateway.url,
            data,
        })
    }
}

fn redis(written: Redis) -> Result<Option<RedisOptions>, Failure> {
    let in_environment = RedisOptions::from_env().map_err(|e| wrong(e, "Set one of the two, and let it be readable."))?;
    let Some(mut options) = in_environment.or_else(|| written.url.map(RedisOptions::new)) else { return Ok(None) };
    options.prefix = written.prefix.unwrap_or(options.prefix);
    options.ca_file = options.ca_file.or(written.ca_file);
    options.allow_eviction |= written.allow_eviction;
    Ok(Some(options))
}
