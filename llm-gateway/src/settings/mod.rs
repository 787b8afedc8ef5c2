//! What a gateway is set to: an immutable snapshot, read from TOML, replaced as a whole by a reload.

mod check;
mod error;
mod live;
mod numbers;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernelopt_shared::secret::SecretString;
use sha2::{Digest as _, Sha256};
use url::Url;

pub use self::error::SettingsError;
pub use self::live::Live;
pub use self::written::MOST_FILE_BYTES;
use crate::limit::Limits;
use crate::names::{CredentialName, DeploymentId, JobName, KeyName, ModelName, UpstreamName};
use crate::price::Price;

/// Everything that is set. References between its parts are resolved: a deployment has its upstream and credential.
#[derive(Debug)]
pub struct Settings {
    /// Where the gateway listens.
    pub listen: SocketAddr,
    /// Folder of files, batches and what was spent. None: there are no batches, and what was spent is forgotten with the process.
    pub data: Option<PathBuf>,
    /// The HTTP side.
    pub http: Http,
    /// When an attempt is repeated.
    pub retry: Retry,
    /// When a deployment is left alone.
    pub breaker: Breaker,
    /// Requests that wait.
    pub queue: Queue,
    /// Answers that are kept; none keeps nothing.
    pub cache: Option<Cache>,
    /// Limits that are shared with other gateways; none keeps them in this process.
    pub shared: Option<Shared>,
    /// Models by the name that callers use.
    pub models: BTreeMap<ModelName, Model>,
    /// Who may call.
    pub keys: BTreeMap<KeyName, Arc<Key>>,
    /// What holds for a job that is not named.
    pub any_job: Arc<Job>,
    /// Jobs with settings of their own.
    pub jobs: BTreeMap<JobName, Arc<Job>>,
    pub(crate) doors: Doors,
}

/// Keys by the SHA-256 of their secrets: looking one up tells nothing by the time that it takes.
pub(crate) type Doors = BTreeMap<[u8; 32], KeyName>;

impl Settings {
    /// The key whose secret this is.
    pub fn key_of(&self, presented: &str) -> Option<&Arc<Key>> {
        self.doors.get(&fingerprint(presented)).and_then(|name| self.keys.get(name))
    }

    /// What holds for a job.
    pub fn job(&self, name: &JobName) -> &Arc<Job> {
        self.jobs.get(name).unwrap_or(&self.any_job)
    }

    /// All ways to all models; one that serves two models comes twice.
    pub fn deployments(&self) -> impl Iterator<Item = &Arc<Deployment>> {
        self.models.values().flat_map(|model| &model.deployments)
    }
}

pub(crate) fn fingerprint(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// The HTTP side.
#[derive(Clone, Debug)]
pub struct Http {
    /// Longest body of a call; a longer one gets 413.
    pub most_body_bytes: u64,
    /// Longest file that may be uploaded for a batch.
    pub most_file_bytes: u64,
    /// A comment goes into a stream that is quiet for so long.
    pub heartbeat: Duration,
    /// Longest that the end of the process waits for calls in flight.
    pub drain: Duration,
}

/// When an attempt is repeated.
#[derive(Clone, Debug)]
pub struct Retry {
    /// Attempts at one request in all, the first included.
    pub most_attempts: u32,
    /// Wait before the second attempt where the provider gives no hint; doubles up to `longest_wait`.
    pub first_wait: Duration,
    /// Longest such wait. A provider's hint is a minimum and may be longer.
    pub longest_wait: Duration,
}

/// When a deployment is left alone.
#[derive(Clone, Debug)]
pub struct Breaker {
    /// Percentage of failed attempts over `window` that opens it.
    pub failure_percent: u32,
    /// Attempts in the window before it may open.
    pub least_attempts: u32,
    /// How far back attempts count.
    pub window: Duration,
    /// How long it stays open before it probes.
    pub open: Duration,
}

/// Requests that wait.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Requests that may wait, in all.
    pub most: usize,
    /// Requests of one job that may wait.
    pub most_per_job: usize,
    /// The deadline of a request that brings none. Official clients give up after 600 s.
    pub longest_wait: Duration,
    /// After so long a request counts as one priority higher.
    pub ageing: Duration,
}

/// Answers that are kept.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Bytes of all of them.
    pub most_bytes: u64,
    /// How long one is kept.
    pub keep: Duration,
}

