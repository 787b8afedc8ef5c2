//! Whose turn it is: deficit round robin (Shreedhar and Varghese, 1996) by reserved tokens.
//!
//! Each job has a *deficit*, the tokens that it may send. In a round every job that waits gets its weight; whose deficit covers its next
//! request sends it and pays. A round is a token or a few, and rounds are counted, not walked: as many pass at once as the next job needs.
//!
//! - Priorities are strict: while a request of a higher one can be sent, no other is. A lane of which nothing was sent for the time of ageing,
//!   though something waited, counts as one priority higher, so that none waits for ever. (It is not the age of a request that counts: those of
//!   a job that floods the queue are all old, and would go before everybody's.)
//! - Retries go before the other requests of their job, and otherwise requests of a job, model and priority keep their order.
//! - Who cannot go on for a reason of its own (its limit, its model) holds nobody up, and gets nothing for the rounds that it misses.
//!   Who cannot for want of something that others want too keeps its turn: the caller's `try_send` sees to that, by refusing the others.
//! - A job that has nothing to send has no deficit: idleness earns nothing.
//!
//! Pure: time comes in, and nothing waits here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use crate::limit::Millis;

/// A request that waits.
#[derive(Clone, Debug)]
pub struct Entry<J, L, T> {
    /// Its job.
    pub job: J,
    /// The job's part.
    pub weight: u32,
    /// Requests of one lane keep their order; those of another go on without them. Its model.
    pub lane: L,
    /// 0 goes first.
    pub priority: u8,
    /// The tokens that it reserves.
    pub cost: u64,
    /// It is not sent after this.
    pub deadline: Millis,
    /// It goes before those of its job that are not retries.
    pub again: bool,
    /// What it is.
    pub item: T,
}

/// Where a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u64);

/// Why a request may not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Too many wait.
    Queue,
    /// Too many of its job wait.
    Job,
}

/// The bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Requests in all.
    pub most: usize,
    /// Requests of one job.
    pub most_per_job: usize,
    /// After so long without its turn a lane counts as one priority higher; at least 1.
    pub ageing: Millis,
}

/// The order within a lane: retries before others, then as they came.
type Order = (bool, Place);

struct Waiting<T> {
    since: Millis,
    cost: u64,
    deadline: Millis,
    item: T,
}

struct Lane<T> {
    waits: BTreeMap<Order, Waiting<T>>,
    /// When the last one was sent.
    served: Millis,
}

struct Line<L, T> {
    /// By priority and lane; none is empty.
    lanes: BTreeMap<(u8, L), Lane<T>>,
    weight: u64,
    deficit: u64,
    len: usize,
}

/// Requests that wait, by job.
pub struct Queue<J, L, T> {
    bounds: Bounds,
    /// Jobs that wait, in the order of their turns; none is empty.
    ring: Vec<(J, Line<L, T>)>,
    places: HashMap<Place, (J, u8, L, bool)>,
    deadlines: BTreeSet<(Millis, Place)>,
    next_place: u64,
}

/// A request whose turn it may be.
struct Head<L> {
    /// Priority, with ageing.
    class: u8,
    order: Order,
    lane: (u8, L),
}

