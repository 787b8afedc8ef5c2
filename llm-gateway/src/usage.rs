//! Tokens that one call took.

use kernelopt_shared::language_model::TokenUsage;

/// Tokens of one call, whatever dialect counted them: `input` is all of the prompt, and the parts of it are within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, those from and for the provider's cache included. (OpenAI counts so; Anthropic's three counts are added up.)
    pub input: u64,
    /// Of `input`, read from the provider's cache.
    pub cached_input: u64,
    /// Of `input`, written to the provider's cache.
    pub cache_write: u64,
    /// Tokens of the answer, hidden reasoning included.
    pub output: u64,
    /// Of `output`, hidden reasoning.
    pub reasoning: u64,
    /// The provider counted. Otherwise we did: the call was cut, or the provider does not say.
    pub exact: bool,
}

impl Usage {
    /// What a call takes that the provider refused: nothing, for certain.
    pub const NONE: Self = Self { input: 0, cached_input: 0, cache_write: 0, output: 0, reasoning: 0, exact: true };

    /// Our own count.
    pub const fn estimated(input: u64, output: u64) -> Self {
        Self { input, output, cached_input: 0, cache_write: 0, reasoning: 0, exact: false }
    }

    /// Input and output.
    pub const fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// With parts no larger than what they are parts of: a provider may say anything.
    #[must_use]
    pub fn sane(self) -> Self {
        let cached_input = self.cached_input.min(self.input);
        let cache_write = self.cache_write.min(self.input - cached_input);
        Self { cached_input, cache_write, reasoning: self.reasoning.min(self.output), ..self }
    }
}

impl From<Usage> for TokenUsage {
    fn from(usage: Usage) -> Self {
        Self { input_tokens: usage.input, cached_input_tokens: usage.cached_input, output_tokens: usage.output }
    }
}
