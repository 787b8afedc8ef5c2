//! Queue, books and gates under one lock: what is found to fit is reserved before anybody else looks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::choice::{Asked, Choice};
use super::drr::{Bounds, Entry, Full, Place, Queue};
use super::{Ask, Refused, RefusedKind};
use crate::limit::account::When;
use crate::limit::gate::{Gate, Health, Pass, Shut};
use crate::limit::ledger::{AccountName, Denied, Ledger, TicketId, Wanted};
use crate::limit::spent::Spent;
use crate::limit::{Amounts, Meter, Millis};
use crate::names::{DeploymentId, JobName, KeyName, ModelName};
use crate::settings::Settings;

/// A wait that nobody can know better: others are before it.
const A_SECOND: Millis = 1_000;

/// A reservation that was made.
#[derive(Debug)]
pub(super) struct Grant {
    pub ticket: TicketId,
    pub choice: Choice,
    pub pass: Pass,
}

/// A request that waits.
pub(super) struct Waiter {
    pub ticket: TicketId,
    pub ask: Arc<Ask>,
    pub asked: Arc<Asked>,
    pub answer: oneshot::Sender<Result<Grant, Refused>>,
}

/// Why a request is not sent now.
enum Blocked {
    /// It may be, not before this; `MAX` where only the end of another call can help.
    Wait(Millis),
    /// It never will be.
    Refused(Refused),
}

type Fair = Queue<(KeyName, JobName), ModelName, Waiter>;

pub(super) struct State {
    pub settings: Arc<Settings>,
    pub queue: Fair,
    pub books: Books,
    places: HashMap<TicketId, Place>,
    /// When something may fit that does not now; `MAX` where no time is known.
    pub wake_at: Millis,
}

/// What the queue's turn is held against.
#[derive(Default)]
pub(super) struct Books {
    pub ledger: Ledger,
    pub gates: HashMap<DeploymentId, Gate>,
    /// Accounts that the shared books found full, and until when that is believed.
    pub full_until: HashMap<AccountName, Millis>,
    /// What is spent, on the disk; none where it is kept elsewhere or not at all.
    pub spent: Option<Spent>,
}

impl State {
    pub fn new(settings: Arc<Settings>) -> Self {
        let queue = Queue::new(bounds(&settings));
        Self { settings, queue, books: Books::default(), places: HashMap::new(), wake_at: Millis::MAX }
    }

    /// New settings, by which those wait from now on that wait already; gates of deployments that are gone go with their last call.
    pub fn reconfigure(&mut self, settings: Arc<Settings>, now: Millis) {
        let mut lost = Vec::new();
        for waiter in self.queue.items() {
            match Asked::resolve(&waiter.ask, &settings) {
                Ok(asked) => waiter.asked = Arc::new(asked),
                Err(refused) => lost.push((waiter.ticket, refused)),
            }
        }
        self.refuse(lost);
        self.queue.rebound(bounds(&settings));
        let known: HashSet<_> = settings.deployments().map(|deployment| &deployment.id).collect();
        self.books.gates.retain(|id, gate| known.contains(id) || gate.flying() > 0);
        self.settings = settings;
        self.pump(now);
    }

