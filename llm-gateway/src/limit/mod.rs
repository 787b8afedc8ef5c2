//! Limits: what may be taken, by whom, and what is taken.
//!
//! The core is pure: time comes in as [`Millis`], and no call waits. From the inside out:
//!
//! | module | noun |
//! |---|---|
//! | [`bucket`] | a rate: so much at once, so much a minute; what is not used comes back |
//! | [`budget`] | money or tokens that never come back |
//! | [`slots`] | calls in flight |
//! | [`account`] | the limits of one key, job, upstream, credential or deployment together |
//! | [`ledger`] | all accounts; a reservation is in all of its accounts or in none |
//! | [`spent`] | what is spent of budgets, kept over restarts |
//! | [`gate`] | whether a deployment takes calls: open, closed until, or probing |
//! | [`books`] | a ledger that several gateways may share: in memory, or in Redis ([`shared`]) |

pub mod account;
pub mod books;
pub mod bucket;
pub mod budget;
pub mod gate;
pub mod ledger;
pub mod shared;
pub mod slots;
pub mod spent;

use std::fmt;

use kernelopt_shared::language_model::NanoUsd;

/// Milliseconds on the clock of whoever keeps the books: that of a process since its start, or Redis's.
pub type Millis = u64;

/// What a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Calls.
    Requests,
    /// Tokens of input and output together.
    Tokens,
    /// Tokens of input.
    InputTokens,
    /// Tokens of output.
    OutputTokens,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Requests, Self::Tokens, Self::InputTokens, Self::OutputTokens];

    /// Its word in messages and labels.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input tokens",
            Self::OutputTokens => "output tokens",
        }
    }
}

/// So much at once, and so much a minute: in any stretch of time at most `burst` and what the stretch refills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Refilled evenly over each minute; at least 1.
    pub per_minute: u64,
    /// The most at once; at least 1.
    pub burst: u64,
}

impl Rate {
    /// A minute's worth at once, as providers count.
    pub const fn minute(per_minute: u64) -> Self {
        Self { per_minute, burst: per_minute }
    }
}

/// All limits of one account. Absent is unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// By [`Kind`].
    pub rates: [Option<Rate>; 4],
    /// Calls in flight at once.
    pub concurrent: Option<u64>,
    /// Money, once and for all.
    pub budget: Option<NanoUsd>,
    /// Tokens of input and output, once and for all.
    pub budget_tokens: Option<u64>,
}

impl Limits {
    /// True where nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// The rate of a kind.
    pub const fn rate(&self, kind: Kind) -> Option<Rate> {
        self.rates[kind as usize]
    }
}

/// What one call takes of every account: reserved before it is sent, and again when it is settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// 1, or 0 for a call that was never sent.
    pub requests: u64,
    /// Tokens of input.
    pub input: u64,
    /// Tokens of output.
    pub output: u64,
    /// Money.
    pub money: NanoUsd,
    /// Tokens that the budget of tokens is charged with: when reserved, the most that it can be.
    pub budget_tokens: u64,
}

impl Amounts {
    /// How much of a rate it takes.
    pub const fn of(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Requests => self.requests,
            Kind::Tokens => self.input.saturating_add(self.output),
            Kind::InputTokens => self.input,
            Kind::OutputTokens => self.output,
        }
    }
}

/// What a limit is on, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meter {
    /// A rate.
    Rate(Kind),
    /// Calls in flight.
    Concurrent,
    /// Money.
    Money,
    /// The budget of tokens.
    BudgetTokens,
    /// Accounts that can be kept.
    Accounts,
}

impl fmt::Display for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(kind) => write!(f, "{} per minute", kind.word()),
            Self::Concurrent => f.write_str("calls at once"),
            Self::Money => f.write_str("money"),
            Self::BudgetTokens => f.write_str("tokens in all"),
            Self::Accounts => f.write_str("accounts"),
        }
    }
}
