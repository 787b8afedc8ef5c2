//! What is seen on the coordinator's own thread.

use std::time::Duration;

use kernelopt_coordinator::fleet::Note;
use kernelopt_coordinator::job::Job;
use kernelopt_coordinator::journal::{Entry, Event};
use kernelopt_coordinator::search::plan::Step;
use kernelopt_coordinator::service::Audience;
use kernelopt_shared::message::{JobId, Reply};
use tokio::sync::mpsc;

/// Something of interest.
pub enum Seen {
    /// A task was done; it was given out so long before work on it began.
    Done(Duration),
    /// A task was given out.
    Granted,
    /// The last task of this job is done, and that is on the disk.
    Over(JobId),
}

/// Tells of it.
pub struct Watch(pub mpsc::Sender<Seen>);

impl Watch {
    fn tell(&self, seen: Seen) {
        // There is room for all that one drill brings; who has gone needs no telling.
        let _ = self.0.try_send(seen);
    }
}

impl Audience for Watch {
    fn step(&mut self, _job: &JobId, _step: &Step) {}

    fn event(&mut self, entry: &Entry, _job: Option<&Job>) {
        if let (Event::Drilled, Some(job)) = (&entry.event, &entry.job) {
            self.tell(Seen::Over(job.clone()));
        }
    }

    fn note(&mut self, note: &Note) {
        match note {
            Note::Done(taken) if taken.reply == Reply::Nothing => self.tell(Seen::Done(taken.queued)),
            Note::Granted { .. } => self.tell(Seen::Granted),
            _ => {}
        }
    }
}