impl<J: Clone + Eq + Hash, L: Clone + Ord + Hash, T> Queue<J, L, T> {
    /// An empty one.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, ring: Vec::new(), places: HashMap::new(), deadlines: BTreeSet::new(), next_place: 0 }
    }

    /// Takes over other bounds; who waits already goes on waiting.
    pub fn rebound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True where none waits.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Jobs that wait, with how many requests each.
    pub fn jobs(&self) -> impl Iterator<Item = (&J, usize)> {
        self.ring.iter().map(|(job, line)| (job, line.len))
    }

    /// Every request that waits, in no order.
    pub fn items(&mut self) -> impl Iterator<Item = &mut T> {
        let lanes = self.ring.iter_mut().flat_map(|(_, line)| line.lanes.values_mut());
        lanes.flat_map(|lane| lane.waits.values_mut()).map(|waiting| &mut waiting.item)
    }

    /// The deadline that comes first.
    pub fn first_deadline(&self) -> Option<Millis> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// A request begins to wait.
    ///
    /// # Errors
    /// Too many do; nothing has changed.
    pub fn push(&mut self, entry: Entry<J, L, T>, now: Millis) -> Result<Place, Full> {
        let at = self.ring.iter().position(|(job, _)| *job == entry.job);
        if self.len() >= self.bounds.most {
            return Err(Full::Queue);
        }
        if at.is_some_and(|at| self.ring[at].1.len >= self.bounds.most_per_job) {
            return Err(Full::Job);
        }
        let at = at.unwrap_or_else(|| {
            self.ring.push((entry.job.clone(), Line { lanes: BTreeMap::new(), weight: 1, deficit: 0, len: 0 }));
            self.ring.len() - 1
        });
        let place = Place(self.next_place);
        self.next_place += 1;
        let line = &mut self.ring[at].1;
        line.weight = u64::from(entry.weight.max(1));
        line.len += 1;
        let waiting = Waiting { since: now, cost: entry.cost, deadline: entry.deadline, item: entry.item };
        let lane = line.lanes.entry((entry.priority, entry.lane.clone())).or_insert_with(|| Lane { waits: BTreeMap::new(), served: now });
        lane.waits.insert((!entry.again, place), waiting);
        self.places.insert(place, (entry.job, entry.priority, entry.lane, entry.again));
        self.deadlines.insert((entry.deadline, place));
        Ok(place)
    }

    /// A request waits no more.
    pub fn remove(&mut self, place: Place) -> Option<T> {
        let (job, priority, lane, again) = self.places.remove(&place)?;
        let at = self.ring.iter().position(|(other, _)| *other == job)?;
        let line = &mut self.ring[at].1;
        let waits = &mut line.lanes.get_mut(&(priority, lane.clone()))?.waits;
        let waiting = waits.remove(&(!again, place))?;
        if waits.is_empty() {
            line.lanes.remove(&(priority, lane));
        }
        line.len -= 1;
        self.deadlines.remove(&(waiting.deadline, place));
        if self.ring[at].1.len == 0 {
            self.ring.remove(at);
        }
        Some(waiting.item)
    }

    /// Those whose deadline is over.
    pub fn expire(&mut self, now: Millis) -> Vec<T> {
        let mut over = Vec::new();
        while let Some((deadline, place)) = self.deadlines.first().copied()
            && deadline <= now
        {
            over.extend(self.remove(place));
            self.deadlines.remove(&(deadline, place));
        }
        over
    }

    /// Offers requests to `try_send` in the order of their turns until it takes one, and returns that. None: it took none.
    pub fn next(&mut self, now: Millis, mut try_send: impl FnMut(&T) -> bool) -> Option<T> {
        let mut heads: Vec<Vec<Head<L>>> = self.ring.iter().map(|(_, line)| self.heads(line, now)).collect();
        // Each time round, a head is sent or struck off.
        loop {
            let class = heads.iter().filter_map(|heads| heads.first()).map(|head| head.class).min()?;
            let at = self.turn(&heads, class)?;
            let head = &heads[at][0];
            let waiting = &self.ring[at].1.lanes[&head.lane].waits[&head.order];
            if try_send(&waiting.item) {
                let (place, cost) = (head.order.1, waiting.cost);
                self.pay(&heads, class, at, cost, now);
                return self.remove(place);
            }
            heads[at].remove(0);
        }
    }

    /// The first request of each lane, in the order in which the job would send them.
    fn heads(&self, line: &Line<L, T>, now: Millis) -> Vec<Head<L>> {
        let mut heads: Vec<_> = line
            .lanes
            .iter()
            .filter_map(|(key, lane)| {
                let (order, waiting) = lane.waits.first_key_value()?;
                let aged = now.saturating_sub(waiting.since.max(lane.served)) / self.bounds.ageing.max(1);
                let class = key.0.saturating_sub(u8::try_from(aged).unwrap_or(u8::MAX));
                Some(Head { class, order: *order, lane: key.clone() })
            })
            .collect();
        heads.sort_by_key(|head| (head.class, head.order));
        heads
    }

    /// Rounds until a job can pay for its head.
    fn rounds(&self, at: usize, head: &Head<L>) -> u64 {
        let line = &self.ring[at].1;
        line.lanes[&head.lane].waits[&head.order].cost.saturating_sub(line.deficit).div_ceil(line.weight)
    }

    /// The job of a class that can pay first; among equals the one whose turn is longest ago.
    fn turn(&self, heads: &[Vec<Head<L>>], class: u8) -> Option<usize> {
        let of_class =
            heads.iter().enumerate().filter_map(|(at, heads)| heads.first().filter(|head| head.class == class).map(|head| (at, head)));
        of_class.min_by_key(|(at, head)| self.rounds(*at, head)).map(|(at, _)| at)
    }

    /// Lets the rounds pass that the sender needs, takes its cost, and puts it behind the others.
    fn pay(&mut self, heads: &[Vec<Head<L>>], class: u8, sender: usize, cost: u64, now: Millis) {
        let rounds = self.rounds(sender, &heads[sender][0]);
        for (at, heads) in heads.iter().enumerate() {
            if heads.first().is_some_and(|head| head.class == class) {
                let line = &mut self.ring[at].1;
                line.deficit = line.deficit.saturating_add(rounds.saturating_mul(line.weight));
            }
        }
        let (job, mut line) = self.ring.remove(sender);
        line.deficit = line.deficit.saturating_sub(cost);
        if let Some(lane) = line.lanes.get_mut(&heads[sender][0].lane) {
            lane.served = now;
        }
        self.ring.push((job, line));
    }
}
