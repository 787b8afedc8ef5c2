//! One job in one process: the same coordinator, with a broker and blobs in memory and its journal in the output folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernelopt_shared::blobs::Blobs;
use kernelopt_shared::broker::Broker;
use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::exit::{ExitCode, UserError as _};
use kernelopt_shared::language_model::LanguageModel;
use kernelopt_shared::result::TuneResult;
use kernelopt_shared::task::AgentError;
use tokio_util::sync::CancellationToken;

use super::{Audience, Ended, Outputs, Parts, ServiceError, Tally, local_job, start};
use crate::fleet::Policy;
use crate::job::{Job, KernelSearch, Terms};
use crate::journal::{Draft, Entry, Event, Journal};
use crate::search::plan::Step;
use crate::search::proposer::Proposer;
use crate::search::state::Ended::Failed;
use crate::search::state::JobState;
use crate::tune::{FolderError, JobFolder, Observer, TuneError};

/// What to tune and how far.
pub struct Options {
    /// The bundle.
    pub bundle: PathBuf,
    /// The output folder.
    pub out: PathBuf,
    /// What is asked for; the seed of a job that goes on is its own.
    pub terms: Terms,
    /// Where candidates come from.
    pub proposers: Vec<Box<dyn Proposer>>,
    /// Whom the proposers ask; none where there is no language model.
    pub model: Option<Arc<dyn LanguageModel>>,
    /// Go on with the job that is in the output folder.
    pub resume: bool,
}

/// Works on the job until its outputs are written, or `stop` is cancelled; everything journaled stays. Agents of `broker` do the work, and
/// find what it refers to in `blobs`.
///
/// # Errors
/// The bundle or the folder cannot be used, or the agent cannot do its work. [`AgentError::Stopped`] where it was stopped.
pub async fn tune(
    options: Options,
    broker: Arc<dyn Broker>,
    blobs: Blobs,
    observer: Box<dyn Observer>,
    stop: CancellationToken,
) -> Result<TuneResult, ServiceError> {
    let out = options.out.clone();
    let is_new = !out.exists();
    let done = work(options, broker, blobs, observer, stop).await;
    if let (true, Err(error)) = (is_new, &done)
        && !matches!(error.exit_code(), ExitCode::Interrupted | ExitCode::AwaitsAnswers)
    {
        leave_nothing(&out);
    }
    done
}

/// Takes away a folder in which nothing was learnt: the next try need not go on with it.
fn leave_nothing(out: &Path) {
    let learnt = Journal::read_only(out).is_ok_and(|entries| entries.iter().any(|entry| matches!(entry.event, Event::Profiled { .. })));
    if !learnt {
        // What cannot be taken away is refused, or gone on with, next time.
        let _ = std::fs::remove_dir_all(out);
    }
}

async fn work(
    options: Options,
    broker: Arc<dyn Broker>,
    blobs: Blobs,
    mut observer: Box<dyn Observer>,
    stop: CancellationToken,
) -> Result<TuneResult, ServiceError> {
    let folder = Arc::new(JobFolder::take(&options.out).map_err(TuneError::from)?);
    let model = options.model.clone();
    let (job, drafts) = job(options, &folder, observer.as_mut())?;
    if job.plan().is_over() {
        return over(&job, &folder);
    }
    let parts = Parts {
        data: folder.root().to_owned(),
        outputs: Outputs::Here(folder),
        policy: Policy { embedded: true, ..Policy::default() },
        broker,
        blobs,
        frontier: None,
        model,
        audience: Box::new(Watching { observer, state: JobState::default() }),
        tally: Tally::default(),
    };
    let running = start(parts, async move |_| Ok(vec![(job, drafts)]), stop.clone()).await?;
    match running.ended.await {
        Ok(Ok(Ended::Finished(result))) => Ok(*result),
        Ok(Ok(Ended::Paused)) => Err(ServiceError::AwaitsAnswers),
        Ok(Err(error)) => Err(error),
        // A thread that is gone without a word was stopped with its process.
        Ok(Ok(Ended::Stopped)) | Err(_) => Err(TuneError::from(AgentError::Stopped).into()),
    }
}

/// What a job left that ended before: its outputs, written again.
fn over(job: &Job, folder: &JobFolder) -> Result<TuneResult, ServiceError> {
    let none = || TuneError::from(AgentError::Internal("the journal holds no search".into()));
    let search = job.search().ok_or_else(none)?;
    if let Some(Failed { reason }) = &search.state().ended {
        return Err(TuneError::from(AgentError::Internal(reason.clone())).into());
    }
    search.write_model(folder)?;
    Ok(search.write_summaries(folder, &Journal::read_only(folder.root())?, false)?)
}

/// A new job, or the one in the folder, whose events the observer sees again.
fn job(options: Options, folder: &JobFolder, observer: &mut dyn Observer) -> Result<(Job, Vec<Draft>), ServiceError> {
    let Options { bundle: path, out, mut terms, proposers, resume, .. } = options;
    let entries = Journal::open(folder.root()).and_then(|_| Journal::read_only(folder.root()))?;
    let bundle = Bundle::open(&path).map_err(TuneError::from)?;
    let mut drafts = Vec::new();
    let first = entries.iter().find(|entry| entry.job.is_some()).map(|entry| &entry.event);
    let refused = match first {
        None => {
            let search = KernelSearch::open(&path, None, &terms, proposers)?;
            return Ok((Job::open(local_job(), terms, Box::new(search), &mut drafts), drafts));
        }
        Some(Event::Opened { bundle: found, terms: of_job, .. }) => {
            terms.seed = of_job.seed;
            (*found != bundle.digest).then(|| FolderError::OtherBundle { path: out.clone(), found: *found, expected: bundle.digest })
        }
        Some(_) => Some(FolderError::Foreign { path: out.clone() }),
    };
    if let Some(refused) = refused.or_else(|| (!resume).then_some(FolderError::HasJob { path: out })) {
        return Err(TuneError::from(refused).into());
    }
    let search = KernelSearch::open(&path, None, &terms, proposers)?;
    let mut state = JobState::default();
    for entry in &entries {
        state.apply(entry.active, &entry.event);
        observer.event(entry, &state);
    }
    Ok((Job::resume(local_job(), terms, Box::new(search), &entries), drafts))
}

/// Passes on what happens.
struct Watching {
    observer: Box<dyn Observer>,
    state: JobState,
}

impl Audience for Watching {
    fn step(&mut self, _job: &kernelopt_shared::message::JobId, step: &Step) {
        self.observer.step(step);
    }

    fn event(&mut self, entry: &Entry, job: Option<&Job>) {
        match job.and_then(Job::search) {
            Some(search) => self.observer.event(entry, search.state()),
            None => self.observer.event(entry, &self.state),
        }
    }
}
