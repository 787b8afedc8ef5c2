//! A target's exchanges as rounds of lineages: what was planned, what was coded, and what became of it.

use kernelopt_shared::candidate::{Candidate, Origin};
use kernelopt_shared::language_model::Unanswered;
use kernelopt_shared::verdict::Verdict;

use super::answer::{Reading, ideas, read};
use super::name::Part;
use crate::search::exchange::Exchange;
use crate::search::proposer::Scene;

/// Kernels that are asked for in a round: each for another idea.
pub(super) const LINEAGES: u32 = 3;
/// Repairs of a lineage at most.
pub(super) const REPAIRS: u32 = 2;

/// Everything that was said about a target.
pub(super) struct Dialogue<'s> {
    scene: &'s Scene<'s>,
    name: &'static str,
}

/// The end of a lineage, as far as it got.
pub(super) enum Tip<'s> {
    /// A question, or a candidate, is out.
    Out,
    /// A candidate that nobody was offered yet.
    Fresh(Box<Candidate>),
    /// It can be repaired: the exchange that it ends with, and what is wrong.
    Broken(&'s Exchange, String),
    /// It is right, or cannot be repaired any more.
    Done,
}

impl<'s> Dialogue<'s> {
    /// Of a scene, for the proposer of this name.
    pub(super) const fn of(scene: &'s Scene<'s>, name: &'static str) -> Self {
        Self { scene, name }
    }

    /// The exchange of a part.
    pub(super) fn exchange(&self, part: Part) -> Option<&'s Exchange> {
        self.scene.exchanges.iter().find(|exchange| Part::of_id(&exchange.question.id) == Some(part))
    }

    /// Rounds that have begun.
    pub(super) fn rounds(&self) -> u32 {
        let parts = self.scene.exchanges.iter().filter_map(|exchange| Part::of_id(&exchange.question.id));
        let round = parts.map(|part| match part {
            Part::Plan(round) => round,
            Part::Code(lineage) | Part::Repair(lineage, _) => lineage / LINEAGES,
        });
        round.max().map_or(0, |last| last + 1)
    }

    /// Lineages of a round that have begun, by number.
    pub(super) fn lineages(&self, round: u32) -> Vec<u32> {
        let numbers = round * LINEAGES..(round + 1) * LINEAGES;
        numbers.filter(|number| self.exchange(Part::Code(*number)).is_some()).collect()
    }

    /// The ideas of a round; none where the planner is still out.
    pub(super) fn ideas(&self, round: u32) -> Option<Vec<String>> {
        let plan = self.exchange(Part::Plan(round))?;
        match plan.answer() {
            Some(answer) => Some(ideas(&answer.text)),
            None if plan.is_open() => None,
            // Whoever does not plan may still code.
            None => Some(Vec::new()),
        }
    }

    /// Questions in a row, up to the last that came to an end, that got no answer.
    pub(super) fn silence(&self) -> usize {
        let ended = self.scene.exchanges.iter().rev().filter(|exchange| !exchange.is_open());
        let counts = |exchange: &&Exchange| !matches!(exchange.unanswered(), None | Some(Unanswered::Later));
        ended.take_while(counts).count()
    }

    /// Exchanges of a lineage, in order.
    fn turns(&self, lineage: u32) -> impl Iterator<Item = &'s Exchange> {
        let repairs = (1..=REPAIRS).map(move |number| Part::Repair(lineage, number));
        std::iter::once(Part::Code(lineage)).chain(repairs).map_while(|part| self.exchange(part))
    }

    /// Where a lineage stands.
    pub(super) fn tip(&self, lineage: u32) -> Tip<'s> {
        let turns: Vec<&Exchange> = self.turns(lineage).collect();
        let Some(last) = turns.last() else { return Tip::Done };
        let Some(reading) = self.reading(lineage, &turns) else { return if last.is_open() { Tip::Out } else { Tip::Done } };
        let broken = |why: String| if turns.len() <= REPAIRS as usize { Tip::Broken(last, why) } else { Tip::Done };
        match reading {
            Reading::Refused(refusal) => broken(format!("It was refused before it was built: {refusal}.")),
            Reading::Candidate(candidate) if !self.scene.tried.contains(&candidate.id()) => Tip::Fresh(candidate),
            Reading::Candidate(candidate) => match self.verdict(&candidate) {
                None => Tip::Out,
                Some(verdict) => complaint(verdict).map_or(Tip::Done, broken),
            },
        }
    }

    /// What the last answer of a lineage holds; none where there is none.
    fn reading(&self, lineage: u32, turns: &[&Exchange]) -> Option<Reading> {
        let (last, before) = turns.split_last()?;
        let parent = if before.is_empty() { None } else { self.reading(lineage, before) };
        let parent = match parent {
            Some(Reading::Candidate(candidate)) => Some(candidate.id()),
            Some(Reading::Refused(_)) | None => None,
        };
        let origin = Origin { proposer: self.name.to_owned(), note: String::new(), parent, round: lineage / LINEAGES };
        let reading = read(last.answer()?, self.scene.target, origin);
        Some(match reading {
            Reading::Candidate(mut candidate) => {
                candidate.origin.note = self.note(lineage, &candidate.origin.note);
                Reading::Candidate(candidate)
            }
            refused @ Reading::Refused(_) => refused,
        })
    }

    /// What the model says that it tried; else the idea that it was given.
    fn note(&self, lineage: u32, stated: &str) -> String {
        if !stated.is_empty() {
            return stated.to_owned();
        }
        let ideas = self.ideas(lineage / LINEAGES).unwrap_or_default();
        let idea = ideas.get((lineage % LINEAGES) as usize).map_or("", String::as_str);
        if idea.is_empty() { format!("lineage {lineage}") } else { idea.chars().take(120).collect() }
    }

    fn verdict(&self, candidate: &Candidate) -> Option<&'s Verdict> {
        let id = candidate.id();
        self.scene.history.iter().find(|judged| judged.candidate.id() == id).map(|judged| &judged.verdict)
    }

    /// Greatest speed-up of an accepted candidate of `round`, or of anybody before it.
    pub(super) fn best(&self, round: u32, own: bool) -> f64 {
        let is_counted = |origin: &Origin| {
            let is_of_round = origin.proposer == self.name && origin.round == round;
            let is_later = origin.proposer == self.name && origin.round > round;
            if own { is_of_round } else { !is_of_round && !is_later }
        };
        let accepted = self.scene.history.iter().filter(|judged| is_counted(&judged.candidate.origin));
        let speeds = accepted.filter_map(|judged| match &judged.verdict {
            Verdict::Accepted { speedup } => Some(speedup.estimate),
            _ => None,
        });
        speeds.fold(1.0, f64::max)
    }
}

/// What a model can mend: nothing of a candidate that is right, however fast, nor of a host that is too busy for a figure.
pub(super) fn complaint(verdict: &Verdict) -> Option<String> {
    Some(match verdict {
        Verdict::Accepted { .. } | Verdict::NoChange { .. } | Verdict::Slower { .. } | Verdict::Unstable { .. } => return None,
        Verdict::BuildFailed { reason } => format!("It does not compile:\n{reason}"),
        Verdict::Wrong { reason } => format!("Its results are wrong: {reason}"),
        Verdict::Crashed { reason } => format!("It crashed: {reason}"),
        Verdict::Hung { waited_ms } => format!("It did not end within {waited_ms} ms."),
        Verdict::Rejected { reason } => format!("It breaks the contract: {reason}"),
    })
}
