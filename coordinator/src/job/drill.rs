//! Tasks that do nothing: what the queue itself costs, and how it shares, is measured with them.

use std::collections::BTreeSet;
use std::time::Duration;

use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{DeviceIdentity, JobId, Reply, Work};

use super::order::{Order, task_id};
use super::plan::{Ahead, Plan, UnderWay};
use super::terms::Terms;
use crate::journal::Event;
use crate::search::plan::Step;

/// Longest that a task may run besides what it is asked to.
const LIMIT: Duration = Duration::from_secs(60);

/// A number of tasks of one length.
#[derive(Clone, Debug)]
pub struct Drill {
    tasks: u64,
    busy: Duration,
    /// Numbers below this were handed out at least once.
    next: u64,
    /// Those of them that came back undone.
    again: BTreeSet<u64>,
    /// Done, above the longest run of done ones from zero.
    done: BTreeSet<u64>,
    done_below: u64,
    over: bool,
}

impl Drill {
    /// `tasks` tasks that keep a device busy for `busy` each.
    pub const fn new(tasks: u64, busy: Duration) -> Self {
        Self { tasks, busy, next: 0, again: BTreeSet::new(), done: BTreeSet::new(), done_below: 0, over: false }
    }

    /// Tasks that are done.
    pub fn done(&self) -> u64 {
        self.done_below + self.done.len() as u64
    }

    fn finish(&mut self, number: u64) {
        self.again.remove(&number);
        if number >= self.done_below {
            self.done.insert(number);
        }
        while self.done.remove(&self.done_below) {
            self.done_below += 1;
        }
        self.next = self.next.max(number + 1);
    }
}

impl Plan for Drill {
    fn opening(&self, terms: &Terms) -> Event {
        Event::Drill { tasks: self.tasks, busy_us: self.busy.as_micros() as u64, terms: terms.clone() }
    }

    fn next(&mut self, under_way: &UnderWay, _batch: usize, _active: Duration) -> Ahead {
        if let Some(number) = self.again.pop_first() {
            return Ahead::Run(Step::Nothing { number });
        }
        if self.next < self.tasks {
            self.next += 1;
            return Ahead::Run(Step::Nothing { number: self.next - 1 });
        }
        if under_way.steps.is_empty() { Ahead::Record(Event::Drilled) } else { Ahead::Wait }
    }

    fn order(&self, job: &JobId, terms: &Terms, step: &Step) -> Result<Order, String> {
        let task = task_id(job, step);
        let work = Work::Nothing { busy_us: self.busy.as_micros() as u64 };
        let bundle = Digest::of([b"".as_slice()]);
        let (blobs, avoid, seed) = (Vec::new(), BTreeSet::new(), terms.seed);
        Ok(Order { task, step: step.clone(), work, bundle, blobs, seed, run_limit: self.busy + LIMIT, avoid })
    }

    fn event_of(&self, step: &Step, reply: Reply, _device: &DeviceIdentity) -> Option<Event> {
        match (step, reply) {
            (Step::Nothing { number }, Reply::Nothing) => Some(Event::Done { number: *number }),
            _ => None,
        }
    }

    fn apply(&mut self, _active: Duration, event: &Event) {
        match event {
            Event::Done { number } => self.finish(*number),
            Event::Leased { step: Step::Nothing { number }, .. } => {
                self.again.remove(number);
                self.next = self.next.max(number + 1);
            }
            Event::Released { step: Step::Nothing { number }, .. } => drop(self.again.insert(*number)),
            Event::Drilled | Event::Cancelled | Event::Failed { .. } => self.over = true,
            _ => {}
        }
    }

    fn is_settled(&self, step: &Step) -> bool {
        matches!(step, Step::Nothing { number } if *number < self.done_below || self.done.contains(number))
    }

    fn is_over(&self) -> bool {
        self.over
    }
}
