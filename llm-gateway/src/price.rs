//! What tokens cost, without a fraction lost.

use std::str::FromStr;

use kernelopt_shared::language_model::NanoUsd;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::usage::Usage;

/// Highest price that can be written, in dollars per million tokens: ten times that of any model so far, and no sum of it overflows.
const MOST_DOLLARS: u64 = 10_000;
const MILLION: u128 = 1_000_000;

/// A number of dollars, kept in billionths. It is read from decimal digits, never from a binary fraction: `0.1` is a tenth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dollars(pub NanoUsd);

/// Text that is no number of dollars.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no number of dollars: write digits, such as 2.50, with at most nine after the point")]
pub struct DollarsError(String);

impl FromStr for Dollars {
    type Err = DollarsError;

    fn from_str(text: &str) -> Result<Self, DollarsError> {
        let wrong = || DollarsError(text.chars().take(40).collect());
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 9 {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let part: u64 = format!("{part:0<9}").parse().map_err(|_| wrong())?;
        whole.checked_mul(1_000_000_000).and_then(|nanos| nanos.checked_add(part)).map(|nanos| Self(NanoUsd(nanos))).ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for Dollars {
    /// From a string or a number. The shortest digits that mean a binary fraction are those that were written.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;
        impl Visitor<'_> for Digits {
            type Value = Dollars;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of dollars, such as 2.50")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Dollars, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Dollars, E> {
                number.to_string().parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Dollars, E> {
                number.to_string().parse().map_err(E::custom)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Dollars, E> {
                number.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Digits)
    }
}

/// Dollars per million tokens. What is not written for the two kinds of cached input costs as much as other input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// A million tokens of input.
    pub input: Dollars,
    /// A million tokens of input that the provider's cache had.
    pub cached_input: Option<Dollars>,
    /// A million tokens of input that the provider's cache was given.
    pub cache_write: Option<Dollars>,
    /// A million tokens of output.
    pub output: Dollars,
}

impl Price {
    /// The dearest of its figures, where it is more than can be worked with.
    pub fn beyond_reason(&self) -> Option<Dollars> {
        let all = [Some(self.input), self.cached_input, self.cache_write, Some(self.output)];
        all.into_iter().flatten().max().filter(|most| most.0 > NanoUsd(MOST_DOLLARS * 1_000_000_000))
    }

    /// What a call costs, rounded up to the next nano-dollar once, at the end.
    pub fn cost(&self, usage: &Usage) -> NanoUsd {
        let Usage { input, cached_input, cache_write, output, .. } = usage.sane();
        let plain = input - cached_input - cache_write;
        let each = |tokens: u64, price: Dollars| u128::from(tokens) * u128::from(price.0.0);
        let sum = each(plain, self.input)
            + each(cached_input, self.cached_input.unwrap_or(self.input))
            + each(cache_write, self.cache_write.unwrap_or(self.input))
            + each(output, self.output);
        NanoUsd(u64::try_from(sum.div_ceil(MILLION)).unwrap_or(u64::MAX))
    }

    /// The most that a call can cost whose input has at most `input` tokens and its output at most `output`.
    pub fn most(&self, input: u64, output: u64) -> NanoUsd {
        let dearest = self.cost(&Usage { input, cache_write: input, output, ..Usage::default() });
        dearest.max(self.cost(&Usage { input, output, ..Usage::default() })).max(self.cost(&Usage {
            input,
            cached_input: input,
            output,
            ..Usage::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(text: &str) -> Price {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn dollars_are_read_to_the_last_digit() {
        let nanos = |text: &str| text.parse::<Dollars>().map(|dollars| dollars.0.0);
        assert_eq!(nanos("0.1"), Ok(100_000_000));
        assert_eq!(nanos("12"), Ok(12_000_000_000));
        assert_eq!(nanos("0.000000001"), Ok(1));
        for bad in ["", ".", "1.", ".5", "-1", "1e3", "0.0000000001", "NaN", "99999999999", "1_000"] {
            assert!(nanos(bad).is_err(), "{bad}");
        }
        for written in ["input = 0.15\noutput = 15", "input = \"0.15\"\noutput = \"15.00\""] {
            assert_eq!((price(written).input.0.0, price(written).output.0.0), (150_000_000, 15_000_000_000));
        }
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let price = price("input = 3\ncached_input = 0.30\ncache_write = 3.75\noutput = 15");
        let usage = Usage { input: 1000, cached_input: 600, cache_write: 100, output: 10, reasoning: 4, exact: true };
        // 300 at 3000 nano-dollars, 600 at 300, 100 at 3750, 10 at 15000.
        assert_eq!(price.cost(&usage), NanoUsd(900_000 + 180_000 + 375_000 + 150_000));
        assert_eq!(price.most(1000, 10), NanoUsd(3_750_000 + 150_000));
    }

    #[test]
    fn a_fraction_of_a_nano_dollar_is_a_whole_one() {
        let price = price("input = 0.0001\noutput = 0");
        assert_eq!(price.cost(&Usage::estimated(1, 0)), NanoUsd(1));
        assert_eq!(price.cost(&Usage::estimated(100, 0)), NanoUsd(10));
    }

    #[test]
    fn parts_larger_than_the_whole_cost_no_more_than_the_whole() {
        let price = price("input = 1\noutput = 1");
        let lie = Usage { input: 10, cached_input: u64::MAX, cache_write: u64::MAX, output: 1, reasoning: u64::MAX, exact: true };
        assert_eq!(price.cost(&lie), price.cost(&Usage::estimated(10, 1)));
        assert_eq!(price.cost(&Usage::estimated(u64::MAX, u64::MAX)), NanoUsd(u64::MAX));
    }
}
