//! Numbers in their ranges, and limits.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;

use super::check::{Checked, Checker};
use super::error::{SettingsError, line_of};
use super::written;
use crate::limit::{Kind, Limits, Rate};

/// The largest limit: sums of such numbers are exact in Redis too, whose scripts count in binary64.
pub(super) const MOST: u64 = 10_000_000_000;
/// The largest budget, in nano-dollars: a million dollars.
const MOST_BUDGET: u64 = 1_000_000_000_000_000;
/// Longest time that can be set: a week.
const WEEK_MS: u64 = 7 * 24 * 3600 * 1000;

impl Checker<'_> {
    pub(super) fn line<T>(&self, value: &Spanned<T>) -> usize {
        line_of(self.text, value.span().start)
    }

    pub(super) fn wrong<T>(&self, value: &Spanned<T>, what: impl Into<String>, remedy: impl Into<String>) -> SettingsError {
        SettingsError::new(what, remedy).at(self.line(value))
    }

    pub(super) fn number(&self, name: &str, value: Option<&Spanned<u64>>, range: RangeInclusive<u64>, default: u64) -> Checked<u64> {
        let Some(value) = value else { return Ok(default) };
        if range.contains(value.get_ref()) {
            return Ok(*value.get_ref());
        }
        let remedy = format!("Write a number from {} to {}.", range.start(), range.end());
        Err(self.wrong(value, format!("{name} is {}", value.get_ref()), remedy))
    }

    pub(super) fn ms(&self, name: &str, value: Option<&Spanned<u64>>, default: u64) -> Checked<Duration> {
        self.number(name, value, 1..=WEEK_MS, default).map(Duration::from_millis)
    }

    pub(super) fn seconds(&self, name: &str, value: Option<&Spanned<u64>>, default: u64) -> Checked<Duration> {
        self.number(name, value, 1..=WEEK_MS / 1000, default).map(Duration::from_secs)
    }

    pub(super) fn weight(&self, value: Option<&Spanned<u64>>) -> Checked<u32> {
        self.small("weight", value, 1..=1000, 1)
    }

    pub(super) fn small(&self, name: &str, value: Option<&Spanned<u64>>, range: RangeInclusive<u32>, default: u32) -> Checked<u32> {
        let wide = u64::from(*range.start())..=u64::from(*range.end());
        self.number(name, value, wide, default.into()).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    pub(super) fn limits(&self, limits: &written::Limits) -> Checked<Arc<Limits>> {
        let burst_s = self.number("burst_s", limits.burst_s.as_ref(), 1..=3600, 60)?;
        let rate = |name: &str, value: Option<&Spanned<u64>>| {
            let Some(_) = value else { return Ok(None) };
            let per_minute = self.number(name, value, 1..=MOST, 0)?;
            // No smaller than one request; no larger than what is exact.
            Ok(Some(Rate { per_minute, burst: (per_minute * burst_s / 60).clamp(1, MOST) }))
        };
        let mut rates = [None; 4];
        rates[Kind::Requests as usize] = rate("requests_per_minute", limits.requests_per_minute.as_ref())?;
        rates[Kind::Tokens as usize] = rate("tokens_per_minute", limits.tokens_per_minute.as_ref())?;
        rates[Kind::InputTokens as usize] = rate("input_tokens_per_minute", limits.input_tokens_per_minute.as_ref())?;
        rates[Kind::OutputTokens as usize] = rate("output_tokens_per_minute", limits.output_tokens_per_minute.as_ref())?;
        let some = |value: &Spanned<u64>, name: &str, range| self.number(name, Some(value), range, 0);
        if let Some(budget) = &limits.budget_usd
            && budget.get_ref().0.0 > MOST_BUDGET
        {
            return Err(self.wrong(budget, "budget_usd is more than a million dollars", "Write a smaller budget."));
        }
        Ok(Arc::new(Limits {
            rates,
            concurrent: limits.concurrent.as_ref().map(|value| some(value, "concurrent", 1..=MOST)).transpose()?,
            budget: limits.budget_usd.as_ref().map(|budget| budget.get_ref().0),
            budget_tokens: limits.budget_tokens.as_ref().map(|value| some(value, "budget_tokens", 0..=MOST_BUDGET)).transpose()?,
        }))
    }
}
