//! What is known of a job: a fold over its journal, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::language_model::Unanswered;
use kernelopt_shared::stats::Interval;
use kernelopt_shared::task::{Depth, ModelCheck, ModelProfile};
use kernelopt_shared::verdict::{Outcome, Verdict};

use super::exchange::{Exchange, Heard};
use super::known::FRONTIER;
use super::plan::Step;
use super::proposer::Judged;
use crate::journal::{Entry, Event, ModelVerdictRecord, WinnerRef};

/// Candidates of one target in quarantine after which the target is left.
const BAD_FAMILY: usize = 3;

/// State of a job.
#[derive(Clone, Debug, Default)]
pub struct JobState {
    /// The compiled model, measured.
    pub profile: Option<ModelProfile>,
    /// Search of each target, by label.
    pub targets: BTreeMap<String, TargetState>,
    /// Whole-model checks, in order.
    pub model_checks: Vec<ModelCheckRecord>,
    /// Digest of the frontier when the job ended.
    pub finished: Option<Digest>,
    /// Why the job ended without outputs: it was cancelled, or could not go on.
    pub ended: Option<Ended>,
    /// Time that the job had been worked on at the last event.
    pub active: Duration,
    /// Calls since the last answer that no language model could be reached for.
    pub unavailable_in_a_row: usize,
}

/// How a job ended without outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Somebody cancelled it.
    Cancelled,
    /// It could not go on.
    Failed {
        /// Why.
        reason: String,
    },
}

/// One whole-model check.
#[derive(Clone, Debug)]
pub struct ModelCheckRecord {
    /// Winners in the optimised files.
    pub winners: Vec<WinnerRef>,
    /// Raw comparison.
    pub check: ModelCheck,
    /// Decision.
    pub verdict: ModelVerdictRecord,
}

/// Search of one target.
#[derive(Clone, Debug, Default)]
pub struct TargetState {
    /// Candidates in the order in which they were proposed.
    pub tried: Vec<Tried>,
    /// What language models were asked about it, in order.
    pub exchanges: Vec<Exchange>,
    /// No proposer has more.
    pub exhausted: bool,
    /// Why it cannot be judged.
    pub abandoned: Option<String>,
}

/// One candidate and what has been said of it.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The candidate.
    pub candidate: Candidate,
    /// Its digest.
    pub id: Digest,
    /// Outcome of each depth, as far as it got.
    pub outcomes: BTreeMap<Depth, Outcome>,
    /// UUIDs of the devices that judged it.
    pub devices: BTreeSet<String>,
    /// Why it is not given out any more: it took several agents with it.
    pub quarantined: Option<String>,
}

impl Tried {
    /// Verdict of the deepest look so far.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.outcomes.last_key_value().map(|(_, outcome)| &outcome.verdict)
    }

    /// Verdict of the look at `depth`.
    pub fn verdict_at(&self, depth: Depth) -> Option<&Verdict> {
        self.outcomes.get(&depth).map(|outcome| &outcome.verdict)
    }

    /// Speed-up at `depth`, where it was accepted there.
    pub fn accepted_at(&self, depth: Depth) -> Option<Interval> {
        match self.verdict_at(depth) {
            Some(Verdict::Accepted { speedup }) => Some(*speedup),
            _ => None,
        }
    }
}

impl TargetState {
    /// Greatest speed-up of a full look that was accepted, one where there is none.
    pub fn best_full(&self) -> f64 {
        self.tried.iter().filter_map(|t| t.accepted_at(Depth::Full)).map(|s| s.estimate).fold(1.0, f64::max)
    }

    /// True where the best known candidate of another job won here too.
    pub fn is_solved(&self) -> bool {
        self.tried.iter().any(|t| t.candidate.origin.proposer == FRONTIER && t.accepted_at(Depth::Full).is_some())
    }

    /// The winner: the fastest confirmed candidate; ties go to the lower digest.
    pub fn winner(&self) -> Option<(&Tried, Interval)> {
        if self.abandoned.is_some() {
            return None;
        }
        let confirmed = self.tried.iter().filter_map(|t| Some((t, t.accepted_at(Depth::Confirm)?)));
        confirmed.max_by(|(a, x), (b, y)| x.estimate.total_cmp(&y.estimate).then(b.id.cmp(&a.id)))
    }

    /// Candidates judged since the last one that moved the best, itself not counted.
    pub fn stale(&self) -> usize {
        self.stale_among(|_| true)
    }

    /// The same among those of one proposer: what others found neither counts for it nor against it.
    pub fn stale_of(&self, proposer: &str) -> usize {
        self.stale_among(|tried| tried.candidate.origin.proposer == proposer)
    }

    fn stale_among(&self, counts: impl Fn(&Tried) -> bool) -> usize {
        let mut best = 1.0;
        let mut stale = 0;
        for tried in self.tried.iter().filter(|t| !t.outcomes.is_empty()) {
            match tried.accepted_at(Depth::Full) {
                Some(speedup) if speedup.estimate > best * 1.01 => {
                    best = speedup.estimate;
                    stale = if counts(tried) { 0 } else { stale };
                }
                _ => stale += usize::from(counts(tried)),
            }
        }
        stale
    }

    /// The fastest right candidate that was looked at for long; of equals the first.
    pub fn fastest(&self) -> Option<&Tried> {
        let right = self.tried.iter().rev().filter_map(|t| Some((t, t.accepted_at(Depth::Full)?.estimate)));
        right.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(tried, _)| tried)
    }

    /// The history that proposers learn from.
    pub fn history(&self) -> Vec<Judged> {
        let judged = self.tried.iter().filter_map(|t| Some((t, t.verdict()?)));
        judged.map(|(t, verdict)| Judged { candidate: t.candidate.clone(), verdict: verdict.clone() }).collect()
    }

    /// Verdicts by kind, each candidate counted once.
    pub fn verdict_counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for verdict in self.tried.iter().filter_map(Tried::verdict) {
            *counts.entry(verdict.kind().to_owned()).or_default() += 1;
        }
        counts
    }
}

