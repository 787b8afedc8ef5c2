//! Tokens, counted before a request is sent.

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
