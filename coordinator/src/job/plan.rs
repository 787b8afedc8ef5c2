//! What a job is to do: the part that differs between kinds of job.

use std::collections::BTreeSet;
use std::time::Duration;

use kernelopt_shared::bundle::CapturedDevice;
use kernelopt_shared::language_model::Question;
use kernelopt_shared::message::{DeviceIdentity, JobId, Reply};

use super::drill::Drill;
use super::kernel_search::KernelSearch;
use super::order::Order;
use super::terms::Terms;
use crate::journal::Event;
use crate::search::known::Known;
use crate::search::plan::Step;

/// What a plan says of the next moment.
#[derive(Clone, Debug)]
pub enum Ahead {
    /// Have this done by an agent.
    Run(Step),
    /// Put this to a language model: it is recorded, and has no answer.
    Ask(Question),
    /// Something happened without one: record it and ask again.
    Record(Event),
    /// Nothing, until something that is under way has ended.
    Wait,
    /// All is done; its outputs can be written.
    Finish,
}

/// What is under way of a job.
#[derive(Clone, Debug, Default)]
pub struct UnderWay {
    /// Steps that agents are at.
    pub steps: BTreeSet<Step>,
    /// Questions that a language model has, by their ids.
    pub questions: BTreeSet<String>,
}

/// What a job is to do, decided by nothing but its events and what is under way.
pub trait Plan: Send {
    /// The job's first event.
    fn opening(&self, terms: &Terms) -> Event;

    /// What comes next, after `active` time of work; all devices like to hold `batch` tasks.
    fn next(&mut self, under_way: &UnderWay, batch: usize, active: Duration) -> Ahead;

    /// What an agent needs for a step.
    ///
    /// # Errors
    /// It cannot be made, and the job cannot go on.
    fn order(&self, job: &JobId, terms: &Terms, step: &Step) -> Result<Order, String>;

    /// The event that an answer to `step` is; `None` where it is the answer to another question.
    fn event_of(&self, step: &Step, reply: Reply, device: &DeviceIdentity) -> Option<Event>;

    /// Label of the target of a question that is recorded and has no answer.
    fn awaits(&self, _question: &str) -> Option<String> {
        None
    }

    /// True while answers can still change something.
    fn listens(&self, _under_way: &UnderWay) -> bool {
        false
    }

    /// Takes an event of the job.
    fn apply(&mut self, active: Duration, event: &Event);

    /// True where nothing would be learnt by doing `step`.
    fn is_settled(&self, step: &Step) -> bool;

    /// True once nothing more is to be done.
    fn is_over(&self) -> bool;

    /// Hears what is known of its kernels.
    fn recall(&mut self, _known: Known) {}

    /// The device that its kernels are for; none where any will do.
    fn device(&self) -> Option<&CapturedDevice> {
        None
    }

    /// The drill, where it is one.
    fn as_drill(&self) -> Option<&Drill> {
        None
    }

    /// The search, where it is one.
    fn as_search(&self) -> Option<&KernelSearch> {
        None
    }
}
