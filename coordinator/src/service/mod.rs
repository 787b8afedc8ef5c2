//! The coordinator as it runs: the core of [`crate::fleet`] with a journal, a broker, a frontier and a store of blobs around it.
//!
//! One thread, the [`actor`], owns all state. Whatever happens comes to it as an [`Input`]; it takes what is there, appends all events in
//! one transaction, and only then lets the effects happen: reports are acknowledged, tasks sent, agents told. So one commit serves
//! many messages, and nobody hears of what is not on the disk.
//!
//! | file | noun |
//! |---|---|
//! | `actor` | the thread and its turn |
//! | `intake` | what the broker brings, as inputs |
//! | `courier` | effects that need the network |
//! | `library` | bundles and searches as they are opened |
//! | `best_known` | the frontier, kept up with the journal |
//! | `local` | one job in one process |
//! | `cluster` | a coordinator of a fleet, with its API and metrics |
//! | `gauges`, `tally` | what is counted |
//! | `desk`, `views` | the coordinator as its HTTP API sees it |
//! | `asker` | questions to a language model, in a room of their own |
//! | `handle` | questions and orders from other tasks of this process |

pub mod actor;
mod asker;
mod best_known;
pub mod cluster;
mod courier;
pub mod desk;
mod gauges;
mod handle;
mod intake;
mod library;
pub mod local;
mod tally;
mod views;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use kernelopt_shared::blobs::Blobs;
use kernelopt_shared::broker::{Broker, BrokerError};
use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::frontier::Frontier;
use kernelopt_shared::language_model::LanguageModel;
use kernelopt_shared::message::JobId;
use kernelopt_shared::result::TuneResult;
use kernelopt_shared::task::AgentError;
use kernelopt_shared::telemetry::TelemetryError;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub use actor::{Audience, Input};
pub use handle::{Gone, Handle};
pub use library::{Library, LibraryError};
pub use tally::{Metrics, Tally};

use actor::Actor;

use crate::fleet::{Fleet, Policy};
use crate::http::ServerError;
use crate::job::Job;
use crate::journal::{Draft, Entry, Journal, JournalError};
use crate::tune::{JobFolder, TuneError};

/// Inputs that wait for the actor: beyond these, whoever brings one waits.
const INPUTS: usize = 4096;

/// What a coordinator is made of.
pub struct Parts {
    /// Folder of the journal.
    pub data: PathBuf,
    /// Where outputs of a job go.
    pub outputs: Outputs,
    /// How patient it is.
    pub policy: Policy,
    /// How messages travel.
    pub broker: Arc<dyn Broker>,
    /// Where tasks' documents lie.
    pub blobs: Blobs,
    /// The best known candidates; none where nobody else could use them.
    pub frontier: Option<Arc<dyn Frontier>>,
    /// Whom proposers ask; none where there is no language model.
    pub model: Option<Arc<dyn LanguageModel>>,
    /// Who looks on.
    pub audience: Box<dyn Audience>,
    /// Who counts.
    pub tally: Tally,
}

/// Where outputs of a job go.
#[derive(Clone, Debug)]
pub enum Outputs {
    /// The one job's folder is the journal's.
    Here(Arc<JobFolder>),
    /// Each job has a folder of its name in this one, with a journal of its own events.
    Under(PathBuf),
}

/// How a coordinator ended.
#[derive(Debug)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// Its one job is finished.
    Finished(Box<TuneResult>),
    /// Its one job can do nothing more before a language model's answers are there.
    Paused,
}

/// A coordinator at work.
pub struct Running {
    /// To ask and order.
    pub handle: Handle,
    /// How it ends.
    pub ended: oneshot::Receiver<Result<Ended, ServiceError>>,
}

/// Why a coordinator ended.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are those of the parts")]
pub enum ServiceError {
    #[error(transparent)]
    Tune(#[from] TuneError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    #[error("{}: {source}", path.display())]
    Data { path: PathBuf, source: std::io::Error },
    #[error("a thread could not be started: {0}")]
    Thread(std::io::Error),
    #[error("nothing more can be done before the language model's answers are there")]
    AwaitsAnswers,
}

impl UserError for ServiceError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Tune(e) => e.exit_code(),
            Self::Journal(e) => e.exit_code(),
            Self::Library(e) => e.exit_code(),
            Self::Server(e) => e.exit_code(),
            Self::Data { .. } => ExitCode::Output,
            Self::AwaitsAnswers => ExitCode::AwaitsAnswers,
            Self::Telemetry(_) => ExitCode::Failure,
            Self::Broker(_) | Self::Thread(_) => ExitCode::Environment,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Tune(e) => e.remedy(),
            Self::Journal(e) => e.remedy(),
            Self::Library(e) => e.remedy(),
            Self::Server(e) => e.remedy(),
            Self::Data { .. } => Some("Name a folder that can be written.".into()),
            Self::Telemetry(_) => None,
            Self::AwaitsAnswers => Some("Put them beside the questions, then run the same command with --resume.".into()),
            Self::Broker(error) => Some(error.remedy().into()),
            Self::Thread(_) => Some("Look at the limits of the process (ulimit -u, the cgroup's pids.max).".into()),
        }
    }
}

/// Waits for its turn to lead, takes up what the journal holds, and works until `stop` is cancelled. `open` makes the jobs that the
/// journal holds ready to go on; new ones come with their opening events.
///
/// # Errors
/// The journal, the broker, or a bundle cannot be used.
pub async fn start(
    parts: Parts,
    open: impl AsyncFnOnce(&[Entry]) -> Result<Vec<(Job, Vec<Draft>)>, ServiceError>,
    stop: CancellationToken,
) -> Result<Running, ServiceError> {
    let leadership = tokio::select! {
        turn = parts.broker.lead() => turn?,
        () = stop.cancelled() => return Err(TuneError::from(AgentError::Stopped).into()),
    };
    let journal = Journal::open(&parts.data)?;
    let entries = Journal::reader(&parts.data)?.open()?;
    let mut fleet = Fleet::new(parts.policy.clone(), journal.epoch());
    open(&entries).await?.into_iter().for_each(|(job, drafts)| fleet.admit(job, drafts));
    fleet.restore(&entries, Instant::now());
    fleet.announce();
    let (inputs, queue) = mpsc::channel(INPUTS);
    let handle = Handle::new(inputs.clone());
    let (broker, tally) = (parts.broker.clone(), parts.tally.clone());
    let courier = courier::start(&parts, inputs.clone(), journal.epoch(), stop.clone());
    let (ended, ending) = oneshot::channel();
    let actor = Actor::new(journal, fleet, parts, courier, broker.state(), queue);
    intake::start(broker, inputs, leadership, &tally, stop).await?;
    std::thread::Builder::new().name("coordinator".into()).spawn(move || drop(ended.send(actor.run()))).map_err(ServiceError::Thread)?;
    Ok(Running { handle, ended: ending })
}

/// The name of a job that is alone.
pub fn local_job() -> JobId {
    #[expect(clippy::expect_used, reason = "a constant that the tests parse")]
    JobId::parse("local").expect("a plain word")
}
