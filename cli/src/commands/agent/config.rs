//! What an agent is started with: command line, environment and file in one.

use std::net::SocketAddr;
use std::path::PathBuf;

use kernelopt_gpu_agent::service::discover::Choice;
use kernelopt_gpu_agent::service::identity::host_name;
use kernelopt_shared::blobs::BlobOptions;
use kernelopt_shared::broker::rabbit::RabbitOptions;
use kernelopt_shared::secret::{self, SecretError, SecretString};
use serde::Deserialize;

use crate::args::agent::{Agent, parse_choice};
use crate::config_file::{read, wrong};
use crate::failure::Failure;

/// What there is to set.
const EXAMPLE: &str = "deploy/config/agent.toml";

/// The broker's address, with user and password; `_FILE` behind it names a file.
const BROKER_URL: &str = "KERNELOPT_BROKER_URL";
/// The token of a coordinator that blobs come from.
const TOKEN: &str = "KERNELOPT_TOKEN";
/// Most bytes that the cache of blobs may hold, where the file does not say.
const CACHE_BYTES: u64 = 64 << 30;

/// Everything that was set.
#[derive(Debug)]
pub struct Config {
    /// Name of the process.
    pub name: String,
    /// Devices that serve.
    pub choice: Choice,
    /// Also those that others use.
    pub permit_shared: bool,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// The broker.
    pub broker: RabbitOptions,
    /// The store.
    pub blobs: BlobOptions,
    /// Most bytes of its cache.
    pub cache_bytes: u64,
}

/// The file. A word that it does not know is an error: it would be a setting that has no effect.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    name: Option<String>,
    device: Option<String>,
    permit_shared_gpu: bool,
    metrics: Option<SocketAddr>,
    broker: Broker,
    blobs: Blobs,
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
struct Blobs {
    url: Option<String>,
    cache_bytes: Option<u64>,
}

impl Config {
    /// Puts together what was set.
    ///
    /// # Errors
    /// The file cannot be read or has a word too many, a secret cannot be read, or there is no broker or no store.
    pub fn of(given: &Agent) -> Result<Self, Failure> {
        Self::from(given, &|name| secret::from_env(name))
    }

    fn from(given: &Agent, secret: &dyn Fn(&str) -> Result<Option<SecretString>, SecretError>) -> Result<Self, Failure> {
        let written = given.config.as_deref().map(|path| read::<Written>(path, EXAMPLE)).transpose()?.unwrap_or_default();
        let in_environment = |name| secret(name).map_err(|error| wrong(error, "Set one of the two, and let it be readable."));
        let choice = written.device.as_deref().map(parse_choice).transpose();
        let choice = choice.map_err(|error| wrong(format!("device: {error}"), "Correct the file."))?;
        let url = given.broker.clone().or(in_environment(BROKER_URL)?).or(written.broker.url.map(SecretString::from));
        let url = url.ok_or_else(|| wrong("no broker is named", &format!("Set {BROKER_URL} to amqps://USER:PASSWORD@HOST/VHOST.")))?;
        let store = given.blobs.clone().or(written.blobs.url);
        let store =
            store.ok_or_else(|| wrong("no store of blobs is named", "Name the coordinator's: --blobs http://HOST:7117/v1/blobs"))?;
        let name = given.name.clone().or(written.name).unwrap_or_else(host_name);
        let mut broker = RabbitOptions::new(url);
        broker.connection_name = format!("kernelopt agent {name}");
        broker.ca_file = written.broker.ca_file;
        if let Some(prefix) = written.broker.prefix {
            broker.prefix = prefix;
        }
        Ok(Self {
            name,
            choice: given.device.or(choice).unwrap_or_default(),
            permit_shared: given.permit_shared_gpu || written.permit_shared_gpu,
            metrics: given.metrics.or(written.metrics),
            broker,
            blobs: BlobOptions { token: in_environment(TOKEN)?, ..BlobOptions::new(store) },
            cache_bytes: written.blobs.cache_bytes.unwrap_or(CACHE_BYTES),
        })
    }
}

#[cfg(test)]
mod tests {
    use kernelopt_shared::exit::ExitCode;
    use kernelopt_shared::secret::ExposeSecret as _;

    use super::*;

    fn given(config: Option<PathBuf>) -> Agent {
        Agent { broker: None, blobs: None, name: None, device: None, permit_shared_gpu: false, metrics: None, config }
    }

    fn nothing(_: &str) -> Result<Option<SecretString>, SecretError> {
        Ok(None)
    }

    fn written(text: &str) -> (tempfile::TempDir, Agent) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.toml");
        std::fs::write(&path, text).unwrap();
        (folder, given(Some(path)))
    }

    #[test]
    fn the_command_line_goes_before_the_environment_and_that_before_the_file() {
        let text = "name = 'file'\ndevice = 'cuda:1'\nmetrics = '127.0.0.1:1'\n[broker]\nurl = 'amqp://file'\nprefix = 'p'\n[blobs]\nurl = '/blobs'\n";
        let (_folder, mut agent) = written(text);
        let file = Config::from(&agent, &nothing).unwrap();
        assert_eq!((file.name.as_str(), file.choice, file.broker.uri.expose_secret()), ("file", Choice::Gpu(1), "amqp://file"));
        assert_eq!((file.broker.prefix.as_str(), file.blobs.address.as_str(), file.metrics.unwrap().port()), ("p", "/blobs", 1));
        let environment = |name: &str| Ok(Some(SecretString::from(format!("{name} set"))));
        let config = Config::from(&agent, &environment).unwrap();
        assert_eq!(config.broker.uri.expose_secret(), "KERNELOPT_BROKER_URL set");
        assert_eq!(config.blobs.token.unwrap().expose_secret(), "KERNELOPT_TOKEN set");
        agent.broker = Some("amqp://given".into());
        agent.device = Some(Choice::Cpu);
        let config = Config::from(&agent, &environment).unwrap();
        assert_eq!((config.broker.uri.expose_secret(), config.choice), ("amqp://given", Choice::Cpu));
    }

    #[test]
    fn the_files_that_are_shipped_are_understood() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/config");
        for (file, choice) in [("agent.toml", Choice::Cpu), ("agent-gpu.toml", Choice::Gpus)] {
            let broker = |name: &str| Ok((name == BROKER_URL).then(|| SecretString::from("amqp://h")));
            let config = Config::from(&given(Some(folder.join(file))), &broker).unwrap();
            assert_eq!(config.choice, choice);
            assert!(config.metrics.is_some() && config.blobs.address.ends_with("/v1/blobs"));
        }
    }

    #[test]
    fn what_has_no_effect_is_refused_and_no_secret_is_shown() {
        for (text, said) in [
            ("nmae = 'x'\n", "line 1: unknown field `nmae`"),
            ("[broker]\nurl = 'amqp://user:hunter2@h'\npassword = 'hunter2'\n", "line 3: unknown field `password`"),
            ("[broker]\nurl = ['hunter2']\n", "line 2"),
            ("device = 'tpu'\n", "write auto, cpu, cuda or cuda:N"),
            ("", "no broker is named"),
            ("[broker]\nurl = 'amqp://h'\n", "no store of blobs is named"),
        ] {
            let (_folder, agent) = written(text);
            let failure = Config::from(&agent, &nothing).unwrap_err();
            assert_eq!(failure.code(), ExitCode::Usage);
            let shown = format!("{failure:?}");
            assert!(shown.contains(said) && !shown.contains("hunter2"), "{shown}");
        }
        assert!(Config::from(&given(Some("/no/such/file".into())), &nothing).is_err());
    }
}