/// Limits that are shared with other gateways.
#[derive(Clone, Debug)]
pub struct Shared {
    /// `redis://HOST:PORT/DB` or `rediss://...`, with user and password in it.
    pub url: SecretString,
    /// Certificates (PEM) that sign the server's; those of the system without it.
    pub ca_file: Option<PathBuf>,
    /// What all keys begin with.
    pub prefix: String,
    /// Longest that one round trip may take.
    pub deadline: Duration,
    /// How long a reservation outlives the gateway that made it.
    pub ticket: Duration,
    /// How many gateways share the limits: while Redis is away each takes this part of every rate.
    pub gateways: u32,
}

/// A model, by the name that callers use.
#[derive(Debug)]
pub struct Model {
    /// Its name.
    pub name: ModelName,
    /// The ways to it.
    pub deployments: Vec<Arc<Deployment>>,
    /// How its tokens are counted before it is asked.
    pub counting: Counting,
    /// Output tokens of a request that does not say how many it may have.
    pub output_tokens: u32,
    /// Tokens of input and output that it takes at most.
    pub context_tokens: Option<u64>,
}

/// How tokens are counted before a model is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counting {
    /// By its public vocabulary.
    Vocabulary(Vocabulary),
    /// By bytes; this many to a token, until requests have shown a better figure.
    BytesPerToken(f64),
}

/// A vocabulary that is public.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vocabulary {
    /// GPT-3.5 and GPT-4.
    Cl100kBase,
    /// GPT-4o and later.
    O200kBase,
}

/// One way to a model.
#[derive(Debug)]
pub struct Deployment {
    /// Its name, in logs and labels too.
    pub id: DeploymentId,
    /// Where.
    pub upstream: Arc<Upstream>,
    /// As whom.
    pub credential: Arc<Credential>,
    /// The upstream's name of the model.
    pub model: String,
    /// Deployments of a lower tier are taken first.
    pub tier: u32,
    /// Its part of the calls of its tier.
    pub weight: u32,
    /// Limits of this model by this credential.
    pub limits: Arc<Limits>,
    /// What it costs. None: nobody has said, and nothing is paid from a budget for it.
    pub price: Option<Price>,
}

/// The language that an upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// `/chat/completions`, as OpenAI's and most others.
    Openai,
    /// `/v1/messages`, as Anthropic's.
    Anthropic,
}

/// A provider's end point.
#[derive(Debug)]
pub struct Upstream {
    /// Its name.
    pub name: UpstreamName,
    /// Its language.
    pub dialect: Dialect,
    /// What comes before `/chat/completions` or `/v1/messages`, without a slash at its end.
    pub url: Url,
    /// The four times that bound a call.
    pub timeouts: Timeouts,
    /// Limits of all calls to it.
    pub limits: Arc<Limits>,
}

/// The four times that bound a call to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until there is a connection.
    pub connect: Duration,
    /// From the request to the first byte of the answer's body; a whole answer that is not streamed comes within `total`.
    pub first_byte: Duration,
    /// Between two pieces of a stream.
    pub idle: Duration,
    /// From the request to the answer's end.
    pub total: Duration,
}

/// A key that an upstream has given us.
#[derive(Debug)]
pub struct Credential {
    /// Its name.
    pub name: CredentialName,
    /// The key; none where the upstream asks for none.
    pub secret: Option<SecretString>,
    /// Limits of all calls by it.
    pub limits: Arc<Limits>,
}

/// What a key is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// To call models, within its limits.
    #[default]
    Models,
    /// To look at the gateway and reload it. It calls no model, so it needs no limits.
    Operate,
}

/// Who may call. Its secret is not kept.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: KeyName,
    /// What it is for.
    pub used: Use,
    /// The models that it may call; none is all.
    pub models: Option<BTreeSet<ModelName>>,
    /// The highest priority that its requests may have, and that of those that do not say: 0 goes first, 9 last.
    pub priority: u8,
    /// Its limits; one for models has at least one.
    pub limits: Arc<Limits>,
}

impl Key {
    /// True where it may call a model.
    pub fn may_call(&self, model: &ModelName) -> bool {
        self.used == Use::Models && self.models.as_ref().is_none_or(|models| models.contains(model))
    }
}

/// What holds for a job.
#[derive(Debug)]
pub struct Job {
    /// Its part of the tokens when jobs compete.
    pub weight: u32,
    /// Its limits.
    pub limits: Arc<Limits>,
}
