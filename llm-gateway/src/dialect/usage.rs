//! Tokens as each dialect counts them.
//!
//! OpenAI's `prompt_tokens` include what was read from a cache; Anthropic's three counts of input add up. Taking one for the other is the
//! usual error of translators, and it is one of money.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::usage::Usage;

/// `usage` of an OpenAI answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct OpenAiTokens {
    prompt_tokens: u64,
    // Answers of embeddings and of some servers that were cut have none.
    #[serde(default)]
    completion_tokens: u64,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(default)]
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
    #[serde(default)]
    cache_write_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
struct CompletionDetails {
    #[serde(default)]
    reasoning_tokens: Option<u64>,
}

impl OpenAiTokens {
    /// As the gateway counts.
    pub fn usage(self) -> Usage {
        let prompt = self.prompt_tokens_details.unwrap_or_default();
        let reasoning = self.completion_tokens_details.and_then(|details| details.reasoning_tokens).unwrap_or(0);
        exact([
            self.prompt_tokens,
            prompt.cached_tokens.unwrap_or(0),
            prompt.cache_write_tokens.unwrap_or(0),
            self.completion_tokens,
            reasoning,
        ])
    }
}

/// `usage` of an Anthropic answer, or what is known of it within a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct AnthropicTokens {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    /// An answer's last word on output came.
    #[serde(skip)]
    finished: bool,
}

impl AnthropicTokens {
    /// Counts are cumulative: what comes later stands.
    pub fn update(&mut self, later: Self) {
        self.finished = self.output_tokens.is_some();
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.cache_creation_input_tokens = later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
    }

    /// All tokens of the prompt.
    pub fn input(&self) -> Option<u64> {
        let cached = self.cache_creation_input_tokens.unwrap_or(0).saturating_add(self.cache_read_input_tokens.unwrap_or(0));
        self.input_tokens.map(|tokens| tokens.saturating_add(cached))
    }

    /// As the gateway counts, once a stream has said it to its end.
    pub fn usage(&self) -> Option<Usage> {
        if self.finished { self.whole() } else { None }
    }

    /// As the gateway counts, of an answer that came in one piece.
    pub fn whole(&self) -> Option<Usage> {
        let [read, written] = [self.cache_read_input_tokens, self.cache_creation_input_tokens].map(Option::unwrap_or_default);
        Some(exact([self.input()?, read, written, self.output_tokens?, 0]))
    }
}

const fn exact([input, cached_input, cache_write, output, reasoning]: [u64; 5]) -> Usage {
    Usage { input, cached_input, cache_write, output, reasoning, exact: true }
}

/// As OpenAI writes it.
pub fn openai(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input.saturating_add(usage.output),
        "prompt_tokens_details": {"cached_tokens": usage.cached_input, "cache_write_tokens": usage.cache_write},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}

/// As Anthropic writes it.
pub fn anthropic(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input.saturating_sub(usage.cached_input).saturating_sub(usage.cache_write),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cached_input,
        "output_tokens": usage.output,
    })
}
