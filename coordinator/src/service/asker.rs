//! Questions to a language model, in a room of their own: a slow model holds back neither tasks nor another job's questions for long.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kernelopt_shared::language_model::{LanguageModel, Question, Unanswered};
use kernelopt_shared::message::JobId;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::actor::Input;

/// Questions of one job that are out at once: the gateway's own queue is fair, and this one short.
const AT_ONCE: usize = 16;

/// Asks, and brings the answers as inputs. Dropping it drops every call.
pub(super) struct Asker {
    model: Option<Arc<dyn LanguageModel>>,
    inputs: mpsc::Sender<Input>,
    jobs: Mutex<BTreeMap<JobId, Calls>>,
}

/// The calls of one job.
#[derive(Clone)]
struct Calls {
    room: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Asker {
    pub(super) fn new(model: Option<Arc<dyn LanguageModel>>, inputs: mpsc::Sender<Input>) -> Self {
        Self { model, inputs, jobs: Mutex::default() }
    }

    /// Puts a question of `job`; returns at once.
    pub(super) fn ask(&self, job: JobId, question: Question) {
        let (model, inputs, Calls { room, stop }) = (self.model.clone(), self.inputs.clone(), self.calls_of(&job));
        let call = async move {
            // The room is never closed.
            let Ok(_place) = room.acquire_owned().await else { return };
            let said = match model {
                Some(model) => model.ask(job.as_str(), &question).await,
                None => Err(Unanswered::Refused { what: "there is no language model here".into() }),
            };
            // A coordinator that has ended needs no telling: it asks again when it goes on.
            let _ = inputs.send(Input::Answered { job, question: question.id, said: Box::new(said) }).await;
        };
        tokio::spawn(stop.run_until_cancelled_owned(call));
    }

    /// Drops the calls of a job, all the way to the provider.
    pub(super) fn hush(&self, job: &JobId) {
        if let Some(calls) = self.lock().remove(job) {
            calls.stop.cancel();
        }
    }

    fn calls_of(&self, job: &JobId) -> Calls {
        let fresh = || Calls { room: Arc::new(Semaphore::new(AT_ONCE)), stop: CancellationToken::new() };
        self.lock().entry(job.clone()).or_insert_with(fresh).clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<JobId, Calls>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.lock().values().for_each(|calls| calls.stop.cancel());
    }
}
