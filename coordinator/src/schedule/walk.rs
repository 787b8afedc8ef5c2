//! The search over any space of schedules: first a portfolio, then the neighbourhood of the best that was measured.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::launch::{Launch, Scratch};
use kernelopt_shared::target::Language;

use super::Unsupported;
use crate::search::proposer::Judged;

/// Name in a candidate's origin.
pub const NAME: &str = "schedule";
/// By how much a candidate must beat the last centre of the search to become the next one.
const STEP: f64 = 1.03;

/// What a schedule makes of a target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Code {
    /// The text.
    pub source: String,
    /// Launches, in order; none for what is called.
    pub launches: Vec<Launch>,
    /// Memory between launches.
    pub scratch: Vec<Scratch>,
}

/// The schedules of one target.
pub trait Space {
    /// A point of the space.
    type Schedule: Clone;

    /// Language of the code.
    const LANGUAGE: Language;

    /// Schedules to try first, the best guess first.
    fn portfolio(&self) -> Vec<Self::Schedule>;

    /// Schedules one step away from `centre`.
    fn neighbours(&self, centre: &Self::Schedule) -> Vec<Self::Schedule>;

    /// A few words for people.
    fn note(&self, schedule: &Self::Schedule) -> String;

    /// Source and launches under a schedule.
    ///
    /// # Errors
    /// Where the schedule does not suit the target.
    fn code(&self, schedule: &Self::Schedule) -> Result<Code, Unsupported>;
}

/// Up to `want` candidates that `history` does not hold, most promising first.
pub fn walk<S: Space>(space: &S, history: &[Judged], want: usize) -> Vec<Candidate> {
    let mut walk = Walk::new(space, history);
    for schedule in space.portfolio() {
        walk.offer(&schedule, None);
    }
    let mut expanded = BTreeSet::new();
    while walk.fresh.len() < want {
        let Some(centre) = walk.best(&expanded) else { break };
        expanded.insert(centre);
        walk.round = expanded.len() as u32;
        let around = walk.known[&centre].clone();
        for schedule in space.neighbours(&around) {
            walk.offer(&schedule, Some(centre));
        }
    }
    walk.fresh.truncate(want);
    walk.fresh
}

/// One walk through the space, always in the same order: what was judged is passed over, what was not is fresh.
struct Walk<'a, S: Space> {
    space: &'a S,
    /// Speed-up of each judged candidate; zero for one that is not right.
    judged: BTreeMap<Digest, f64>,
    known: BTreeMap<Digest, S::Schedule>,
    fresh: Vec<Candidate>,
    round: u32,
}

impl<'a, S: Space> Walk<'a, S> {
    fn new(space: &'a S, history: &[Judged]) -> Self {
        let speed = |judged: &Judged| judged.verdict.speedup().map_or(0.0, |speedup| speedup.estimate);
        let judged = history.iter().map(|judged| (judged.candidate.id(), speed(judged))).collect();
        Self { space, judged, known: BTreeMap::new(), fresh: Vec::new(), round: 0 }
    }

    fn offer(&mut self, schedule: &S::Schedule, parent: Option<Digest>) {
        let Ok(Code { source, launches, scratch }) = self.space.code(schedule) else { return };
        let mut launches = launches.into_iter();
        let origin = Origin { proposer: NAME.to_owned(), note: self.space.note(schedule), parent, round: self.round };
        let (launch, further) = (launches.next(), launches.collect());
        let candidate = Candidate { language: S::LANGUAGE, source, launch, further, scratch, precision: Precision::Baseline, origin };
        let id = candidate.id();
        if self.known.contains_key(&id) {
            return;
        }
        self.known.insert(id, schedule.clone());
        if !self.judged.contains_key(&id) {
            self.fresh.push(candidate);
        }
    }

    /// Once everything offered so far is judged: the fastest right candidate, if its neighbours were not tried and it is
    /// faster than all whose neighbours were, by more than noise.
    fn best(&self, expanded: &BTreeSet<Digest>) -> Option<Digest> {
        if !self.fresh.is_empty() {
            return None;
        }
        let hurdle = expanded.iter().filter_map(|id| self.judged.get(id)).fold(0.0, |most: f64, speed| most.max(*speed)) * STEP;
        let right = self.known.keys().filter_map(|id| self.judged.get(id).map(|speed| (*speed, *id)));
        let fastest = right.filter(|(speed, _)| *speed > 0.0).max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        fastest.filter(|(speed, id)| *speed > hurdle && !expanded.contains(id)).map(|(_, id)| id)
    }
}
