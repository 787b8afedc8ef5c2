//! The queue and the books, for callers that wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::choice::Asked;
use super::standing::Standing;
use super::state::{Grant, State, Waiter};
use super::{Ask, Permit, Refused, RefusedKind};
use crate::estimate::Estimator;
use crate::limit::Millis;
use crate::limit::ledger::TicketId;
use crate::names::DeploymentId;
use crate::settings::Settings;

/// Longest that anything is thought to be away, so that sums of times do not overflow.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Lets requests through. Clones are the same.
#[derive(Clone)]
pub struct Admission(pub(super) Arc<Core>);

/// What all requests share.
pub(super) struct Core {
    state: Mutex<State>,
    estimator: Estimator,
    /// Something may fit earlier than was thought.
    sooner: Arc<Notify>,
    origin: Instant,
    gateway: u64,
    tickets: AtomicU64,
}

impl Admission {
    /// With limits that are this process's own. Called within a tokio runtime: a task of it lets those through who wait for time to pass, and
    /// ends with the last clone and permit.
    pub fn new(settings: Arc<Settings>) -> Self {
        let sooner = Arc::new(Notify::new());
        let core = Arc::new(Core {
            state: Mutex::new(State::new(settings)),
            estimator: Estimator::default(),
            sooner: sooner.clone(),
            origin: Instant::now(),
            gateway: rand::random(),
            tickets: AtomicU64::new(0),
        });
        tokio::spawn(wake(Arc::downgrade(&core), sooner));
        Self(core)
    }

    /// Takes over new settings; what waits or is in flight stays, by the old ones.
    pub fn reconfigure(&self, settings: Arc<Settings>) {
        self.0.change(|state, now| {
            state.reconfigure(settings);
            state.pump(now);
        });
    }

    /// Counts tokens before they are sent; learns from what is settled here.
    pub fn estimator(&self) -> &Estimator {
        &self.0.estimator
    }

    /// Waits in the fair queue until every limit of key, job, upstream, credential and deployment can be reserved at once for some deployment
    /// of the model. Dropping the future, at whatever point, leaves nothing behind.
    ///
    /// # Errors
    /// See [`RefusedKind`].
    pub async fn admit(&self, ask: Ask) -> Result<Permit, Refused> {
        let core = &self.0;
        let settings = core.lock().settings.clone();
        let asked = Arc::new(Asked::resolve(&ask, &settings)?);
        let longest = Instant::now() + settings.queue.longest_wait;
        let deadline = core.millis(ask.deadline.min(longest));
        let grant = core.grant(&asked, deadline, ask.again, false).await?;
        Ok(Permit::new(core.clone(), grant, ask))
    }

    /// Closes a deployment until then, or as long as it is closed already where that is longer; then it is probed.
    pub fn close(&self, deployment: &DeploymentId, until: Instant) {
        self.0.close(deployment, until);
    }

    /// What waits, what is in flight, what is spent.
    pub fn standing(&self) -> Standing {
        let now = self.0.now();
        Standing::of(&self.0.lock(), now)
    }
}

impl Core {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock can only be that of an allocation; the books are whole at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> Millis {
        self.millis(Instant::now())
    }

    fn millis(&self, at: Instant) -> Millis {
        let since = at.saturating_duration_since(self.origin).min(FAR);
        Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
    }

    pub fn estimator(&self) -> &Estimator {
        &self.estimator
    }

    /// Does something under the lock, and sees to it that whoever waits is woken in time.
    pub fn change<T>(&self, change: impl FnOnce(&mut State, Millis) -> T) -> T {
        let now = self.now();
        let mut state = self.lock();
        let before = state.wake_at;
        let changed = change(&mut state, now);
        let sooner = state.wake_at < before;
        drop(state);
        if sooner {
            self.sooner.notify_one();
        }
        changed
    }

    /// Waits for a reservation in this process's books.
    async fn grant(self: &Arc<Self>, asked: &Arc<Asked>, deadline: Millis, again: bool, paid: bool) -> Result<Grant, Refused> {
        let ticket = TicketId { gateway: self.gateway, number: self.tickets.fetch_add(1, Ordering::Relaxed) };
        let (sender, receiver) = oneshot::channel();
        let waiter = Waiter { ticket, asked: asked.clone(), answer: sender };
        // Made before the request is in the queue: from here a drop takes it out again.
        let mut waiting = Waiting { core: self, ticket, receiver };
        let at_once = self.change(|state, now| state.enter(waiter, deadline, again, paid, now));
        if let Some(grant) = at_once? {
            return Ok(grant);
        }
        let heard = (&mut waiting.receiver).await;
        heard.unwrap_or_else(|_| Err(Refused { kind: RefusedKind::Deadline, retry_after: None, what: "the gateway ends".into() }))
    }

    pub fn close(&self, deployment: &DeploymentId, until: Instant) {
        let until = self.millis(until);
        self.change(|state, now| {
            let gate = state.books.gates.entry(deployment.clone()).or_default();
            if gate.close(until, now) {
                tracing::warn!(%deployment, for_ms = until.saturating_sub(now), "the deployment takes no calls for a while");
            }
            state.pump(now);
        });
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.sooner.notify_one();
    }
}

/// A request that may be in the queue. Dropped, it is not; and what was reserved for it meanwhile is given back.
struct Waiting<'a> {
    core: &'a Core,
    ticket: TicketId,
    receiver: oneshot::Receiver<Result<Grant, Refused>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.core.change(|state, now| {
            let waited = state.leave(self.ticket);
            // Under the lock nobody grants: what is not here now never comes.
            let granted = self.receiver.try_recv().ok().and_then(Result::ok);
            let freed = granted.is_some();
            if let Some(grant) = granted {
                state.books.cancel(grant, now);
            }
            // Others may have waited for this one's turn.
            if waited || freed {
                state.pump(now);
            }
        });
    }
}

/// Lets those through who wait for time to pass.
async fn wake(core: Weak<Core>, sooner: Arc<Notify>) {
    loop {
        let at = match core.upgrade() {
            Some(core) => {
                core.change(|state, now| {
                    if state.wake_at <= now {
                        state.pump(now);
                    }
                });
                let wake_at = core.lock().wake_at;
                core.origin + Duration::from_millis(wake_at).min(FAR)
            }
            None => return,
        };
        tokio::select! {
            () = sooner.notified() => {}
            () = sleep_until(at) => {}
        }
    }
}
