//! A task with everything that it needs at hand.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{Task, Work};
use kernelopt_shared::target::Target;
use kernelopt_shared::task::{Agent, AgentError, BuildAhead, Depth};
use tokio::time::{Instant, sleep, timeout_at};

use super::fetch::{Fetch, FetchError, Held};
use super::settings::LONGEST_RUN;

/// First and longest pause between two tries to reach the store.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Work that can begin.
#[derive(Clone, Debug)]
pub(super) enum Job {
    /// Keep the device busy.
    Nothing { busy: Duration },
    /// All else needs an agent for the bundle's model.
    Model { bundle: Arc<Held<Bundle>>, seed: u64, part: Part },
}

/// What to do with a model.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// Measure it as compiled.
    Profile,
    /// Judge a candidate.
    Evaluate { target: Arc<Target>, candidate: Box<Candidate>, depth: Depth },
    /// Compare it with the optimised files in a folder.
    CheckModel { optimized: Arc<Held<PathBuf>> },
}

/// Builds the candidates of a batch, those of one target side by side. The wall time that it took.
pub(super) fn build_together(agent: &mut dyn Agent, batch: &[Job], bundle: Digest) -> Result<Duration, AgentError> {
    let mut groups: Vec<(&Target, Vec<Candidate>)> = Vec::new();
    for job in batch {
        let Job::Model { bundle: of, part: Part::Evaluate { target, candidate, .. }, .. } = job else { continue };
        if of.digest != bundle {
            continue;
        }
        match groups.iter_mut().find(|(known, _)| **known == **target) {
            Some((_, candidates)) => candidates.push((**candidate).clone()),
            None => groups.push((target, vec![(**candidate).clone()])),
        }
    }
    // One alone is built as well by its evaluation.
    let together = groups.iter().filter(|(_, candidates)| candidates.len() > 1);
    together.map(|(target, candidates)| agent.build(target, candidates)).sum()
}

impl Job {
    /// Fetches what `task` needs. A store that cannot be reached is tried again for as long as `patience` lasts.
    pub(super) async fn fetch(task: &Task, from: &dyn Fetch, patience: Duration) -> Result<Self, FetchError> {
        let deadline = Instant::now() + patience;
        let mut pause = FIRST_PAUSE;
        loop {
            let silent = || FetchError::Unreachable(format!("no answer within {} s", patience.as_secs()));
            let got = timeout_at(deadline, Self::try_fetch(task, from)).await.unwrap_or_else(|_| Err(silent()));
            if !matches!(got, Err(FetchError::Unreachable(_))) || Instant::now() + pause >= deadline {
                return got;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn try_fetch(task: &Task, from: &dyn Fetch) -> Result<Self, FetchError> {
        let part = match &task.work {
            Work::Nothing { busy_us } => return Ok(Self::Nothing { busy: Duration::from_micros(*busy_us).min(LONGEST_RUN) }),
            Work::Profile => Part::Profile,
            Work::Evaluate { target, candidate, depth } => {
                let target = from.target(*target).await?;
                Part::Evaluate { target, candidate: Box::new(candidate.clone()), depth: *depth }
            }
            Work::CheckModel { optimized } => Part::CheckModel { optimized: from.files(*optimized).await? },
        };
        Ok(Self::Model { bundle: from.bundle(task.bundle).await?, seed: task.seed, part })
    }

    /// Begins to build its candidate, where it has one.
    pub(super) fn build_with(&self, ahead: &dyn BuildAhead) {
        if let Self::Model { part: Part::Evaluate { target, candidate, .. }, .. } = self
            && let Err(error) = ahead.begin(target, candidate)
        {
            // Its evaluation builds it then.
            tracing::warn!(%error, "a build could not be begun ahead");
        }
    }
}
