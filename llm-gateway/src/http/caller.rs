//! Who calls, and what their headers say of a call.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use tokio::time::Instant;

use super::House;
use crate::dialect::{Dialect, Fault, Problem};
use crate::names::JobName;
use crate::queue::LOWEST;
use crate::settings::{Key, Settings, Use};

/// The job that a call is of; without it, all of a key's calls are of one job.
pub const JOB: &str = "x-kernelopt-job";
/// Its priority, from 0, which goes first, to 9.
pub const PRIORITY: &str = "x-kernelopt-priority";
/// Which of several answers to the same request is asked for.
pub const SAMPLE: &str = "x-kernelopt-sample";
/// Milliseconds within which the last attempt must have begun.
pub const DEADLINE: &str = "x-kernelopt-deadline-ms";
/// The job of calls that name none.
const NO_JOB: &str = "default";

/// Who calls, and for what.
#[derive(Clone, Debug)]
pub struct Caller {
    /// As whom.
    pub key: Arc<Key>,
    /// For what.
    pub job: JobName,
    /// How urgently.
    pub priority: u8,
    /// Which answer.
    pub sample: u32,
    /// Until when.
    pub deadline: Instant,
}

/// The dialect of a route that both have.
pub fn dialect_of(headers: &HeaderMap) -> Dialect {
    if headers.contains_key("anthropic-version") { Dialect::Anthropic } else { Dialect::Openai }
}

impl House {
    /// Who calls.
    pub(super) fn caller(&self, settings: &Settings, headers: &HeaderMap) -> Result<Caller, Problem> {
        let key = key_of(settings, headers)?;
        if key.used != Use::Models {
            return Err(Problem::new(Fault::Forbidden, "this key is for operators and calls no models"));
        }
        let job = text(headers, JOB)?.unwrap_or(NO_JOB);
        let job = JobName::parse(job).map_err(|error| Problem::new(Fault::Invalid, error.to_string()).about(JOB))?;
        let priority =
            number(headers, PRIORITY, u64::from(LOWEST))?.map_or(key.priority, |priority| u8::try_from(priority).unwrap_or(LOWEST));
        let sample = number(headers, SAMPLE, u64::from(u32::MAX))?.and_then(|sample| u32::try_from(sample).ok()).unwrap_or(0);
        let most = settings.queue.longest_wait;
        let wait = number(headers, DEADLINE, u64::MAX)?.map_or(most, |milliseconds| Duration::from_millis(milliseconds).min(most));
        Ok(Caller { key, job, priority, sample, deadline: Instant::now() + wait })
    }

    /// That an operator calls.
    pub(super) fn operator(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let key = key_of(&self.gateway.settings(), headers)?;
        if key.used == Use::Operate { Ok(()) } else { Err(Problem::new(Fault::Forbidden, "this key is for models, not for operators")) }
    }
}

fn key_of(settings: &Settings, headers: &HeaderMap) -> Result<Arc<Key>, Problem> {
    let refused = |what: &str| Problem::new(Fault::Unauthorized, what);
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| value.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key.trim());
    let presented = headers.get("x-api-key").and_then(|value| value.to_str().ok()).or(bearer);
    let presented = presented.ok_or_else(|| refused("there is no key: send authorization: Bearer KEY, or x-api-key: KEY"))?;
    settings.key_of(presented).cloned().ok_or_else(|| refused("the key is not known"))
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Problem> {
    let text = headers.get(name).map(|value| value.to_str()).transpose();
    text.map_err(|_| Problem::new(Fault::Invalid, format!("the header {name} is no text")).about(name))
}

fn number(headers: &HeaderMap, name: &'static str, most: u64) -> Result<Option<u64>, Problem> {
    let Some(text) = text(headers, name)? else { return Ok(None) };
    let number = text.trim().parse::<u64>().ok().filter(|number| *number <= most);
    let wrong = || Problem::new(Fault::Invalid, format!("the header {name} is no number from 0 to {most}")).about(name);
    number.map(Some).ok_or_else(wrong)
}