impl JobState {
    /// Folds a journal.
    pub fn replay<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut state = Self::default();
        entries.into_iter().for_each(|entry| state.apply(entry.active, &entry.event));
        state
    }

    /// Takes one more event. Repeated and reordered verdicts of one look change nothing: the first stands (invariant 2).
    pub fn apply(&mut self, active: Duration, event: &Event) {
        self.active = active;
        match event {
            Event::Opened { .. } => {}
            Event::Profiled { profile } => self.profile = Some(profile.clone()),
            Event::Proposed { target, candidates, .. } => {
                let state = self.targets.entry(target.clone()).or_default();
                candidates.iter().for_each(|candidate| state.add(candidate));
            }
            Event::Exhausted { target } => self.targets.entry(target.clone()).or_default().exhausted = true,
            Event::Abandoned { target, reason } => self.targets.entry(target.clone()).or_default().abandoned = Some(reason.clone()),
            Event::Judged { target, depth, outcome, device } => {
                if let Some(tried) = self.tried_mut(target, outcome.candidate) {
                    tried.outcomes.entry(*depth).or_insert_with(|| outcome.clone());
                    tried.devices.extend(device.iter().map(|device| device.uuid.clone()));
                }
            }
            Event::ModelChecked { winners, check, verdict } => {
                self.model_checks.push(ModelCheckRecord { winners: winners.clone(), check: check.clone(), verdict: verdict.clone() });
            }
            Event::Asked { target, question } => {
                let exchange = Exchange { question: question.clone(), heard: None };
                self.targets.entry(target.clone()).or_default().exchanges.push(exchange);
            }
            Event::Answered { target, question, heard } => self.hear(target, question, heard),
            Event::Finished { frontier } => self.finished = Some(*frontier),
            Event::Quarantined { step, reason, .. } => self.quarantine(step, reason),
            Event::Cancelled => self.ended = Some(Ended::Cancelled),
            Event::Failed { reason } => self.ended = Some(Ended::Failed { reason: reason.clone() }),
            Event::Drill { .. }
            | Event::Done { .. }
            | Event::Drilled
            | Event::Placed { .. }
            | Event::Leased { .. }
            | Event::Released { .. }
            | Event::Evidence { .. }
            | Event::AgentQuarantined { .. }
            | Event::AgentReadmitted { .. } => {}
        }
    }

    /// The first answer to a question stands.
    fn hear(&mut self, target: &str, question: &str, heard: &Heard) {
        let asked = self.targets.get_mut(target).and_then(|t| t.exchanges.iter_mut().find(|asked| asked.question.id == question));
        let Some(asked) = asked.filter(|asked| asked.is_open()) else { return };
        asked.heard = Some(heard.clone());
        match heard {
            Heard::Answer(_) => self.unavailable_in_a_row = 0,
            Heard::Unanswered(Unanswered::Unavailable { .. }) => self.unavailable_in_a_row += 1,
            Heard::Unanswered(_) => {}
        }
    }

    /// Everything that was asked, with the label of its target; by target, in order.
    pub fn exchanges(&self) -> impl Iterator<Item = (&str, &Exchange)> {
        self.targets.iter().flat_map(|(label, target)| target.exchanges.iter().map(|exchange| (label.as_str(), exchange)))
    }

    fn tried_mut(&mut self, target: &str, candidate: Digest) -> Option<&mut Tried> {
        self.targets.get_mut(target)?.tried.iter_mut().find(|t| t.id == candidate)
    }

    /// Three candidates of a target that take agents with them say something of the target, not of the agents.
    fn quarantine(&mut self, step: &Step, reason: &str) {
        let Step::Evaluate { target, candidate, .. } = step else { return };
        if let Some(tried) = self.tried_mut(target, *candidate) {
            tried.quarantined.get_or_insert_with(|| reason.to_owned());
        }
        let Some(search) = self.targets.get_mut(target) else { return };
        if search.tried.iter().filter(|t| t.quarantined.is_some()).count() >= BAD_FAMILY {
            search.abandoned.get_or_insert_with(|| format!("{BAD_FAMILY} of its candidates failed on every agent; the last: {reason}"));
        }
    }

    /// Candidates judged, each once.
    pub fn judged(&self) -> u64 {
        self.targets.values().flat_map(|t| &t.tried).filter(|t| !t.outcomes.is_empty()).count() as u64
    }

    /// Confirmed winners of every target, in order of label.
    pub fn winners(&self) -> Vec<WinnerRef> {
        let winners = self.targets.iter().filter_map(|(label, t)| Some((label, t.winner()?.0)));
        winners.map(|(label, tried)| WinnerRef { target: label.clone(), candidate: tried.id }).collect()
    }

    /// Digest of the frontier: which candidate stands for which target. Times are not part of it.
    pub fn frontier_digest(&self) -> Digest {
        let lines: Vec<String> = self.winners().iter().map(|w| format!("{} {}", w.target, w.candidate)).collect();
        Digest::of(lines.iter().map(|line| line.as_bytes()))
    }
}

impl TargetState {
    fn add(&mut self, candidate: &Candidate) {
        let id = candidate.id();
        if self.tried.iter().all(|t| t.id != id) {
            self.tried.push(Tried {
                candidate: candidate.clone(),
                id,
                outcomes: BTreeMap::new(),
                devices: BTreeSet::new(),
                quarantined: None,
            });
        }
    }
}
