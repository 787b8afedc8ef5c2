//! What was asked and what came of it, for `result.json`: from the journal alone.

use std::collections::BTreeSet;

use kernelopt_shared::candidate::Origin;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::language_model::Unanswered;
use kernelopt_shared::result::ModelUse;
use kernelopt_shared::target::Target;

use super::answer::{Reading, read};
use super::name::Part;
use crate::search::exchange::{Exchange, Heard};
use crate::search::state::JobState;

/// What language models were asked about `targets`; none where none was asked anything.
pub fn account(targets: &[Target], state: &JobState) -> Option<ModelUse> {
    let mut used = ModelUse::default();
    let mut candidates = BTreeSet::new();
    for (label, exchange) in state.exchanges() {
        used.questions += 1;
        match &exchange.heard {
            Some(Heard::Answer(answer)) => {
                used.answers += 1;
                used.input_tokens += answer.usage.input_tokens;
                used.cached_input_tokens += answer.usage.cached_input_tokens;
                used.output_tokens += answer.usage.output_tokens;
                let target = targets.iter().find(|target| target.label() == label);
                match target.and_then(|target| kernel(target, exchange)) {
                    Some(Some(id)) => drop(candidates.insert((label, id))),
                    Some(None) => used.no_kernel += 1,
                    None => {}
                }
            }
            Some(Heard::Unanswered(why)) => {
                *used.unanswered.entry(kind(why).to_owned()).or_default() += 1;
                used.last_problem = Some(why.to_string());
            }
            None => {}
        }
    }
    used.candidates = candidates.len() as u64;
    (used.questions > 0).then_some(used)
}

/// The candidate in an answer to a question for one, or that there is none; nothing where a kernel was not asked for.
fn kernel(target: &Target, exchange: &Exchange) -> Option<Option<Digest>> {
    let Some(Part::Code(_) | Part::Repair(..)) = Part::of_id(&exchange.question.id) else { return None };
    let origin = Origin { proposer: String::new(), note: String::new(), parent: None, round: 0 };
    Some(match read(exchange.answer()?, target, origin) {
        Reading::Candidate(candidate) => Some(candidate.id()),
        Reading::Refused(_) => None,
    })
}

const fn kind(why: &Unanswered) -> &'static str {
    match why {
        Unanswered::Later => "later",
        Unanswered::Spent { .. } => "spent",
        Unanswered::Unavailable { .. } => "unavailable",
        Unanswered::Refused { .. } => "refused",
    }
}
