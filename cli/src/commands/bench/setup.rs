//! A coordinator with its agents, and drills for it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernelopt_coordinator::fleet::{Fleet, Policy};
use kernelopt_coordinator::job::{Drill, Job, PRIORITY, Terms, WEIGHT};
use kernelopt_coordinator::service::{self, Ended, Handle, Metrics, Outputs, Parts, ServiceError, Tally};
use kernelopt_shared::blobs::{BlobOptions, Blobs};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::exit::ExitCode;
use kernelopt_shared::frontier::{Frontier, FrontierError, Offer};
use kernelopt_shared::language_model::NanoUsd;
use kernelopt_shared::message::JobId;
use kernelopt_shared::telemetry::Registry;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::crew::Crew;
use super::host::processor_time;
use super::stage::{Stage, class};
use super::watch::{Seen, Watch};
use crate::failure::Failure;

/// For all agents to be heard of.
const ARRIVAL: Duration = Duration::from_secs(60);
/// For anything at all to happen, beside the length of a task.
const SILENCE: Duration = Duration::from_secs(60);
/// Offers to the frontier under way at once.
const OFFERS: usize = 64;
/// Kernels that are offered for, in turns.
const KERNELS: u64 = 1000;

/// At work until dropped.
pub struct Setup {
    handle: Handle,
    ended: oneshot::Receiver<Result<Ended, ServiceError>>,
    seen: mpsc::Receiver<Seen>,
    frontier: Arc<dyn Frontier>,
    crew: Crew,
    stop: DropGuard,
}

/// What a drill took.
pub struct Course {
    /// From its submission until its last task was done, on the disk, and its last offer answered.
    pub elapsed: Duration,
    /// Of each task: from when it was given out until work on it was heard to begin.
    pub dispatch: Vec<Duration>,
    /// Of each offer: until it was answered.
    pub offers: Vec<Duration>,
    /// Times that a task was given out, beyond one for each.
    pub again: u64,
    /// Processor time of this process.
    pub processor: Duration,
}

impl Setup {
    /// Starts both on a stage, with the journal in `folder`; drills have at most `most` tasks.
    ///
    /// # Errors
    /// A part does not start, or is not heard of.
    pub async fn open(stage: &Stage, folder: &Path, agents: u16, most: u64) -> Result<Self, Failure> {
        let blobs = folder.join("blobs").display().to_string();
        let metrics = Metrics::new(&Registry::new()).map_err(ServiceError::from)?;
        let (tells, seen) = mpsc::channel(usize::try_from(3 * most).unwrap_or(usize::MAX));
        let parts = Parts {
            data: folder.to_owned(),
            outputs: Outputs::Under(folder.join("jobs")),
            policy: Policy::default(),
            broker: stage.broker(),
            blobs: Blobs::open(&BlobOptions::new(blobs))?,
            frontier: Some(stage.frontier()),
            audience: Box::new(Watch(tells)),
            model: None,
            tally: Tally::of(Arc::new(metrics)),
        };
        let stop = CancellationToken::new();
        let ending = stop.clone().drop_guard();
        let running = service::start(parts, async |_| Ok(Vec::new()), stop).await?;
        let crew = stage.crew(agents)?;
        let mut setup = Self { handle: running.handle, ended: running.ended, seen, frontier: stage.frontier(), crew, stop: ending };
        timeout(ARRIVAL, setup.all_here(agents)).await.map_err(|_| broken("not all agents were heard of"))??;
        Ok(setup)
    }

