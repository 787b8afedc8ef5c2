//! Commands that ask a coordinator.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kernelopt_shared::api::{
    DrillTasks, JobName, MaxCandidates, MaxTokens, ModelName, PageSize, Priority, ProposerName, Reason, Seed, Weight,
};
use kernelopt_shared::language_model::NanoUsd;
use kernelopt_shared::message::{DeviceClass, HostName, JobId, NameError};

/// Which coordinator, and how it is shown.
#[derive(Debug, Args)]
pub struct Remote {
    /// The coordinator's address.
    #[arg(long, env = "KERNELOPT_SERVER", default_value = "http://127.0.0.1:7117", value_name = "URL")]
    pub server: String,
    /// File with the token; without one it is that of KERNELOPT_TOKEN, or of the file KERNELOPT_TOKEN_FILE.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// As JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `submit`.
#[derive(Debug, Args)]
pub struct Submit {
    /// A bundle made by `python -m kernelopt capture`.
    pub bundle: PathBuf,
    /// Class of the devices to tune for; by default that of the capturing one. `kernelopt agents` lists them.
    #[arg(long, value_parser = device_class)]
    pub class: Option<DeviceClass>,
    /// Time that the job may be worked on: `90s`, `10m`, `2h`.
    #[arg(long, default_value = "10m", value_parser = super::parse_duration)]
    pub budget: Duration,
    /// Candidates to judge at most.
    #[arg(long, default_value_t)]
    pub max_candidates: MaxCandidates,
    /// Higher goes first: 0 to 9.
    #[arg(long, default_value_t)]
    pub priority: Priority,
    /// Fair share among jobs of one priority: 1 to 100.
    #[arg(long, default_value_t)]
    pub weight: Weight,
    /// What to call it; by default as the bundle's folder.
    #[arg(long)]
    pub name: Option<JobName>,
    /// Seed of every draw.
    #[arg(long, default_value_t)]
    pub seed: Seed,
    /// Where candidates come from, in order.
    #[arg(long, value_delimiter = ',', default_value = "schedule")]
    pub proposer: Vec<ProposerName>,
    /// The language model that `llm` asks, by the name that the coordinator's gateway knows it by.
    #[arg(long, value_name = "NAME")]
    pub model: Option<ModelName>,
    /// Tokens that it may take, prompts and answers.
    #[arg(long, value_name = "N", default_value_t)]
    pub max_tokens: MaxTokens,
    /// Money that it may cost, in US dollars: `5`, `0.25`; by default what its tokens cost.
    #[arg(long, value_name = "USD", value_parser = super::parse_dollars)]
    pub max_cost: Option<NanoUsd>,
    /// Show its progress until it ends.
    #[arg(long)]
    pub wait: bool,
    /// Fetch its outputs into this folder once it is finished.
    #[arg(short, long, requires = "wait")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub remote: Remote,
}

/// Arguments of `drill`.
#[derive(Debug, Args)]
pub struct Drill {
    /// How many tasks.
    #[arg(long, default_value_t)]
    pub tasks: DrillTasks,
    /// How long each keeps its device: `200ms`, `2s`.
    #[arg(long, default_value = "100ms", value_parser = super::parse_short_duration)]
    pub busy: Duration,
    /// Longest that one may run; by default a minute more than it takes.
    #[arg(long, value_parser = super::parse_short_duration)]
    pub limit: Option<Duration>,
    /// Class of the devices that do it; by default one that an agent has. `kernelopt agents` lists them.
    #[arg(long, value_parser = device_class)]
    pub class: Option<DeviceClass>,
    /// Higher goes first: 0 to 9.
    #[arg(long, default_value_t)]
    pub priority: Priority,
    /// Fair share among jobs of one priority: 1 to 100.
    #[arg(long, default_value_t)]
    pub weight: Weight,
    /// What to call it.
    #[arg(long, default_value = "drill")]
    pub name: JobName,
    /// Wait until it ends.
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub remote: Remote,
}

/// Arguments of `jobs`.
#[derive(Debug, Args)]
pub struct Jobs {
    /// Only those in this phase: waiting, profiling, searching, confirming, checking_model, finished, cancelled or failed.
    #[arg(long, value_parser = phase)]
    pub phase: Option<String>,
    /// At most so many, latest first.
    #[arg(long, default_value_t)]
    pub limit: PageSize,
    #[command(flatten)]
    pub remote: Remote,
}

/// Arguments of `job`.
#[derive(Debug, Args)]
pub struct Job {
    /// The job, as `submit` or `jobs` names it.
    #[arg(value_parser = job_id)]
    pub id: JobId,
    /// Show its progress until it ends.
    #[arg(short, long)]
    pub follow: bool,
    /// Fetch its outputs into this folder.
    #[arg(short, long)]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub remote: Remote,
}

/// Arguments of `cancel` and `explain`.
#[derive(Debug, Args)]
pub struct OneJob {
    /// The job, as `submit` or `jobs` names it.
    #[arg(value_parser = job_id)]
    pub id: JobId,
    #[command(flatten)]
    pub remote: Remote,
}

/// Arguments of `drain` and `readmit`.
#[derive(Debug, Args)]
pub struct OneHost {
    /// The host, as in `kernelopt agents`: an agent's name without its device.
    #[arg(value_parser = host)]
    pub host: HostName,
    #[command(flatten)]
    pub remote: Remote,
}

/// Arguments of `quarantine`.
#[derive(Debug, Args)]
pub struct Quarantine {
    #[command(flatten)]
    pub host: OneHost,
    /// What was seen; it stands beside the host until it is readmitted.
    #[arg(long)]
    pub reason: Reason,
}

/// Arguments of `frontier`.
#[derive(Debug, Args)]
pub struct Frontier {
    /// Only that of one class of devices.
    #[arg(long, value_parser = device_class)]
    pub class: Option<DeviceClass>,
    /// At most so many rows.
    #[arg(long, default_value_t)]
    pub limit: PageSize,
    #[command(flatten)]
    pub remote: Remote,
}

fn job_id(text: &str) -> Result<JobId, NameError> {
    JobId::parse(text)
}

fn host(text: &str) -> Result<HostName, NameError> {
    HostName::parse(text)
}

fn device_class(text: &str) -> Result<DeviceClass, NameError> {
    DeviceClass::parse(text)
}

/// A phase, as the API writes it.
fn phase(text: &str) -> Result<String, String> {
    let known = serde_json::from_value::<kernelopt_shared::api::Phase>(text.into());
    known.map(|_| text.to_owned()).map_err(|_| format!("{text:?} is no phase of a job"))
}
