//! Tasks that do nothing: what the queue itself costs, how it shares, and what it does when parts of a fleet die, is measured with them.

use std::collections::BTreeSet;
use std::time::Duration;

use kernelopt_shared::api::DrillSpec;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{DeviceIdentity, JobId, Reply, Work};

use super::order::{Order, task_id};
use super::plan::{Ahead, Plan, UnderWay};
use super::terms::Terms;
use crate::journal::{Entry, Event};
use crate::search::plan::Step;
use crate::search::state::Ended;

/// Longest that a task may run besides what it is asked to, where nothing else is said.
const LIMIT: Duration = Duration::from_secs(60);

/// A number of tasks of one length.
#[derive(Clone, Debug)]
pub struct Drill {
    tasks: u64,
    busy: Duration,
    limit: Duration,
    opened_unix_ms: u64,
    /// Numbers below this were handed out at least once.
    next: u64,
    /// Those of them that came back undone.
    again: BTreeSet<u64>,
    /// Done, above the longest run of done ones from zero.
    done: BTreeSet<u64>,
    done_below: u64,
    course: Course,
}

/// How far a drill is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Course {
    /// Tasks are left.
    Open,
    /// All are done.
    Done,
    /// It ended before.
    Ended(Ended),
}

impl Drill {
    /// `tasks` tasks that keep a device busy for `busy` each.
    pub fn new(tasks: u64, busy: Duration) -> Self {
        let limit = busy.saturating_add(LIMIT);
        let (again, done) = (BTreeSet::new(), BTreeSet::new());
        Self { tasks, busy, limit, opened_unix_ms: 0, next: 0, again, done, done_below: 0, course: Course::Open }
    }

    /// As a client asks for it, at `opened_unix_ms`.
    pub fn of(spec: &DrillSpec, opened_unix_ms: u64) -> Self {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let drill = Self { opened_unix_ms, ..Self::new(spec.tasks.get().into(), ms(spec.busy_ms.get())) };
        Self { limit: spec.limit_ms.map_or(drill.limit, |limit| ms(limit.get())), ..drill }
    }

    /// As its first event says; none where that is no drill's.
    pub fn of_event(event: &Event) -> Option<Self> {
        let Event::Drill { tasks, busy_us, limit_us, opened_unix_ms, .. } = event else { return None };
        let drill = Self { opened_unix_ms: *opened_unix_ms, ..Self::new(*tasks, Duration::from_micros(*busy_us)) };
        Some(Self { limit: limit_us.map_or(drill.limit, Duration::from_micros), ..drill })
    }

    /// As a journal has it.
    pub fn replay(entries: &[Entry]) -> Option<Self> {
        let mut drill = Self::of_event(&entries.first()?.event)?;
        entries.iter().for_each(|entry| drill.apply(entry.active, &entry.event));
        Some(drill)
    }

    /// Tasks in all.
    pub const fn tasks(&self) -> u64 {
        self.tasks
    }

    /// When it was asked for, in milliseconds since 1970.
    pub const fn opened_unix_ms(&self) -> u64 {
        self.opened_unix_ms
    }

    /// How far it is.
    pub const fn course(&self) -> &Course {
        &self.course
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
        let us = |time: Duration| time.as_micros() as u64;
        let (busy_us, limit_us) = (us(self.busy), Some(us(self.limit)));
        Event::Drill { tasks: self.tasks, busy_us, limit_us, opened_unix_ms: self.opened_unix_ms, terms: terms.clone() }
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
        Ok(Order { task, step: step.clone(), work, bundle, blobs, seed, run_limit: self.limit, avoid })
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
            Event::Drilled => self.course = Course::Done,
            Event::Cancelled => self.course = Course::Ended(Ended::Cancelled),
            Event::Failed { reason } => self.course = Course::Ended(Ended::Failed { reason: reason.clone() }),
            _ => {}
        }
    }

    fn is_settled(&self, step: &Step) -> bool {
        matches!(step, Step::Nothing { number } if *number < self.done_below || self.done.contains(number))
    }

    fn is_over(&self) -> bool {
        self.course != Course::Open
    }

    fn as_drill(&self) -> Option<&Drill> {
        Some(self)
    }
}
