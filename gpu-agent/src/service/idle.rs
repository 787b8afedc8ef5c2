//! A device that can do nothing but pass time: what a queue costs is measured with it, on hosts without compiler, Python or GPU.

use std::sync::Arc;

use async_trait::async_trait;
use kernelopt_shared::bundle::{Bundle, Manifest};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{DeviceIdentity, DeviceKind};
use kernelopt_shared::stop::Stop;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::{Agent, AgentError};

use super::Served;
use super::canary::Canary;
use super::fetch::{Fetch, FetchError, Held};
use super::workshop::Workshop;

/// What it says to any other work.
const WORDS: &str = "this device only passes time";

/// A device of its own for each `name`. All are of one class.
///
/// # Errors
/// As [`Canary::cpu`].
pub fn device(name: &str) -> Result<Served, serde_json::Error> {
    let workshop = IdleWorkshop { canary: Canary::cpu()? };
    Ok(Served { name: "idle".into(), identity: identity(name), workshop: Arc::new(workshop) })
}

/// Which device the one of this name is.
pub fn identity(name: &str) -> DeviceIdentity {
    DeviceIdentity {
        kind: DeviceKind::Cpu,
        uuid: format!("IDLE-{name}"),
        product: "Idle".into(),
        memory_bytes: 0,
        architecture: "none".into(),
        partition: None,
        driver: String::new(),
        threads: 0,
    }
}

/// Makes no agents: a drill's tasks need none.
struct IdleWorkshop {
    canary: Canary,
}

impl Workshop for IdleWorkshop {
    fn agent(&self, _manifest: &Manifest, _stop: &Stop) -> Result<Box<dyn Agent>, AgentError> {
        Err(AgentError::Environment { what: WORDS.into(), remedy: "Give it drills only.".into() })
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }
}

/// A store in which nothing is: a drill's tasks need nothing.
pub struct NoStore;

#[async_trait]
impl Fetch for NoStore {
    async fn bundle(&self, _blob: Digest) -> Result<Arc<Held<Bundle>>, FetchError> {
        Err(FetchError::Unusable(WORDS.into()))
    }

    async fn target(&self, _blob: Digest) -> Result<Arc<Target>, FetchError> {
        Err(FetchError::Unusable(WORDS.into()))
    }

    async fn files(&self, _blob: Digest) -> Result<Arc<Held<std::path::PathBuf>>, FetchError> {
        Err(FetchError::Unusable(WORDS.into()))
    }
}
