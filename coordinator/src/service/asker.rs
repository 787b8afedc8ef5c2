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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use kernelopt_shared::language_model::Answer;

    use super::*;

    /// Never answers; knows how many calls are out.
    #[derive(Default)]
    struct Slow {
        out: Arc<AtomicUsize>,
    }

    struct Call(Arc<AtomicUsize>);

    impl Drop for Call {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[async_trait]
    impl LanguageModel for Slow {
        async fn ask(&self, _job: &str, _question: &Question) -> Result<Answer, Unanswered> {
            self.out.fetch_add(1, Ordering::SeqCst);
            let _call = Call(self.out.clone());
            std::future::pending().await
        }
    }

    fn question(number: usize) -> Question {
        let id = format!("0.0.code.{number}");
        Question { id, model: "m".into(), turns: Vec::new(), max_output_tokens: 1, temperature: None, sample: 0 }
    }

    async fn until(out: &AtomicUsize, wanted: usize) {
        let settled = async {
            while out.load(Ordering::SeqCst) != wanted {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), settled).await.unwrap();
    }

    #[tokio::test]
    async fn a_jobs_calls_are_bounded_and_dropped_with_it() {
        let (slow, (inputs, mut answers)) = (Slow::default(), mpsc::channel(8));
        let out = slow.out.clone();
        let asker = Asker::new(Some(Arc::new(slow)), inputs);
        let [one, other] = ["one", "other"].map(|name| JobId::parse(name).unwrap());
        (0..3 * AT_ONCE).for_each(|number| asker.ask(one.clone(), question(number)));
        asker.ask(other.clone(), question(0));
        until(&out, AT_ONCE + 1).await;
        asker.hush(&one);
        until(&out, 1).await;
        drop(asker);
        until(&out, 0).await;
        assert!(answers.recv().await.is_none(), "a call that was dropped says nothing");
    }

    #[tokio::test]
    async fn without_a_model_a_question_is_refused() {
        let (inputs, mut answers) = mpsc::channel(8);
        let asker = Asker::new(None, inputs);
        asker.ask(JobId::parse("one").unwrap(), question(0));
        let said = answers.recv().await.unwrap();
        assert!(matches!(said, Input::Answered { said, .. } if matches!(*said, Err(Unanswered::Refused { .. }))));
    }
}