    async fn all_here(&mut self, agents: u16) -> Result<(), Failure> {
        let count = |fleet: &mut Fleet, _: Instant| fleet.roster().working(&class()).count();
        while self.handle.ask(count).await.map_err(broken)? < usize::from(agents) {
            if !self.crew.is_whole() {
                return Err(broken("an agent ended"));
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Has `tasks` tasks of length `busy` done. Each that is done is an offer to the frontier besides.
    ///
    /// # Errors
    /// The coordinator or an agent ended, the frontier takes no offers, or nothing happens any more.
    pub async fn drill(&mut self, name: &str, tasks: u64, busy: Duration) -> Result<Course, Failure> {
        let id = JobId::parse(name).map_err(broken)?;
        let (processor, started) = (processor_time(), Instant::now());
        let job = id.clone();
        let admit = move |fleet: &mut Fleet, _: Instant| {
            let mut drafts = Vec::new();
            let job = Job::open(job, terms(), Box::new(Drill::new(tasks, busy)), &mut drafts);
            fleet.admit(job, drafts);
        };
        self.handle.ask(admit).await.map_err(broken)?;
        let (mut dispatch, mut offers, mut granted, mut over) = (Vec::new(), Offers::default(), 0, false);
        while !over || (dispatch.len() as u64) < tasks {
            let seen = tokio::select! {
                seen = timeout(SILENCE + busy, self.seen.recv()) => seen.map_err(|_| broken("nothing has happened for a minute"))?,
                ended = &mut self.ended => return Err(how_it_ended(ended)),
            };
            match seen {
                Some(Seen::Granted) => granted += 1,
                Some(Seen::Over(job)) => over |= job == id,
                Some(Seen::Done(queued)) => {
                    dispatch.push(queued);
                    offers.make(&self.frontier, offer(&id, dispatch.len() as u64)).await?;
                }
                None => return Err(broken("the coordinator ended")),
            }
        }
        let offers = offers.all().await?;
        let again = (granted as u64).saturating_sub(tasks);
        Ok(Course { elapsed: started.elapsed(), dispatch, offers, again, processor: processor_time().saturating_sub(processor) })
    }

    /// Ends both in good order.
    pub async fn close(self) {
        self.crew.leave().await;
        drop(self.stop);
        // How it ended changes nothing that was measured.
        let _ = timeout(SILENCE, self.ended).await;
    }
}

/// Offers under way, and how long each took.
#[derive(Default)]
struct Offers {
    under_way: JoinSet<Result<Duration, FrontierError>>,
    took: Vec<Duration>,
}

impl Offers {
    async fn make(&mut self, frontier: &Arc<dyn Frontier>, offer: Offer) -> Result<(), Failure> {
        if self.under_way.len() >= OFFERS {
            self.one().await?;
        }
        let frontier = frontier.clone();
        self.under_way.spawn(async move {
            let started = Instant::now();
            frontier.offer(&offer).await.map(|_| started.elapsed())
        });
        Ok(())
    }

    async fn one(&mut self) -> Result<(), Failure> {
        if let Some(done) = self.under_way.join_next().await {
            self.took.push(done.map_err(broken)??);
        }
        Ok(())
    }

    async fn all(mut self) -> Result<Vec<Duration>, Failure> {
        while !self.under_way.is_empty() {
            self.one().await?;
        }
        Ok(self.took)
    }
}

/// An offer that is better than all before it.
fn offer(job: &JobId, number: u64) -> Offer {
    let candidate = Digest::of([number.to_le_bytes().as_slice()]);
    let fingerprint = Digest::of([(number % KERNELS).to_le_bytes().as_slice()]);
    let (time_ns, baseline_ns) = (u64::from(u32::MAX).saturating_sub(number), u64::from(u32::MAX));
    Offer { fingerprint, class: class(), candidate, document: candidate, time_ns, baseline_ns, job: job.clone(), epoch: 1 }
}

fn terms() -> Terms {
    Terms {
        name: String::new(),
        class: Some(class()),
        budget_ms: u64::from(u32::MAX),
        max_candidates: 0,
        seed: 0,
        proposers: Vec::new(),
        priority: PRIORITY,
        weight: WEIGHT,
        model: String::new(),
        max_tokens: 0,
        max_cost: NanoUsd::ZERO,
    }
}

fn how_it_ended(ended: Result<Result<Ended, ServiceError>, oneshot::error::RecvError>) -> Failure {
    match ended {
        Ok(Err(error)) => error.into(),
        Ok(Ok(_)) | Err(_) => broken("the coordinator ended"),
    }
}

fn broken(what: impl std::fmt::Display) -> Failure {
    Failure::new(ExitCode::Failure, format!("the drill was not done: {what}"), "Run it again with -v, and look at the servers' logs.")
}
