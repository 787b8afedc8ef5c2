//! The device's own thread, on which everything that blocks happens: one thing at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{Lease, Reply};
use kernelopt_shared::stop::Stop;
use kernelopt_shared::task::{Agent, AgentError, BuildAhead, Evaluate};
use tokio::sync::mpsc;

use super::job::{self, Job, Part};
use super::workshop::Workshop;

/// Time between two looks for a stop while the device is kept busy with nothing.
const STOP_LOOK: Duration = Duration::from_millis(10);

/// What the thread is told to do.
pub(super) enum Order {
    /// A task's work.
    Work {
        /// Under which lease: names it in what the thread says.
        lease: Lease,
        /// The work.
        job: Job,
        /// What is built before it and together, where nothing may be built beside it.
        batch: Vec<Job>,
        /// Ends it. The agent is made with it and lives no longer.
        stop: Stop,
    },
    /// The device's test of itself.
    Canary {
        /// Of its draws.
        seed: u64,
        /// Ends it.
        stop: Stop,
    },
}

/// What the thread says.
pub(super) enum Said {
    /// The work of this lease begins.
    Began {
        /// Which.
        lease: Lease,
        /// Builds for other tasks of the same bundle beside it, where the device allows that.
        ahead: Option<(Digest, Arc<dyn BuildAhead>)>,
    },
    /// It ended.
    Ended {
        /// Which.
        lease: Lease,
        /// How.
        done: Result<Reply, AgentError>,
    },
    /// The test ended; an error says what the device got wrong.
    Sang(Result<(), String>),
}

/// Starts the thread. It ends when the orders do.
pub(super) fn start(name: &str, workshop: Arc<dyn Workshop>, says: mpsc::Sender<Said>) -> std::io::Result<mpsc::Sender<Order>> {
    let (orders, mut inbox) = mpsc::channel(1);
    let bench = move || {
        let mut bench = Bench { workshop, says, current: None };
        while let Some(order) = inbox.blocking_recv() {
            bench.obey(order);
        }
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(bench)?;
    Ok(orders)
}

/// The thread's state.
struct Bench {
    workshop: Arc<dyn Workshop>,
    says: mpsc::Sender<Said>,
    current: Option<Current>,
}

/// The agent at hand.
struct Current {
    bundle: Digest,
    agent: Box<dyn Agent>,
    stop: Stop,
}

impl Bench {
    fn obey(&mut self, order: Order) {
        if self.current.as_ref().is_some_and(|current| current.stop.asked()) {
            self.current = None;
        }
        let said = match order {
            Order::Work { lease, job, batch, stop } => {
                let done = self.guarded(|bench| bench.work(lease, &job, &batch, &stop));
                if stop.asked() || done.as_ref().is_err_and(|error| !matches!(error, AgentError::Baseline { .. })) {
                    // What failed starts from scratch.
                    self.current = None;
                }
                Said::Ended { lease, done }
            }
            Order::Canary { seed, stop } => {
                self.current = None;
                Said::Sang(self.guarded(|bench| bench.sing(seed, &stop)).unwrap_or_else(|error| Err(error.to_string())))
            }
        };
        // Nobody listens any more when the service is gone.
        let _ = self.says.blocking_send(said);
    }

    /// A panic in a device's code is a failure of one task, and takes its agent with it.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, AgentError>) -> Result<T, AgentError> {
        catch_unwind(AssertUnwindSafe(|| work(self))).unwrap_or_else(|panic| {
            self.current = None;
            let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
            Err(AgentError::Internal(format!("panicked: {}", said.unwrap_or_default())))
        })
    }

    fn work(&mut self, lease: Lease, job: &Job, batch: &[Job], stop: &Stop) -> Result<Reply, AgentError> {
        let says = self.says.clone();
        let begin = move |ahead| drop(says.blocking_send(Said::Began { lease, ahead }));
        let (bundle, seed, part) = match job {
            Job::Nothing { busy } => {
                begin(None);
                return idle(*busy, stop);
            }
            Job::Model { bundle, seed, part } => (bundle, *seed, part),
        };
        let workshop = Arc::clone(&self.workshop);
        let current = match self.current.take().filter(|current| current.bundle == bundle.digest) {
            Some(current) => self.current.insert(current),
            None => {
                let agent = workshop.agent(&bundle.manifest, stop)?;
                self.current.insert(Current { bundle: bundle.digest, agent, stop: stop.clone() })
            }
        };
        let _turn = workshop.turn(stop)?;
        let agent = current.agent.as_mut();
        let ahead = agent.ahead();
        let built = if ahead.is_none() { job::build_together(agent, batch, bundle.digest)? } else { Duration::ZERO };
        begin(ahead.map(|ahead| (bundle.digest, ahead)));
        match part {
            Part::Profile => agent.profile(&bundle.root).map(Reply::Profiled),
            Part::Evaluate { target, candidate, depth } => {
                let mut outcome = agent.evaluate(&Evaluate { target, candidate, depth: *depth, seed })?;
                outcome.evidence.build_ms += built.as_millis() as u64;
                Ok(Reply::Judged(Box::new(outcome)))
            }
            Part::CheckModel { optimized } => agent.check_model(&bundle.root, optimized.as_path(), seed).map(Reply::ModelChecked),
        }
    }

    fn sing(&mut self, seed: u64, stop: &Stop) -> Result<Result<(), String>, AgentError> {
        let canary = self.workshop.canary();
        let mut agent = self.workshop.agent(&canary.manifest, stop)?;
        let _turn = self.workshop.turn(stop)?;
        let sung = canary.sing(agent.as_mut(), seed);
        if sung.is_err() {
            return Ok(sung);
        }
        match self.workshop.test_python(stop) {
            Err(AgentError::Stopped) => Err(AgentError::Stopped),
            tested => Ok(tested.map_err(|error| format!("its Python cannot compile: {error}"))),
        }
    }
}

/// Passes time.
fn idle(busy: Duration, stop: &Stop) -> Result<Reply, AgentError> {
    let until = Instant::now() + busy;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Reply::Nothing);
        }
        if stop.asked() {
            return Err(AgentError::Stopped);
        }
        std::thread::sleep(left.min(STOP_LOOK));
    }
}
