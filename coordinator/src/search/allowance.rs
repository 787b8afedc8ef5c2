//! What a job may spend on language models: no question is asked that could spend more.

use kernelopt_shared::language_model::{Answer, NanoUsd, Question, Unanswered};

use super::exchange::Exchange;
use super::state::JobState;

/// Bytes of a token at least, over a whole prompt: text and source run at about four, and the worst that was seen of code is three.
const BYTES_OF_A_TOKEN: u64 = 3;
/// Tokens that a provider adds to each turn at most.
const TURN_TOKENS: u64 = 16;

/// Limits of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Tokens, of prompts and answers; zero: no model is asked.
    pub max_tokens: u64,
    /// Money; zero: what the tokens cost.
    pub max_cost: NanoUsd,
}

/// Whether a question may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affordable {
    /// It fits, whatever the answers that are out take.
    Now,
    /// Perhaps, once they are in.
    Later,
    /// It does not.
    Never,
}

/// Tokens that a question can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// Of its prompt.
    pub input: u64,
    /// Of its answer.
    pub output: u64,
}

impl Most {
    /// Of `question`.
    pub fn of(question: &Question) -> Self {
        let turn = |content: &String| (content.len() as u64).div_ceil(BYTES_OF_A_TOKEN) + TURN_TOKENS;
        Self { input: question.turns.iter().map(|said| turn(&said.content)).sum(), output: u64::from(question.max_output_tokens) }
    }

    /// Both.
    pub const fn tokens(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// What was spent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Tokens.
    pub tokens: u64,
    /// Money.
    pub cost: NanoUsd,
}

impl Spent {
    /// By all answers of a job.
    pub fn of(state: &JobState) -> Self {
        let answers = state.exchanges().filter_map(|(_, exchange)| exchange.answer());
        answers.fold(Self::default(), |Self { tokens, cost }, answer| Self {
            tokens: tokens.saturating_add(answer.usage.total()),
            cost: cost + answer.cost,
        })
    }
}

impl Allowance {
    /// Whether `question` may be asked now.
    pub fn affords(&self, state: &JobState, question: &Question) -> Affordable {
        let open: Vec<&Question> = state.exchanges().filter(|(_, e)| e.is_open()).map(|(_, e)| &e.question).collect();
        let wait = if open.is_empty() { Affordable::Never } else { Affordable::Later };
        if gives_up(state) {
            return Affordable::Never;
        }
        let spent = Spent::of(state);
        let all = |open: &[&Question]| -> u64 { open.iter().map(|q| Most::of(q).tokens()).fold(spent.tokens, u64::saturating_add) };
        let own = Most::of(question).tokens();
        if spent.tokens.saturating_add(own) > self.max_tokens {
            return Affordable::Never;
        }
        if all(&open).saturating_add(own) > self.max_tokens {
            return wait;
        }
        if self.max_cost == NanoUsd::ZERO {
            return Affordable::Now;
        }
        let Some(price) = Price::at_most(state) else {
            // What a call costs is known from the first: until then there is one at a time.
            return if open.is_empty() { Affordable::Now } else { Affordable::Later };
        };
        let own = price.of(Most::of(question));
        let under_way: NanoUsd = open.iter().map(|question| price.of(Most::of(question))).sum();
        match (spent.cost + own > self.max_cost, spent.cost + under_way + own > self.max_cost) {
            (true, _) => Affordable::Never,
            (false, true) => wait,
            (false, false) => Affordable::Now,
        }
    }
}

/// Calls in a row, over all targets, that nobody answered: then no more are made.
const DEAF: usize = 3;

/// True where asking has become pointless: the money is gone, or nobody has answered for some time.
fn gives_up(state: &JobState) -> bool {
    let is_spent = |(_, exchange): (_, &Exchange)| matches!(exchange.unanswered(), Some(Unanswered::Spent { .. }));
    state.unavailable_in_a_row >= DEAF || state.exchanges().any(is_spent)
}

/// Upper bounds on what a token costs, in nano-dollars, from what answers cost. Prices are linear in tokens, and a cached token is not dearer
/// than another; so no answer can have cost less than its own tokens of one kind alone.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Price {
    input: f64,
    output: f64,
}

impl Price {
    /// None where nothing was answered yet.
    fn at_most(state: &JobState) -> Option<Self> {
        let answers = state.exchanges().filter_map(|(_, exchange): (_, &Exchange)| exchange.answer());
        answers.map(Self::from_answer).reduce(|a, b| Self { input: a.input.min(b.input), output: a.output.min(b.output) })
    }

    fn from_answer(answer: &Answer) -> Self {
        let usage = answer.usage;
        let uncached = usage.input_tokens.saturating_sub(usage.cached_input_tokens);
        let per_token = |tokens: u64| if tokens == 0 { f64::INFINITY } else { answer.cost.0 as f64 / tokens as f64 };
        if answer.cost == NanoUsd::ZERO {
            return Self { input: 0.0, output: 0.0 };
        }
        Self { input: per_token(uncached), output: per_token(usage.output_tokens) }
    }

    /// What tokens cost at most; saturates.
    fn of(self, most: Most) -> NanoUsd {
        NanoUsd((self.input * most.input as f64 + self.output * most.output as f64).ceil() as u64)
    }
}
