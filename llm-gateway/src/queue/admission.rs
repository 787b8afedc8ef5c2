//! The queue and the books, for callers that wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use kernelopt_shared::exit::{ExitCode, UserError};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::choice::Asked;
use super::standing::Standing;
use super::state::{Grant, State, Waiter};
use super::{Ask, Permit, Refused, RefusedKind};
use crate::estimate::Estimator;
use crate::limit::Millis;
use crate::limit::account::When;
use crate::limit::books::Unreachable;
use crate::limit::ledger::{Denied, TicketId};
use crate::limit::shared::{RedisBooks, Reserved, SharedBooks};
use crate::limit::spent::Spent;
use crate::names::DeploymentId;
use crate::settings::Settings;

/// Longest that anything is thought to be away, so that sums of times do not overflow.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Why limits cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// The settings of Redis cannot be used.
    #[error(transparent)]
    Shared(#[from] Unreachable),
    /// What was spent cannot be read or written.
    #[error("what is spent of budgets: {0}")]
    Spent(#[from] std::io::Error),
}

impl UserError for LimitsError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Usage
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Shared(_) => "Correct [shared] in the settings.".into(),
            Self::Spent(_) => "Let the folder that `data` names be writable, and of one gateway alone.".into(),
        })
    }
}

/// For so long, in milliseconds, an account is taken for full that the shared books found so, where they know no better.
const FULL_FOR: Millis = 50;

/// Lets requests through. Clones are the same.
#[derive(Clone)]
pub struct Admission(pub(super) Arc<Core>);

/// What all requests share.
pub(super) struct Core {
    state: Mutex<State>,
    estimator: Estimator,
    /// What other gateways take part in.
    pub shared: Option<SharedBooks>,
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
        Self::with(settings, None)
    }

    /// With limits where the settings say: shared with other gateways through Redis, or this process's own, and then with what is spent of
    /// budgets in the settings' folder. A Redis that cannot be reached is no error: see [`crate::limit::shared`] for what holds meanwhile.
    ///
    /// # Errors
    /// The address of Redis or its certificates cannot be used, or the file of what is spent.
    pub fn open(settings: Arc<Settings>) -> Result<Self, LimitsError> {
        if let Some(shared) = &settings.shared {
            let books = Arc::new(RedisBooks::new(shared)?);
            let shared = SharedBooks::new(books, shared.gateways, shared.ticket);
            return Ok(Self::with(settings, Some(shared)));
        }
        let spent = settings.data.as_deref().map(Spent::open).transpose()?;
        let admission = Self::new(settings);
        if let Some(spent) = spent {
            let mut state = admission.0.lock();
            for (name, taken) in spent.marks() {
                state.books.ledger.restore(name.clone(), taken);
            }
            state.books.spent = Some(spent);
        }
        Ok(admission)
    }

    /// With books that are shared.
    pub fn with(settings: Arc<Settings>, shared: Option<SharedBooks>) -> Self {
        let sooner = Arc::new(Notify::new());
        let core = Arc::new(Core {
            state: Mutex::new(State::new(settings)),
            estimator: Estimator::default(),
            shared,
            sooner: sooner.clone(),
            origin: Instant::now(),
            gateway: rand::random(),
            tickets: AtomicU64::new(0),
        });
        tokio::spawn(wake(Arc::downgrade(&core), sooner));
        Self(core)
    }

    /// Takes over new settings. What is in flight ends by the old ones; what waits goes on waiting, by the new ones.
    pub fn reconfigure(&self, settings: Arc<Settings>) {
        self.0.change(|state, now| state.reconfigure(settings, now));
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
        let longest = core.lock().settings.queue.longest_wait;
        let deadline = core.millis(ask.deadline.min(Instant::now() + longest));
        let (mut again, mut paid, ask) = (ask.again, false, Arc::new(ask));
        loop {
            let grant = core.grant(&ask, deadline, again, paid).await?;
            let mut permit = Permit::new(core.clone(), grant, &ask);
            let Some(shared) = &core.shared else { return Ok(permit) };
            match permit.reserve(shared).await {
                Reserved::Taken(place) => {
                    permit.shared(place);
                    return Ok(permit);
                }
                Reserved::Denied(denied) => core.denied(permit, &denied)?,
                Reserved::Closed(wait) => {
                    let what = "the shared limits cannot be reached, and a budget is spent only under them".into();
                    return Err(Refused { kind: RefusedKind::LimitsDown, retry_after: Some(wait), what });
                }
            }
            // It has had its turn, and paid for it.
            (again, paid) = (true, true);
        }
    }

    /// Writes down what was settled, for the end of the process: into the shared books, for which it waits no longer than this, or the file. True
    /// where all is there.
    pub async fn flush(&self, within: Duration) -> bool {
        self.0.lock().books.save();
        match &self.0.shared {
            Some(shared) => shared.flush(within).await,
            None => true,
        }
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

    /// Whether the books of all gateways could be reached when they were last needed; true where this one keeps its own.
    pub fn store_is_up(&self) -> bool {
        self.0.shared.as_ref().is_none_or(SharedBooks::is_up)
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

    /// The shared books have denied what ours have not: what they say holds here for a while, so that the queue keeps its order before it.
    fn denied(&self, permit: Permit, denied: &Denied) -> Result<(), Refused> {
        if denied.when > When::Released {
            return Err(permit.refused(denied));
        }
        self.change(|state, now| {
            for account in &denied.accounts {
                state.books.full_until.insert(account.clone(), now + denied.at_least.max(FULL_FOR));
            }
        });
        drop(permit);
        Ok(())
    }

    /// Waits for a reservation in this process's books.
    async fn grant(&self, ask: &Arc<Ask>, deadline: Millis, again: bool, paid: bool) -> Result<Grant, Refused> {
        let ticket = TicketId { gateway: self.gateway, number: self.tickets.fetch_add(1, Ordering::Relaxed) };
        let (sender, receiver) = oneshot::channel();
        let settings = self.lock().settings.clone();
        let asked = Arc::new(Asked::resolve(ask, &settings)?);
        let waiter = Waiter { ticket, ask: ask.clone(), asked, answer: sender };
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
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).books.save();
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
