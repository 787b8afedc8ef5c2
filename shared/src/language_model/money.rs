//! Money without fractions lost: budgets are kept to the nano-dollar.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// US dollars, in billionths. A token of the cheapest model costs tens of them; the type holds eighteen billion dollars. Sums saturate:
/// what cannot be counted is more than any budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NanoUsd(pub u64);

impl NanoUsd {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// The amount in dollars, for people and `result.json`.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for NanoUsd {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for NanoUsd {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for NanoUsd {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::add)
    }
}

impl fmt::Display for NanoUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${:.4}", self.dollars())
    }
}
