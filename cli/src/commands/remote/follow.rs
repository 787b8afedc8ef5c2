//! Following a remote job: its journal is folded here exactly as the coordinator folds it, so that what is shown is what is shown of a
//! local job.

use std::time::{Duration, Instant};

use kernelopt_coordinator::journal::Entry;
use kernelopt_coordinator::search::plan::Limits;
use kernelopt_coordinator::search::state::JobState;
use kernelopt_coordinator::tune::Observer;
use kernelopt_shared::api::{EventView, JobView};
use kernelopt_shared::exit::ExitCode;
use kernelopt_shared::message::JobId;

use crate::client::{Client, ClientError, Frame};
use crate::failure::Failure;
use crate::progress::Progress;

/// How long a coordinator may be away before nobody waits for it: longer than it takes to start again.
const AWAY: Duration = Duration::from_secs(300);
/// First pause before the stream is asked for again; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Shows a job's progress until it is over. Ctrl-C ends the showing, not the job.
pub async fn until_over(client: &Client, id: &JobId) -> Result<(), Failure> {
    let job = client.job(id).await?;
    let mut follower = Follower::new(&job);
    let ended = tokio::select! {
        ended = follower.follow(client) => ended.map_err(Failure::from),
        _ = tokio::signal::ctrl_c() => {
            let remedy = format!("The job goes on. kernelopt job {id} --follow shows it again, kernelopt cancel {id} ends it.");
            Err(Failure::new(ExitCode::Interrupted, "no longer following", &remedy))
        }
    };
    follower.progress.end();
    ended
}

/// What is known of a job here.
struct Follower {
    id: JobId,
    progress: Progress,
    state: JobState,
    /// Number of the last event that was taken.
    last: u64,
    /// Number of the last event of before; up to there the past is caught up with.
    past: u64,
    /// The past, until it is whole.
    caught: Vec<Entry>,
    over: bool,
    /// When the coordinator gave its last sign of life.
    heard: Instant,
}

impl Follower {
    fn new(job: &JobView) -> Self {
        let limits = Limits { budget: Duration::from_secs(job.budget.seconds), max_candidates: job.budget.max_candidates };
        let (progress, state) = (Progress::new(&limits), JobState::default());
        Self { id: job.id.clone(), progress, state, last: 0, past: job.last_event, caught: Vec::new(), over: false, heard: Instant::now() }
    }

    /// Reads the stream, and reads it again from where it broke off, until the job is over.
    async fn follow(&mut self, client: &Client) -> Result<(), ClientError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let before = self.heard;
            match self.read(client).await {
                Ok(()) if self.over => return Ok(()),
                Ok(()) => {}
                Err(error) if !error.may_pass() || self.heard.elapsed() > AWAY => return Err(error),
                Err(error) => self.progress.note(&format!("{error}; trying again")),
            }
            pause = if self.heard > before { FIRST_PAUSE } else { (2 * pause).min(LONGEST_PAUSE) };
            tokio::time::sleep(pause).await;
        }
    }

    async fn read(&mut self, client: &Client) -> Result<(), ClientError> {
        let mut events = client.events(&self.id, self.last).await?;
        while let Some(frame) = events.next().await? {
            self.heard = Instant::now();
            match frame {
                Frame::Event(event) => self.take(&event),
                Frame::Job(row) => {
                    self.over = row.phase.is_over();
                    self.progress.job(&row);
                }
                Frame::Problem(problem) => return Err(ClientError::Refused(Box::new(problem))),
                Frame::Other => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, event: &EventView) {
        if event.seq <= self.last {
            return;
        }
        self.last = event.seq;
        if let Some(entry) = entry_of(event) {
            self.state.apply(entry.active, &entry.event);
            if event.seq <= self.past {
                self.caught.push(entry);
            } else {
                self.catch_up();
                self.progress.event(&entry, &self.state);
            }
        }
        if self.last >= self.past {
            self.catch_up();
        }
    }

    /// Shows the past at once, as a local job does when it goes on: what was judged then does not count for the rate now.
    fn catch_up(&mut self) {
        for entry in std::mem::take(&mut self.caught) {
            self.progress.event(&entry, &self.state);
        }
    }
}

/// As it stands in the journal; `None` for kinds that only a newer program knows.
fn entry_of(event: &EventView) -> Option<Entry> {
    match serde_json::from_value(event.body.clone()) {
        Ok(decoded) => {
            let (seq, job) = (i64::try_from(event.seq).ok()?, Some(event.job.clone()));
            Some(Entry { seq, job, active: Duration::from_millis(event.active_ms), event: decoded })
        }
        Err(error) => {
            tracing::debug!(seq = event.seq, kind = event.kind, %error, "passed over");
            None
        }
    }
}
