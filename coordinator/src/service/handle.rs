//! Questions and orders to a running coordinator.

use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::actor::{Admission, Answer, Input};
use crate::fleet::Fleet;
use crate::job::Job;
use crate::journal::Draft;

/// Speaks to a coordinator's thread. Clones speak to the same.
#[derive(Clone)]
pub struct Handle {
    inputs: mpsc::Sender<Input>,
}

/// The coordinator has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator has ended")]
pub struct Gone;

impl Handle {
    pub(super) const fn new(inputs: mpsc::Sender<Input>) -> Self {
        Self { inputs }
    }

    /// Calls `look` on the coordinator's thread, between two turns. What it sees may not be on the disk yet.
    ///
    /// # Errors
    /// The coordinator has ended.
    pub async fn look<T: Send + 'static>(&self, look: impl FnOnce(&Fleet, Instant) -> T + Send + 'static) -> Result<T, Gone> {
        let (answer, answered) = oneshot::channel();
        // Whoever asked may have gone.
        let look = move |fleet: &Fleet, now: Instant| drop(answer.send(look(fleet, now)));
        self.inputs.send(Input::Look(Box::new(look))).await.map_err(|_| Gone)?;
        answered.await.map_err(|_| Gone)
    }

    /// Calls `ask` on the coordinator's thread; what it returns comes back once everything that it did is on the disk.
    ///
    /// # Errors
    /// The coordinator has ended.
    pub async fn ask<T: Send + 'static>(&self, ask: impl FnOnce(&mut Fleet, Instant) -> T + Send + 'static) -> Result<T, Gone> {
        let (answer, answered) = oneshot::channel();
        let ask = move |fleet: &mut Fleet, now: Instant| -> Answer {
            let said = ask(fleet, now);
            // Whoever asked may have gone.
            Box::new(move || drop(answer.send(said)))
        };
        self.inputs.send(Input::Ask(Box::new(ask))).await.map_err(|_| Gone)?;
        answered.await.map_err(|_| Gone)
    }

    /// Takes a job in: it is in the journal when this returns; false where a job of that name is at work. The inner error is why the journal
    /// cannot be written; nothing has happened then.
    ///
    /// # Errors
    /// The coordinator has ended.
    pub async fn admit(&self, job: Job, drafts: Vec<Draft>) -> Result<Result<bool, String>, Gone> {
        let (answer, answered) = oneshot::channel();
        self.inputs.send(Input::Admit(Box::new(Admission { job, drafts, answer }))).await.map_err(|_| Gone)?;
        answered.await.map_err(|_| Gone)
    }

    /// Has it end after what it has at hand.
    pub async fn stop(&self) {
        // One that has ended needs no telling.
        let _ = self.inputs.send(Input::Stop).await;
    }
}
