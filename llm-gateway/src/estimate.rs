//! Tokens, counted before a request is sent.
//!
//! Where a model's vocabulary is public its tokens are counted by it; else bytes are divided by a ratio, which starts as set and is learned from
//! what the provider counts. Rates are charged with what is likely; budgets with what cannot be passed: no byte-level vocabulary makes more
//! tokens than there are bytes.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::names::ModelName;
use crate::settings::{Counting, Model, Vocabulary};

/// Of a long text so many bytes are counted, and the rest by the ratio that they have: counting takes microseconds a kilobyte.
const COUNTED_BYTES: usize = 64 << 10;
/// Tokens that a dialect adds around each turn of a conversation (role, separators), and once at the end: more than any known one does.
const TOKENS_PER_TURN: u64 = 8;
/// Part of a newly seen ratio in the learned one.
const LEARNED_PART: f64 = 0.1;
/// Ratios that are believed.
const LEAST_RATIO: f64 = 1.0;
const MOST_RATIO: f64 = 16.0;
/// Models of which a ratio is kept. They come from the settings, whose reloads bring new ones.
const MOST_MODELS: usize = 10_000;

/// What a request may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Bytes of its text; what the provider counts in them teaches the estimator.
    pub bytes: u64,
    /// Tokens of input that are likely. Rates are charged with it.
    pub input: u64,
    /// The most tokens of input that it can have. Budgets are charged with it, so that they are never overrun.
    pub most_input: u64,
    /// The most tokens of output that it may have.
    pub output: u64,
}

impl Estimate {
    /// For what is known exactly.
    pub const fn exact(input: u64, output: u64) -> Self {
        Self { bytes: 0, input, most_input: input, output }
    }
}

/// Counts tokens; learns.
#[derive(Debug, Default)]
pub struct Estimator {
    /// Bytes to a token, by model.
    learned: RwLock<HashMap<ModelName, f64>>,
}

impl Estimator {
    /// What a request may take whose turns have these texts (tools and schemas count as turns) and whose answer has at most `output` tokens, all
    /// answers together where it asks for several.
    pub fn estimate<'a>(&self, model: &Model, texts: impl IntoIterator<Item = &'a str>, output: u64) -> Estimate {
        let (mut bytes, mut around, mut counted) = (0, TOKENS_PER_TURN, Counted::default());
        for text in texts {
            bytes += text.len() as u64;
            around += TOKENS_PER_TURN;
            if let Counting::Vocabulary(vocabulary) = model.counting {
                counted.add(text, vocabulary);
            }
        }
        let by_ratio = |ratio: f64| (bytes as f64 / ratio).ceil() as u64;
        let input = match model.counting {
            Counting::Vocabulary(_) => counted.total(bytes),
            Counting::BytesPerToken(set) => by_ratio(self.ratio(&model.name).unwrap_or(set)),
        };
        Estimate { bytes, input: input + around, most_input: bytes + around, output }
    }

    /// Tokens of a piece of output that was cut before the provider had counted it.
    pub fn tokens(&self, model: &Model, text: &str) -> u64 {
        match model.counting {
            Counting::Vocabulary(vocabulary) => {
                let mut counted = Counted::default();
                counted.add(text, vocabulary);
                counted.total(text.len() as u64)
            }
            Counting::BytesPerToken(set) => (text.len() as f64 / self.ratio(&model.name).unwrap_or(set)).ceil() as u64,
        }
    }

    /// A provider counted `input` tokens in `bytes`. Small texts say little: what is around them weighs more.
    pub fn learn(&self, model: &ModelName, bytes: u64, input: u64) {
        if bytes < 200 || input == 0 {
            return;
        }
        let seen = (bytes as f64 / input as f64).clamp(LEAST_RATIO, MOST_RATIO);
        let mut learned = self.learned.write().unwrap_or_else(PoisonError::into_inner);
        if learned.len() < MOST_MODELS || learned.contains_key(model) {
            learned.entry(model.clone()).and_modify(|ratio| *ratio += LEARNED_PART * (seen - *ratio)).or_insert(seen);
        }
    }

    /// The ratio that was learned for a model.
    pub fn ratio(&self, model: &ModelName) -> Option<f64> {
        self.learned.read().unwrap_or_else(PoisonError::into_inner).get(model).copied()
    }
}

/// A count by vocabulary.
#[derive(Default)]
struct Counted {
    bytes: usize,
    tokens: usize,
}

impl Counted {
    fn add(&mut self, text: &str, vocabulary: Vocabulary) {
        let room = COUNTED_BYTES.saturating_sub(self.bytes).min(text.len());
        let part = &text[..text.floor_char_boundary(room)];
        let tokenizer = match vocabulary {
            Vocabulary::Cl100kBase => bpe_openai::cl100k_base(),
            Vocabulary::O200kBase => bpe_openai::o200k_base(),
        };
        self.tokens += tokenizer.count(part);
        self.bytes += part.len();
    }

    /// For all `bytes`, of which the first were counted.
    fn total(&self, bytes: u64) -> u64 {
        match self.bytes as u64 {
            0 => 0,
            counted => (u128::from(bytes) * self.tokens as u128).div_ceil(u128::from(counted)).try_into().unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(counting: Counting) -> Model {
        let name = ModelName::parse("m").expect("a name");
        Model { name, deployments: Vec::new(), counting, output_tokens: 1, context_tokens: None }
    }

    #[test]
    fn a_public_vocabulary_is_counted_by() {
        let estimator = Estimator::default();
        for vocabulary in [Vocabulary::Cl100kBase, Vocabulary::O200kBase] {
            let model = model(Counting::Vocabulary(vocabulary));
            assert_eq!(estimator.tokens(&model, "hello world"), 2);
            let estimate = estimator.estimate(&model, ["hello world", "hello world"], 5);
            assert_eq!(estimate, Estimate { bytes: 22, input: 4 + 24, most_input: 22 + 24, output: 5 });
            assert_eq!(estimator.estimate(&model, [], 0).input, TOKENS_PER_TURN);
        }
    }

    #[test]
    fn of_a_long_text_the_start_speaks_for_the_rest() {
        let model = model(Counting::Vocabulary(Vocabulary::O200kBase));
        let text = "let x = y + 1; // größer\n".repeat(8_000);
        let estimator = Estimator::default();
        let all = bpe_openai::o200k_base().count(&text) as f64;
        let (estimated, bound) = (estimator.estimate(&model, [text.as_str()], 0).input as f64, text.len() as f64);
        assert!((estimated / all - 1.0).abs() < 0.01, "{estimated} for {all}");
        assert!(all < bound);
    }

    #[test]
    fn a_ratio_is_learned_and_bounded() {
        let estimator = Estimator::default();
        let model = model(Counting::BytesPerToken(3.0));
        let text = "x".repeat(3_000);
        let estimate = |estimator: &Estimator| estimator.estimate(&model, [text.as_str()], 0).input - 2 * TOKENS_PER_TURN;
        assert_eq!(estimate(&estimator), 1_000);
        (0..100).for_each(|_| estimator.learn(&model.name, 4_000, 1_000));
        assert_eq!(estimate(&estimator), 750);
        // Too short to say anything, and figures that nobody believes.
        estimator.learn(&model.name, 10, 1_000);
        assert_eq!(estimate(&estimator), 750);
        (0..1_000).for_each(|_| estimator.learn(&model.name, 1_000, u64::MAX));
        assert_eq!(estimate(&estimator), 3_000);
    }
}