    /// Reserves at once where nobody waits, else puts the request into the queue. `None`: it waits.
    ///
    /// # Errors
    /// It can never be sent, or not before its deadline, or too many wait.
    pub fn enter(&mut self, waiter: Waiter, deadline: Millis, again: bool, paid: bool, now: Millis) -> Result<Option<Grant>, Refused> {
        let soonest = if self.queue.is_empty() {
            match self.books.try_grant(&waiter.asked, waiter.ticket, &mut HashSet::new(), now) {
                Ok(grant) => return Ok(Some(grant)),
                Err(blocked) => blocked,
            }
        } else {
            self.books.look(&waiter.asked, now)
        };
        let soonest = match soonest {
            Blocked::Refused(refused) => return Err(refused),
            Blocked::Wait(at) => at,
        };
        if deadline <= now || (soonest != Millis::MAX && soonest > deadline) {
            return Err(too_late(&waiter.asked, soonest, now));
        }
        let asked = waiter.asked.clone();
        let ticket = waiter.ticket;
        let entry = Entry {
            job: asked.owner.clone(),
            weight: asked.weight,
            lane: asked.model.clone(),
            priority: asked.priority,
            cost: if paid { 0 } else { asked.cost },
            deadline,
            again,
            item: waiter,
        };
        let place = self.queue.push(entry, now).map_err(|full| {
            let what = match full {
                Full::Queue => format!("{} requests wait already", self.queue.len()),
                Full::Job => format!("too many requests of job {} wait already", asked.owner.1),
            };
            Refused { kind: RefusedKind::QueueFull, retry_after: Some(wait(soonest, now)), what }
        })?;
        self.places.insert(ticket, place);
        self.pump(now);
        Ok(None)
    }

    /// A request waits no more, because its caller left. True where it waited.
    pub fn leave(&mut self, ticket: TicketId) -> bool {
        self.places.remove(&ticket).and_then(|place| self.queue.remove(place)).is_some()
    }

    /// Lets everything through that fits, in the order of turns, and refuses what can never be sent any more.
    pub fn pump(&mut self, now: Millis) {
        for waiter in self.queue.expire(now) {
            self.places.remove(&waiter.ticket);
            let soonest = match self.books.look(&waiter.asked, now) {
                Blocked::Wait(at) => at,
                Blocked::Refused(_) => Millis::MAX,
            };
            let _ = waiter.answer.send(Err(too_late(&waiter.asked, soonest, now)));
        }
        self.books.full_until.retain(|_, until| *until > now);
        self.wake_at = self.queue.first_deadline().unwrap_or(Millis::MAX);
        // What somebody could not have whose turn it was, nobody behind gets.
        let mut claimed = HashSet::new();
        let mut lost = Vec::new();
        loop {
            let (mut granted, books, wake_at) = (None, &mut self.books, &mut self.wake_at);
            let waiter = self.queue.next(now, |waiter| match books.try_grant(&waiter.asked, waiter.ticket, &mut claimed, now) {
                Ok(grant) => granted.replace(grant).is_none(),
                Err(Blocked::Wait(at)) => {
                    *wake_at = at.min(*wake_at);
                    false
                }
                Err(Blocked::Refused(refused)) => {
                    lost.push((waiter.ticket, refused));
                    false
                }
            });
            let (Some(waiter), Some(grant)) = (waiter, granted) else { break };
            self.places.remove(&waiter.ticket);
            if let Err(Ok(unheard)) = waiter.answer.send(Ok(grant)) {
                self.books.cancel(unheard, now);
            }
        }
        self.refuse(lost);
    }

    fn refuse(&mut self, lost: Vec<(TicketId, Refused)>) {
        for (ticket, refused) in lost {
            if let Some(waiter) = self.places.remove(&ticket).and_then(|place| self.queue.remove(place)) {
                let _ = waiter.answer.send(Err(refused));
            }
        }
    }
}

