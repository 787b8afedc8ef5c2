//! Effects that need the network: each on its own, so that one that waits holds back no other.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use kernelopt_shared::blobs::Blobs;
use kernelopt_shared::broker::link::{CoordinatorEnd, OnUnread};
use kernelopt_shared::broker::{BrokerError, Receipt};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::frontier::Frontier;
use kernelopt_shared::message::{AgentId, Control, DeviceClass, JobId, Task};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Parts;
use super::actor::Input;
use super::asker::Asker;
use super::best_known::{self, BestKnown, Find};
use super::tally::Tally;
use crate::fleet::{Effect, Route};
use crate::job::StoredBlob;

/// Turns whose effects wait for the courier; beyond these the actor waits.
const TURNS: usize = 64;
/// Effects under way at once.
const AT_ONCE: usize = 256;
/// Blobs that are known to be stored.
const KNOWN_BLOBS: usize = 10_000;

/// Something to be done on the network.
pub(super) enum Errand {
    /// An effect of the core.
    Effect(Effect),
    /// A report is on the disk: the broker may forget it.
    Acknowledge(Box<dyn Receipt>),
    /// What is known of a placed job's kernels is asked for.
    Recall {
        /// The job.
        job: JobId,
        /// Where.
        class: DeviceClass,
        /// Fingerprints of its targets.
        kernels: Vec<Digest>,
    },
    /// A confirmed winner is offered to the frontier.
    Offer(Find),
}

/// Starts the courier; it ends when the actor does, or `stop` is cancelled.
pub(super) fn start(parts: &Parts, inputs: mpsc::Sender<Input>, epoch: u64, stop: CancellationToken) -> mpsc::Sender<Vec<Errand>> {
    let (errands, mut queue) = mpsc::channel::<Vec<Errand>>(TURNS);
    let asker = Asker::new(parts.model.clone(), inputs.clone());
    let courier = Arc::new(Courier {
        end: CoordinatorEnd::new(parts.broker.clone(), on_unread(&parts.tally)),
        blobs: parts.blobs.clone(),
        stored: Mutex::default(),
        best_known: BestKnown::start(parts.frontier.clone(), parts.blobs.clone(), parts.data.clone(), epoch, parts.tally.clone(), stop),
        frontier: parts.frontier.clone(),
        inputs,
    });
    tokio::spawn(async move {
        let (room, under_way) = (Arc::new(Semaphore::new(AT_ONCE)), TaskTracker::new());
        while let Some(turn) = queue.recv().await {
            for errand in turn {
                let errand = match errand {
                    Errand::Effect(Effect::Ask(job, question)) => {
                        asker.ask(job, *question);
                        continue;
                    }
                    Errand::Effect(Effect::Hush(job)) => {
                        asker.hush(&job);
                        continue;
                    }
                    errand => errand,
                };
                let Ok(place) = room.clone().acquire_owned().await else { return };
                let courier = courier.clone();
                under_way.spawn(async move {
                    courier.run(errand).await;
                    drop(place);
                });
            }
        }
        under_way.close();
        under_way.wait().await;
    });
    errands
}

struct Courier {
    end: CoordinatorEnd,
    blobs: Blobs,
    stored: Mutex<Stored>,
    best_known: BestKnown,
    frontier: Option<Arc<dyn Frontier>>,
    inputs: mpsc::Sender<Input>,
}

/// The last blobs that were stored.
#[derive(Default)]
struct Stored {
    known: BTreeSet<Digest>,
    order: VecDeque<Digest>,
}

impl Courier {
    async fn run(&self, errand: Errand) {
        match errand {
            Errand::Acknowledge(receipt) => drop(receipt.acknowledge().await),
            Errand::Offer(find) => self.best_known.offer(find).await,
            Errand::Effect(Effect::Send { to, task, blobs }) => self.send(to, *task, blobs).await,
            Errand::Effect(Effect::Tell(agent, control)) => self.tell(&agent, &control).await,
            Errand::Effect(Effect::TellAll(control)) => {
                if let Err(error) = self.end.broadcast(&control).await {
                    tracing::warn!(%error, "agents were not told; their next beats show it");
                }
            }
            Errand::Recall { job, class, kernels } => self.recall(job, &class, &kernels).await,
            // The actor's and the asker's own.
            Errand::Effect(
                Effect::Ask(..)
                | Effect::Hush(_)
                | Effect::Pause(_)
                | Effect::Placed(..)
                | Effect::Finish(_)
                | Effect::Confirmed { .. }
                | Effect::Stop(_),
            ) => {}
        }
    }

    /// Stores what the task refers to and sends it. One that cannot be sent goes back.
    async fn send(&self, to: Route, task: Task, blobs: Vec<StoredBlob>) {
        let (id, lease) = (task.id, task.lease);
        let sent = match self.store(blobs).await {
            Err(reason) => Err(reason),
            Ok(()) => match to {
                Route::Lane(class) => self.end.send_task(&class, &task).await.map_err(|e| e.to_string()),
                Route::Agent(agent) => self.end.control(&agent, &Control::Assigned(Box::new(task))).await.map_err(|e| e.to_string()),
            },
        };
        if let Err(reason) = sent {
            tracing::warn!(task = %id, %reason, "a task was not sent");
            // A coordinator that has ended needs no telling.
            let _ = self.inputs.send(Input::Unsent { task: id, lease, reason }).await;
        }
    }

    async fn recall(&self, job: JobId, class: &DeviceClass, kernels: &[Digest]) {
        let Some(frontier) = &self.frontier else { return };
        let known = best_known::recall(frontier.as_ref(), &self.blobs, class, kernels).await;
        // A coordinator that has ended needs no telling.
        let _ = self.inputs.send(Input::Recalled(job, known)).await;
    }

    async fn store(&self, blobs: Vec<StoredBlob>) -> Result<(), String> {
        for blob in blobs {
            if !self.lock().known.contains(&blob.digest) {
                self.blobs.put(blob.bytes).await.map_err(|e| e.to_string())?;
                self.note(blob.digest);
            }
        }
        Ok(())
    }

    fn note(&self, digest: Digest) {
        let mut stored = self.lock();
        if stored.known.insert(digest) {
            stored.order.push_back(digest);
        }
        if stored.order.len() > KNOWN_BLOBS
            && let Some(oldest) = stored.order.pop_front()
        {
            stored.known.remove(&oldest);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn tell(&self, agent: &AgentId, control: &Control) {
        match self.end.control(agent, control).await {
            Ok(()) => {}
            // It is gone, and will say so by its silence.
            Err(kernelopt_shared::broker::link::SendError::Broker(BrokerError::Unroutable(_))) => {}
            Err(error) => tracing::warn!(%agent, %error, "an agent was not told"),
        }
    }
}

/// Counts frames that cannot be read; the ends themselves tell of them.
pub(super) fn on_unread(tally: &Tally) -> OnUnread {
    let tally = tally.clone();
    Arc::new(move |unread| tally.malformed(unread.error.reason()))
}
