//! The proposer: in rounds, ideas first, then a kernel for each, and repairs of those that are not right.

use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::language_model::{Question, Turn};

use super::dialogue::{Dialogue, LINEAGES, REPAIRS, Tip};
use super::name::{Part, question_id};
use super::prompt;
use crate::search::proposer::{Offer, Proposer, Scene};

/// Rounds of a target at most.
const ROUNDS: u32 = 4;
/// By how much a round must beat everything before it for there to be another.
const STEP: f64 = 1.01;
/// Questions in a row without an answer after which a target is left.
const SILENCE: usize = 3;
/// Tokens of an answer that holds ideas, hidden reasoning included.
const PLAN_TOKENS: u32 = 4_096;
/// Tokens of an answer that holds a kernel.
const CODE_TOKENS: u32 = 16_384;
/// Least share of the model's time for a kernel to be worth a question.
const LEAST_SHARE: f64 = 0.01;
/// Time over the least by bandwidth up to which nothing is left to win.
const AT_THE_ROOF: f64 = 1.05;

/// Asks a language model for kernels.
#[derive(Clone, Debug)]
pub struct LlmProposer {
    name: &'static str,
    model: String,
}

impl LlmProposer {
    /// Of this name in candidates' origins; asks for `model`.
    pub fn new(name: &'static str, model: &str) -> Self {
        Self { name, model: model.to_owned() }
    }

    fn question(&self, scene: &Scene<'_>, part: Part, turns: Vec<Turn>) -> Question {
        let (max_output_tokens, sample) = match part {
            Part::Plan(_) => (PLAN_TOKENS, 0),
            Part::Code(lineage) => (CODE_TOKENS, lineage % LINEAGES),
            Part::Repair(..) => (CODE_TOKENS, 0),
        };
        let id = question_id(scene.target.graph, &scene.target.kernel, part);
        Question { id, model: self.model.clone(), turns, max_output_tokens, temperature: None, sample }
    }

    /// What the lineages of the last round want: candidates first, then repairs.
    fn go_on(&self, scene: &Scene<'_>, dialogue: &Dialogue<'_>, round: u32) -> Progress {
        let (mut fresh, mut repairs, mut is_out) = (Vec::new(), Vec::new(), false);
        for lineage in dialogue.lineages(round) {
            match dialogue.tip(lineage) {
                Tip::Out => is_out = true,
                Tip::Fresh(candidate) => fresh.push(*candidate),
                Tip::Broken(exchange, why) => {
                    let number = (1..=REPAIRS).find(|number| dialogue.exchange(Part::Repair(lineage, *number)).is_none());
                    let code = dialogue.exchange(Part::Code(lineage));
                    if let (Some(number), Some(code), Some(answer)) = (number, code, exchange.answer()) {
                        let turns = prompt::repair(&code.question, answer, &why);
                        repairs.push(self.question(scene, Part::Repair(lineage, number), turns));
                    }
                }
                Tip::Done => {}
            }
        }
        Progress { fresh, repairs, is_out }
    }
}

/// How far a round is.
struct Progress {
    fresh: Vec<Candidate>,
    repairs: Vec<Question>,
    is_out: bool,
}

/// True where a kernel's time leaves something to win by what a model may cost.
fn has_headroom(scene: &Scene<'_>) -> bool {
    let best = scene.history.iter().filter_map(|judged| judged.verdict.speedup()).map(|s| s.estimate).fold(1.0, f64::max);
    let weight = scene.weight;
    weight.share >= LEAST_SHARE && !(scene.target.traffic.exact && weight.model_us / best <= weight.floor_us * AT_THE_ROOF)
}

impl Proposer for LlmProposer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn propose(&mut self, scene: &Scene<'_>) -> Offer {
        // Of a kernel of the model's author only the launch may change.
        if scene.target.meaning.program.is_some() {
            return Offer::default();
        }
        let dialogue = Dialogue::of(scene, self.name);
        let rounds = dialogue.rounds();
        if let Some(round) = rounds.checked_sub(1) {
            let Progress { fresh, repairs, is_out } = self.go_on(scene, &dialogue, round);
            let begins = self.begin(scene, &dialogue, round);
            let wanted = repairs.into_iter().chain(begins).filter(|_| dialogue.silence() < SILENCE);
            let offer = Offer { candidates: fresh, questions: wanted.collect() };
            let improved = dialogue.best(round, true) > dialogue.best(round, false) * STEP;
            let goes_on = is_out || dialogue.lineages(round).is_empty() || offer != Offer::default();
            if goes_on || !improved || rounds >= ROUNDS || dialogue.silence() >= SILENCE {
                return offer;
            }
        }
        if !has_headroom(scene) {
            return Offer::default();
        }
        Offer::ask(vec![self.question(scene, Part::Plan(rounds), prompt::plan(scene, LINEAGES))])
    }
}

impl LlmProposer {
    /// The kernels of a round whose ideas are there, that were not asked for.
    fn begin(&self, scene: &Scene<'_>, dialogue: &Dialogue<'_>, round: u32) -> Vec<Question> {
        let Some(ideas) = dialogue.ideas(round) else { return Vec::new() };
        let numbers = (0..LINEAGES).map(|at| (at, round * LINEAGES + at));
        let unasked = numbers.filter(|(_, lineage)| dialogue.exchange(Part::Code(*lineage)).is_none());
        let question = |(at, lineage): (u32, u32)| {
            let idea = ideas.get(at as usize).map(String::as_str);
            self.question(scene, Part::Code(lineage), prompt::code(scene, idea))
        };
        unasked.map(question).collect()
    }
}