impl Books {
    /// Reserves for the best deployment for which everything fits.
    fn try_grant(&mut self, asked: &Asked, ticket: TicketId, claimed: &mut HashSet<AccountName>, now: Millis) -> Result<Grant, Blocked> {
        let mut order: Vec<&Choice> = asked.choices.iter().collect();
        order.sort_by_key(|choice| (choice.deployment.tier, self.load(choice)));
        let mut verdict = Verdict::default();
        for choice in order {
            match self.obstacle(choice, now) {
                Err(Obstacle::Denied(denied)) => {
                    // The narrowest account: who waits for its own limit must not hold up those who wait for the provider's.
                    claimed.extend(denied.accounts.first().filter(|_| denied.when <= When::Released).cloned());
                    verdict.add(Obstacle::Denied(denied), now);
                }
                Err(obstacle) => verdict.add(obstacle, now),
                Ok(()) if choice.wanted.accounts.iter().any(|(name, _)| claimed.contains(name)) => verdict.add(Obstacle::Claimed, now),
                Ok(()) => match self.ledger.reserve(ticket, choice.wanted.clone(), now) {
                    Ok(()) => {
                        if let Err(refused) = self.cover(&choice.wanted) {
                            self.ledger.settle(ticket, &Amounts::default(), now);
                            return Err(Blocked::Refused(refused));
                        }
                        let pass = self.gates.entry(choice.deployment.id.clone()).or_default().enter();
                        return Ok(Grant { ticket, choice: choice.clone(), pass });
                    }
                    Err(denied) => verdict.add(Obstacle::Denied(denied), now),
                },
            }
        }
        Err(verdict.blocked(asked))
    }

    /// What stands in the way of a request now, or a wait of nothing.
    fn look(&self, asked: &Asked, now: Millis) -> Blocked {
        let mut verdict = Verdict::default();
        for choice in &asked.choices {
            match self.obstacle(choice, now) {
                Ok(()) => return Blocked::Wait(now),
                Err(obstacle) => verdict.add(obstacle, now),
            }
        }
        verdict.blocked(asked)
    }

    fn obstacle(&self, choice: &Choice, now: Millis) -> Result<(), Obstacle> {
        // The books first: what never fits is said at once, whatever the gate.
        let booked = self.ledger.look(&choice.wanted, now);
        if let Err(denied) = booked {
            return Err(Obstacle::Denied(denied));
        }
        if let Some(gate) = self.gates.get(&choice.deployment.id) {
            gate.look(now).map_err(Obstacle::Shut)?;
        }
        let full =
            |(name, _): &(AccountName, _)| self.full_until.get(name).filter(|until| **until > now).map(|until| (name.clone(), *until));
        match choice.wanted.accounts.iter().find_map(full) {
            Some((account, until)) => {
                let accounts = vec![account.clone()];
                let wait = until - now;
                Err(Obstacle::Denied(Denied { account, meter: Meter::Concurrent, when: When::After(wait), at_least: wait, accounts }))
            }
            None => Ok(()),
        }
    }

    /// What was just reserved is covered by marks on the disk.
    fn cover(&mut self, wanted: &Wanted) -> Result<(), Refused> {
        let Some(spent) = &mut self.spent else { return Ok(()) };
        for (name, limits) in wanted.accounts.iter().filter(|(_, limits)| limits.budget.is_some() || limits.budget_tokens.is_some()) {
            spent.cover(name, self.ledger.taken(name), limits).map_err(|error| {
                tracing::error!(%error, "what is spent cannot be written down, so nothing is spent");
                let what = "what is spent cannot be written down, so nothing is spent".into();
                Refused { kind: RefusedKind::LimitsDown, retry_after: Some(Duration::from_secs(10)), what }
            })?;
        }
        Ok(())
    }

    /// Writes down exactly what is spent and reserved.
    pub fn save(&mut self) {
        let Some(spent) = &mut self.spent else { return };
        let exact: Vec<_> = spent.marks().map(|(name, _)| (name.clone(), self.ledger.taken(name))).collect();
        if let Err(error) = spent.settle(exact.into_iter()) {
            tracing::error!(%error, "what is spent could not be written down exactly; more is taken to be spent");
        }
    }

    /// Calls in flight by weight, in thousandths.
    fn load(&self, choice: &Choice) -> u64 {
        let flying = self.gates.get(&choice.deployment.id).map_or(0, Gate::flying);
        (flying + 1) * 1000 / u64::from(choice.deployment.weight.max(1))
    }

