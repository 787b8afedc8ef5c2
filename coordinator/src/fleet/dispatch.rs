//! Giving tasks out: as many as the agents like to hold, by priority, then fair share.

use std::time::Instant;

use kernelopt_shared::bundle::CapturedDevice;
use kernelopt_shared::message::{Control, DeviceClass, DeviceIdentity, DeviceKind, JobId, Lease, Task};

use super::leases::Held;
use super::{Effect, Fleet, Note, Route};
use crate::job::{Order, Wish};
use crate::journal::Event;

impl Fleet {
    /// Fills the agents of every class.
    pub fn dispatch(&mut self, now: Instant) {
        self.place_jobs(now);
        for class in self.roster.classes() {
            let capacity = self.roster.capacity(&class);
            let mut waiting = self.waiting_for(&class);
            while self.leases.of_class(&class) < capacity {
                let Some(order) = self.next_order(&class, capacity, &mut waiting, now) else { break };
                self.give_out(order.0, *order.1, &class, now);
            }
        }
    }

    /// Jobs without a class go where the model was captured, if such a device is there.
    fn place_jobs(&mut self, now: Instant) {
        let homeless: Vec<JobId> = self.jobs.keys().filter(|id| !self.places.contains_key(*id)).cloned().collect();
        for id in homeless {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let at_home = |device| self.policy.embedded || job.plan().device().is_none_or(|captured| fits(captured, device));
            let home = self.roster.iter().find(|(_, member)| member.capacity() > 0 && at_home(&member.beat.device));
            if let Some(class) = home.map(|(_, member)| member.class.clone()) {
                job.record(Event::Placed { class: class.clone() }, now, &mut self.drafts);
                self.effects.push(Effect::Placed(id.clone(), class.clone()));
                self.places.insert(id, class);
            }
        }
    }

    /// Jobs that are placed on a class, and may have something for it.
    fn waiting_for(&self, class: &DeviceClass) -> Vec<JobId> {
        let placed = |(id, job): &(&JobId, &crate::job::Job)| self.places.get(*id) == Some(class) && !job.plan().is_over();
        self.jobs.iter().filter(placed).map(|(id, _)| id.clone()).collect()
    }

    /// The next piece of work for a class. Jobs that have none now are taken out of `waiting`.
    fn next_order(&mut self, class: &DeviceClass, capacity: usize, waiting: &mut Vec<JobId>, now: Instant) -> Option<(JobId, Box<Order>)> {
        loop {
            let highest = waiting.iter().filter_map(|id| Some(self.jobs.get(id)?.terms().priority)).max()?;
            let (mut first, rest): (Vec<JobId>, Vec<JobId>) =
                waiting.drain(..).partition(|id| self.jobs.get(id).is_some_and(|job| job.terms().priority == highest));
            self.shares.order(class, &mut first);
            let id = first[0].clone();
            waiting.extend(first);
            waiting.extend(rest);
            let wish = self.jobs.get_mut(&id).map_or(Wish::Wait, |job| job.next(capacity, now, &mut self.drafts));
            match wish {
                Wish::Run(order) => return Some((id, order)),
                Wish::Ask(question) => {
                    self.effects.push(Effect::Ask(id, question));
                    continue;
                }
                Wish::Hush => {
                    self.effects.push(Effect::Hush(id));
                    continue;
                }
                Wish::Pause => {
                    self.effects.push(Effect::Pause(id.clone()));
                    self.shares.idle(&id);
                }
                Wish::Wait => self.shares.idle(&id),
                Wish::Finish => self.effects.push(Effect::Finish(id.clone())),
            }
            waiting.retain(|other| *other != id);
        }
    }

    fn give_out(&mut self, job: JobId, order: Order, class: &DeviceClass, now: Instant) {
        self.serial += 1;
        let lease = Lease { epoch: self.epoch, serial: self.serial };
        let failed = self.charges.of(&order.task);
        let anywhere = order.avoid.is_empty() && failed.is_empty();
        let assigned = if anywhere { None } else { self.roster.elsewhere(class, &order.avoid, &failed) };
        let task = Task {
            id: order.task,
            job: job.clone(),
            lease,
            epoch: self.epoch,
            bundle: order.bundle,
            work: order.work,
            seed: order.seed,
            run_limit_ms: order.run_limit.as_millis() as u64,
        };
        self.shares.served(&job, class);
        self.notes.push(Note::Granted { class: class.clone(), again: !failed.is_empty() });
        if let Some(work) = self.jobs.get_mut(&job) {
            let event = Event::Leased { task: order.task, lease, step: order.step.clone(), class: class.clone() };
            work.record(event, now, &mut self.drafts);
        }
        let to = assigned.clone().map_or_else(|| Route::Lane(class.clone()), Route::Agent);
        self.effects.push(Effect::Send { to, task: Box::new(task.clone()), blobs: order.blobs });
        self.leases.grant(Held {
            task: Some(Box::new(task)),
            id: order.task,
            job,
            step: order.step,
            lease,
            class: class.clone(),
            assigned,
            agent: None,
            sent: now,
            heard: now,
            started: None,
            run_limit: order.run_limit,
        });
    }

    /// Sends tasks again that nobody was heard to hold while agents had room: the broker may have lost them. Who gets one twice does it once.
    pub(super) fn resend(&mut self, now: Instant) {
        let roomy: Vec<DeviceClass> = self.roster.classes().into_iter().filter(|class| self.has_room(class)).collect();
        let mut lost = Vec::new();
        for held in self.leases.unheard(now, self.policy.patience).filter(|held| roomy.contains(&held.class)) {
            held.sent = now;
            match (&held.task, &held.assigned) {
                (Some(task), None) => {
                    self.effects.push(Effect::Send { to: Route::Lane(held.class.clone()), task: task.clone(), blobs: Vec::new() })
                }
                // The one that it was for may be gone; and what an earlier coordinator sent is not known here.
                _ => lost.push(held.id),
            }
        }
        lost.into_iter().for_each(|task| self.release(task, "nobody was heard to hold it", None, now));
    }

    /// True where an agent of a class holds less than it likes.
    fn has_room(&self, class: &DeviceClass) -> bool {
        self.roster.working(class).any(|(_, member)| member.beat.holds.len() < member.capacity())
    }

    /// Tells all agents who leads.
    pub fn announce(&mut self) {
        self.effects.push(Effect::TellAll(Control::Leading { epoch: self.epoch }));
    }
}

/// True where kernels of a capture are at home on a device: the same kind, product and architecture.
fn fits(captured: &CapturedDevice, device: &DeviceIdentity) -> bool {
    match device.kind {
        DeviceKind::Cpu => captured.kind == "cpu" && (captured.name.is_empty() || captured.name == device.product),
        DeviceKind::Cuda => {
            let architecture = captured.architecture().map(|number| format!("sm_{number}"));
            captured.kind == "cuda" && captured.name == device.product && architecture.is_none_or(|wanted| wanted == device.architecture)
        }
    }
}
