//! Numbers and strings of requests, none of which can be out of bounds.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

/// A value that no request may carry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {detail}")]
pub struct OutOfBounds {
    what: &'static str,
    detail: String,
}

/// A whole number, also one that a client writes as `5.0`: in JSON that is the same (RFC 8259, section 6).
struct WholeNumber;

impl Visitor<'_> for WholeNumber {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        Ok(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<u64, E> {
        // Up to 2^53 every whole number has a place among the doubles.
        let whole = value.fract() == 0.0 && (0.0..=9_007_199_254_740_991.0).contains(&value);
        if whole { Ok(value as u64) } else { Err(E::invalid_value(Unexpected::Float(value), &self)) }
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $type:ident, $int:ty, $what:literal, $least:literal, $most:literal, $default:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $type($int);

        impl $type {
            /// Least value.
            pub const LEAST: $int = $least;
            /// Greatest value.
            pub const MOST: $int = $most;

            /// Checks a number.
            ///
            /// # Errors
            /// It is out of bounds.
            pub fn new(value: $int) -> Result<Self, OutOfBounds> {
                if (Self::LEAST..=Self::MOST).contains(&value) {
                    Ok(Self(value))
                } else {
                    Err(OutOfBounds { what: $what, detail: format!("{value} is not in {} to {}", Self::LEAST, Self::MOST) })
                }
            }

            /// The number.
            pub const fn get(self) -> $int {
                self.0
            }
        }

        impl Default for $type {
            fn default() -> Self {
                Self($default)
            }
        }

        impl std::str::FromStr for $type {
            type Err = OutOfBounds;

            fn from_str(text: &str) -> Result<Self, OutOfBounds> {
                let value = text.parse().map_err(|_| OutOfBounds {
                    what: $what,
                    detail: format!("write a number from {} to {}", Self::LEAST, Self::MOST),
                })?;
                Self::new(value)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = deserializer.deserialize_u64(WholeNumber)?;
                let beyond = || OutOfBounds { what: $what, detail: format!("{value} is not in {} to {}", Self::LEAST, Self::MOST) };
                let value = <$int>::try_from(value).map_err(|_| serde::de::Error::custom(beyond()))?;
                Self::new(value).map_err(serde::de::Error::custom)
            }
        }

        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new()
                    .schema_type(Type::Integer)
                    .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
                    .description(Some($what))
                    .minimum(Some(Self::LEAST))
                    .maximum(Some(Self::MOST))
                    .default(Some(serde_json::json!($default)))
                    .into()
            }
        }

        impl ToSchema for $type {}

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Whose task goes first when a device is free: higher before lower.
    Priority, u8, "priority", 0, 9, 5
}

number! {
    /// Share of the devices among jobs of one priority.
    Weight, u8, "weight", 1, 100, 10
}

number! {
    /// Time that a job may be worked on, in seconds; at most thirty days.
    BudgetSeconds, u32, "budget in seconds", 1, 2_592_000, 600
}

number! {
    /// Tasks of a drill.
    DrillTasks, u32, "number of tasks", 1, 1_000_000, 100
}

number! {
    /// How long each task of a drill keeps a device, in milliseconds; at most ten minutes.
    BusyMs, u32, "busy time in milliseconds", 0, 600_000, 100
}

number! {
    /// Longest that a task of a drill may run, in milliseconds.
    DrillLimitMs, u32, "limit of a task in milliseconds", 1, 3_600_000, 60_000
}

number! {
    /// Candidates that a job may judge.
    MaxCandidates, u32, "greatest number of candidates", 1, 1_000_000, 1000
}

number! {
    /// Seed of every draw of a job. Whole numbers beyond 2^53 do not survive JSON everywhere (RFC 8259, section 6).
    Seed, u64, "seed", 0, 9_007_199_254_740_991, 0
}

