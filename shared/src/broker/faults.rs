//! Any broker, with a seed and bad luck: frames come twice, late and out of order, confirmations are lost, the connection is cut.
//!
//! It keeps the promises of [`Broker`] and uses every freedom that they leave. One [`FaultyBroker`] is one process's connection.

mod receipt;
mod subscription;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::watch;

use super::{Address, Broker, BrokerError, BrokerState, Depth, Frame, Leadership, Subscription};
use receipt::Outstanding;
use subscription::FaultySubscription;

/// How bad the luck is: chances between zero and one.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// A frame is published twice.
    pub duplicate: f64,
    /// A frame that arrives waits until the next one was delivered.
    pub reorder: f64,
    /// A publication takes up to [`Faults::longest_delay`].
    pub delay: f64,
    /// A frame is taken, and its sender told that it was not confirmed.
    pub drop_confirm: f64,
    /// A frame to an address that is not durable is lost.
    pub lose: f64,
    /// Longest delay of a publication.
    pub longest_delay: Duration,
}

impl Faults {
    /// None at all.
    pub const NONE: Self =
        Self { duplicate: 0.0, reorder: 0.0, delay: 0.0, drop_confirm: 0.0, lose: 0.0, longest_delay: Duration::from_millis(50) };

    /// One in ten of each.
    pub const SOME: Self = Self { duplicate: 0.1, reorder: 0.1, delay: 0.1, drop_confirm: 0.1, lose: 0.1, ..Self::NONE };
}

/// A broker with bad luck.
pub struct FaultyBroker {
    inner: Arc<dyn Broker>,
    faults: Faults,
    luck: Arc<Luck>,
    line: Arc<Line>,
}

/// Draws from one seed, in the order in which they are asked for.
struct Luck(Mutex<ChaCha8Rng>);

impl Luck {
    fn strikes(&self, chance: f64) -> bool {
        chance > 0.0 && self.0.lock().unwrap_or_else(PoisonError::into_inner).random_bool(chance.min(1.0))
    }

    fn share(&self) -> f64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).random_range(0.0..1.0)
    }
}

/// The connection that can be cut.
struct Line {
    cut: watch::Sender<bool>,
    state: watch::Sender<BrokerState>,
    outstanding: Outstanding,
    turn: Mutex<Turn>,
}

/// The turn to lead, if it is held: a cut ends it also where nobody waits for that.
type Turn = Arc<tokio::sync::Mutex<Option<Box<dyn Leadership>>>>;

impl Line {
    fn is_cut(&self) -> bool {
        *self.cut.borrow()
    }

    async fn until(&self, cut: bool) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.cut.subscribe().wait_for(|now| *now == cut).await;
    }
}

impl FaultyBroker {
    /// Bad luck over a broker, drawn from a seed.
    pub fn new(inner: Arc<dyn Broker>, faults: Faults, seed: u64) -> Self {
        let luck = Arc::new(Luck(Mutex::new(ChaCha8Rng::seed_from_u64(seed))));
        let line = Line {
            cut: watch::Sender::new(false),
            state: watch::Sender::new(BrokerState::Up),
            outstanding: Outstanding::default(),
            turn: Mutex::default(),
        };
        Self { inner, faults, luck, line: Arc::new(line) }
    }

    /// Cuts the connection: nothing is published, nothing arrives, what is unsettled goes back to others, a turn to lead is lost.
    pub async fn cut(&self) {
        self.line.cut.send_replace(true);
        self.line.state.send_replace(BrokerState::Down { reason: "cut by a test".into() });
        self.line.outstanding.return_all().await;
        let turn = self.line.turn.lock().unwrap_or_else(PoisonError::into_inner).clone();
        *turn.lock().await = None;
    }

    /// Joins it again: subscriptions go on by themselves.
    pub fn mend(&self) {
        self.line.cut.send_replace(false);
        self.line.state.send_replace(BrokerState::Up);
    }

    fn reachable(&self) -> Result<(), BrokerError> {
        if self.line.is_cut() { Err(BrokerError::Down("cut by a test".into())) } else { Ok(()) }
    }
}

#[async_trait]
impl Broker for FaultyBroker {
    async fn publish(&self, to: &Address, frame: Frame) -> Result<(), BrokerError> {
        if self.luck.strikes(self.faults.delay) {
            tokio::time::sleep(self.faults.longest_delay.mul_f64(self.luck.share())).await;
        }
        self.reachable()?;
        if !to.is_durable() && self.luck.strikes(self.faults.lose) {
            return Ok(());
        }
        if self.luck.strikes(self.faults.duplicate) {
            self.inner.publish(to, frame.clone()).await?;
        }
        self.inner.publish(to, frame).await?;
        if to.is_durable() && self.luck.strikes(self.faults.drop_confirm) {
            return Err(BrokerError::Unconfirmed(Duration::ZERO));
        }
        // Cut while it was under way: it is there, but nobody learns it.
        self.reachable()
    }

    async fn subscribe(&self, to: &Address, prefetch: u16) -> Result<Box<dyn Subscription>, BrokerError> {
        self.reachable()?;
        let live = self.inner.subscribe(to, prefetch).await?;
        let (inner, line, luck) = (self.inner.clone(), self.line.clone(), self.luck.clone());
        Ok(Box::new(FaultySubscription::new(inner, to.clone(), prefetch, live, line, luck, self.faults.reorder)))
    }

    async fn depth(&self, of: &Address) -> Result<Option<Depth>, BrokerError> {
        self.reachable()?;
        self.inner.depth(of).await
    }

    async fn lead(&self) -> Result<Box<dyn Leadership>, BrokerError> {
        loop {
            self.line.until(false).await;
            tokio::select! {
                () = self.line.until(true) => {}
                inner = self.inner.lead() => {
                    let turn: Turn = Arc::new(tokio::sync::Mutex::new(Some(inner?)));
                    *self.line.turn.lock().unwrap_or_else(PoisonError::into_inner) = turn.clone();
                    return Ok(Box::new(FaultyLeadership { turn, line: self.line.clone() }));
                }
            }
        }
    }

    fn state(&self) -> watch::Receiver<BrokerState> {
        self.line.state.subscribe()
    }

    async fn close(&self) {
        self.inner.close().await;
        self.line.state.send_replace(BrokerState::Down { reason: "it was closed".into() });
    }
}

struct FaultyLeadership {
    turn: Turn,
    line: Arc<Line>,
}

#[async_trait]
impl Leadership for FaultyLeadership {
    async fn lost(&mut self) {
        let mut turn = self.turn.lock().await;
        let Some(inner) = turn.as_mut() else { return };
        tokio::select! {
            () = inner.lost() => {}
            () = self.line.until(true) => {}
        }
        *turn = None;
    }
}

impl Drop for FaultyLeadership {
    fn drop(&mut self) {
        // Whoever has the lock ends the turn itself: it is a cut.
        if let Ok(mut turn) = self.turn.try_lock() {
            *turn = None;
        }
    }
}