    /// A call has ended: books, slot and gate.
    pub fn settle(&mut self, ticket: TicketId, deployment: &DeploymentId, used: &Amounts, pass: Pass, health: Health, now: Millis) {
        self.ledger.settle(ticket, used, now);
        if let Some(gate) = self.gates.get_mut(deployment) {
            let was_open = gate.is_open(now);
            gate.leave(pass, health);
            if !was_open && gate.is_open(now) {
                tracing::info!(%deployment, "the deployment takes calls again");
            }
        }
    }

    /// Undoes a grant that nobody used.
    pub fn cancel(&mut self, grant: Grant, now: Millis) {
        self.settle(grant.ticket, &grant.choice.deployment.id, &Amounts::default(), grant.pass, Health::Unknown, now);
    }
}

/// Why one choice is not possible.
enum Obstacle {
    Denied(Denied),
    Shut(Shut),
    /// Somebody whose turn it is waits for it.
    Claimed,
}

/// What all choices together say.
#[derive(Default)]
struct Verdict {
    /// The soonest that one of them may be possible.
    soonest: Option<Millis>,
    /// The mildest reason for which one is not, where none ever will be.
    lost: Option<Denied>,
}

impl Verdict {
    fn add(&mut self, obstacle: Obstacle, now: Millis) {
        let at = match obstacle {
            Obstacle::Denied(denied) if denied.when > When::Released => {
                if self.lost.as_ref().is_none_or(|lost| denied.when < lost.when) {
                    self.lost = Some(denied);
                }
                return;
            }
            Obstacle::Denied(Denied { when: When::After(wait), .. }) => now + wait,
            Obstacle::Shut(Shut::Until(at)) => at,
            Obstacle::Denied(_) | Obstacle::Shut(Shut::Probing) | Obstacle::Claimed => Millis::MAX,
        };
        self.soonest = Some(self.soonest.map_or(at, |soonest| soonest.min(at)));
    }

    fn blocked(self, asked: &Asked) -> Blocked {
        match (self.soonest, self.lost) {
            (None, Some(lost)) => Blocked::Refused(refused(&lost, &asked.model)),
            (soonest, _) => Blocked::Wait(soonest.unwrap_or(Millis::MAX)),
        }
    }
}

/// A denial for good, in the caller's words.
pub(super) fn refused(denied: &Denied, model: &ModelName) -> Refused {
    let (account, meter) = (&denied.account, denied.meter);
    match (denied.when, meter) {
        (When::Spent, _) => {
            Refused { kind: RefusedKind::Budget, retry_after: None, what: format!("the budget of {account} is spent: {meter}") }
        }
        (_, Meter::Money | Meter::BudgetTokens) => {
            let what = format!("one request may take more than the whole budget of {account}: {meter}");
            Refused { kind: RefusedKind::Budget, retry_after: None, what }
        }
        _ => {
            let what = format!("this request to {model} never fits into the limit of {account}: {meter}");
            Refused { kind: RefusedKind::TooLarge, retry_after: None, what }
        }
    }
}

fn too_late(asked: &Asked, soonest: Millis, now: Millis) -> Refused {
    let what = format!("{} cannot be sent before the deadline: its limits are used by others or its providers ask us to wait", asked.model);
    Refused { kind: RefusedKind::Deadline, retry_after: Some(wait(soonest, now)), what }
}

/// Until `soonest`; where that is unknown or now, a second.
fn wait(soonest: Millis, now: Millis) -> Duration {
    let known = Some(soonest.saturating_sub(now)).filter(|wait| *wait > 0 && soonest != Millis::MAX);
    Duration::from_millis(known.unwrap_or(A_SECOND))
}

fn bounds(settings: &Settings) -> Bounds {
    let queue = &settings.queue;
    let ageing = Millis::try_from(queue.ageing.as_millis()).unwrap_or(Millis::MAX);
    Bounds { most: queue.most, most_per_job: queue.most_per_job, ageing }
}