number! {
    /// Number of an event in a job's stream; zero is before the first.
    EventNumber, u64, "number of an event", 0, 9_007_199_254_740_991, 0
}

number! {
    /// Rows of a page.
    PageSize, u32, "rows of a page", 1, 500, 100
}

number! {
    /// Tokens that language models may take for a job, prompts and answers; none is asked where it is zero.
    MaxTokens, u64, "greatest number of tokens", 0, 9_007_199_254_740_991, 0
}

number! {
    /// Money that language models may cost a job, in millionths of a dollar; zero is what the tokens cost.
    MaxCostMicroUsd, u64, "greatest cost in millionths of a dollar", 0, 9_007_199_254_740, 0
}

macro_rules! text {
    ($(#[$doc:meta])* $type:ident, $what:literal, $longest:literal, $pattern:literal, $fits:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $type(String);

        impl $type {
            /// Greatest length, in characters.
            pub const LONGEST: usize = $longest;

            /// Checks a text.
            ///
            /// # Errors
            /// It is empty, too long, or has characters that do not belong there.
            pub fn parse(text: &str) -> Result<Self, OutOfBounds> {
                let fits: fn(char) -> bool = $fits;
                if (1..=$longest).contains(&text.chars().count()) && text.chars().all(fits) {
                    Ok(Self(text.to_owned()))
                } else {
                    let detail = format!("write 1 to {} characters that match {}", $longest, $pattern);
                    Err(OutOfBounds { what: $what, detail })
                }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $type {
            type Err = OutOfBounds;

            fn from_str(text: &str) -> Result<Self, OutOfBounds> {
                Self::parse(text)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }

        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                super::text_schema($what, 1, $longest, $pattern)
            }
        }

        impl ToSchema for $type {}

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text! {
    /// What people call a job. One line of plain characters: it stands in terminals and logs as it is.
    JobName, "name of a job", 80, "^[ -~]+$", |c| (' '..='~').contains(&c)
}

text! {
    /// Where candidates come from, `schedule`.
    ProposerName, "name of a proposer", 40, "^[a-z0-9_-]+$", |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-'
}

text! {
    /// A language model, by the gateway's name for it.
    ModelName, "name of a language model", 128, "^[A-Za-z0-9._:/@+-]+$", |c| c.is_ascii_alphanumeric() || "._:/@+-".contains(c)
}

text! {
    /// Why somebody does something, for those who look later.
    Reason, "reason", 200, "^[ -~]+$", |c| (' '..='~').contains(&c)
}

impl Default for JobName {
    fn default() -> Self {
        Self("job".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_they_say() {
        for nine in ["9", "9.0", "0.9e1"] {
            assert_eq!(serde_json::from_str::<Priority>(nine).unwrap().get(), 9);
        }
        for bad in ["10", "-1", "-1.0", "1.5", "\"1\"", "1e9", "1e300", "null", "true"] {
            assert!(serde_json::from_str::<Priority>(bad).is_err(), "{bad}");
        }
        assert!(Weight::new(0).is_err() && Weight::new(100).is_ok());
        assert_eq!("12".parse::<BudgetSeconds>().unwrap().get(), 12);
        assert!("0".parse::<BudgetSeconds>().is_err() && "x".parse::<BudgetSeconds>().is_err());
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        assert_eq!(JobName::parse("llama, second try").unwrap().as_str(), "llama, second try");
        for bad in ["", "a\u{1b}[2J", "a\nb", "ü", &"x".repeat(81)] {
            assert!(JobName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn defaults_are_within_bounds() {
        assert!(Priority::new(Priority::default().get()).is_ok() && Weight::new(Weight::default().get()).is_ok());
        assert!(BudgetSeconds::new(BudgetSeconds::default().get()).is_ok() && Seed::new(Seed::default().get()).is_ok());
        assert!(MaxCandidates::new(MaxCandidates::default().get()).is_ok() && PageSize::new(PageSize::default().get()).is_ok());
    }
}
