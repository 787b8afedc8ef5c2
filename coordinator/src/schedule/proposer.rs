//! The proposer: first a portfolio, then the neighbourhood of the best that was measured.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::target::{Language, Target};

use crate::search::proposer::{Judged, Proposer};

use super::emit::Team;
use super::space::Schedule;
use super::{portfolio, source};

/// Name in a candidate's origin.
const NAME: &str = "schedule";
/// By how much a candidate must beat the last centre of the search to become the next one.
const STEP: f64 = 1.03;

/// Generates C++ from a target's meaning.
#[derive(Debug, Default)]
pub struct ScheduleProposer;

impl ScheduleProposer {
    /// A proposer without state: everything follows from target and history.
    pub fn new() -> Self {
        Self
    }
}

impl Proposer for ScheduleProposer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn propose(&mut self, target: &Target, history: &[Judged], want: usize) -> Vec<Candidate> {
        if target.baseline.language != Language::Cpp {
            return Vec::new();
        }
        let mut walk = Walk::new(target, history);
        for schedule in portfolio::portfolio(is_parallel(target)) {
            walk.offer(&schedule, None);
        }
        let mut expanded = BTreeSet::new();
        while walk.fresh.len() < want {
            let Some(centre) = walk.best(&expanded) else { break };
            expanded.insert(centre);
            walk.round = expanded.len() as u32;
            let around = walk.known[&centre].clone();
            for schedule in portfolio::neighbours(&around, has_wide_vectors(target)) {
                walk.offer(&schedule, Some(centre));
            }
        }
        walk.fresh.truncate(want);
        walk.fresh
    }
}

/// One walk through the space, always in the same order: what was judged is passed over, what was not is fresh.
struct Walk<'a> {
    target: &'a Target,
    team: Team,
    /// Speed-up of each judged candidate; zero for one that is not right.
    judged: BTreeMap<Digest, f64>,
    known: BTreeMap<Digest, Schedule>,
    fresh: Vec<Candidate>,
    round: u32,
}

impl<'a> Walk<'a> {
    fn new(target: &'a Target, history: &[Judged]) -> Self {
        let speed = |judged: &Judged| judged.verdict.speedup().map_or(0.0, |speedup| speedup.estimate);
        let judged = history.iter().map(|judged| (judged.candidate.id(), speed(judged))).collect();
        Self { target, team: team(target), judged, known: BTreeMap::new(), fresh: Vec::new(), round: 0 }
    }

    fn offer(&mut self, schedule: &Schedule, parent: Option<Digest>) {
        let Ok(source) = source(&self.target.meaning, &self.target.scratch, schedule, self.team) else { return };
        let origin = Origin { proposer: NAME.to_owned(), note: schedule.note(), parent, round: self.round };
        let candidate = Candidate { language: Language::Cpp, source, launch: None, precision: Precision::Baseline, origin };
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

/// Threads of the compiler's own code, which bakes their number in.
fn team(target: &Target) -> Team {
    let text = &target.baseline.source;
    let digits = text.split("num_threads(").nth(1).map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    Team(digits.and_then(|digits| digits.parse().ok()).filter(|size| (1..=1024).contains(size)))
}

fn is_parallel(target: &Target) -> bool {
    target.baseline.source.contains("omp parallel")
}

/// True where the compiler's own loops take sixteen elements at a time: the processor has vectors of 512 bits.
fn has_wide_vectors(target: &Target) -> bool {
    target.baseline.source.contains("+=static_cast<int64_t>(16L)")
}
