//! Why an upstream did not answer, and what follows: the table that retries and failover go by.
//!
//! | it | sign of health | next |
//! |---|---|---|
//! | 429 | busy: closed until its hint | another deployment, or the same when it opens |
//! | 503, 529 | failed: closed until its hint | another deployment |
//! | other 5xx, 408, 409, 425, silence, no connection, no answer in the answer | failed | another deployment |
//! | 401, 403 | the credential | another credential, at once |
//! | 402, or 400 and 429 that speak of money | the credential | another credential, at once |
//! | 400, 404, 413, 422 and other 4xx | it is well | none: the request itself is refused |

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};

use crate::breaker::Sign;
use crate::dialect::complaint::Complaint;
use crate::dialect::{Fault, Problem};
use crate::queue::Headers;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is asked too fast.
    RateLimited,
    /// It has too much to do, for everybody.
    Overloaded,
    /// An error of its own.
    ServerError,
    /// It was silent for too long; which of the four times ran out.
    Silent(Wait),
    /// No connection could be had, or it broke before an answer came.
    Unreachable,
    /// What came is no answer.
    Corrupt,
    /// The answer broke off.
    Cut,
    /// It does not know or does not like the key.
    Credential,
    /// The key's money is gone.
    Money,
    /// It refuses the request as it is.
    Refused(Fault),
}

/// The four times that are given to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// For a connection.
    Connect,
    /// For the first byte of an answer.
    FirstByte,
    /// Between two pieces of an answer.
    Idle,
    /// For all of it.
    Total,
}

/// Where to go after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To another deployment; where there is none, to the same again after a pause.
    Another,
    /// To another deployment, and not to this one again.
    NotHere,
    /// Nowhere.
    Stop,
}

/// An upstream did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub kind: Kind,
    /// Its wish for a pause.
    pub retry_after: Option<Duration>,
    /// What is left of the provider's limits, where it said.
    pub seen: Box<Headers>,
    /// What can be said of it to callers and in logs: nothing that an upstream wrote, unless it was cleaned of secrets.
    pub what: String,
}

impl Failure {
    /// One of these.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, retry_after: None, seen: Box::default(), what: what.into() }
    }

    /// What an error status says. `key` is withheld where the upstream repeats it, and `plain` are words that it may say.
    pub fn of_status(status: StatusCode, complaint: Option<&Complaint>, retry_after: Option<Duration>, key: &str, plain: &[&str]) -> Self {
        let (about_money, about_length) = complaint.map_or((false, false), |c| (c.is_about_money(), c.is_about_length()));
        let kind = match status.as_u16() {
            402 => Kind::Money,
            400 | 403 | 429 if about_money => Kind::Money,
            401 | 403 => Kind::Credential,
            400 | 413 | 422 | 500 if about_length => Kind::Refused(Fault::ContextLength),
            404 => Kind::Refused(Fault::NotFound),
            408 => Kind::Silent(Wait::FirstByte),
            413 => Kind::Refused(Fault::TooLarge),
            429 => Kind::RateLimited,
            503 | 529 => Kind::Overloaded,
            409 | 425 | 500.. => Kind::ServerError,
            400..500 => Kind::Refused(Fault::Invalid),
            _ => Kind::Corrupt,
        };
        let words = complaint.filter(|_| matches!(kind, Kind::Refused(_))).map(|complaint| complaint.without_secrets(key, plain));
        let what = match words.filter(|words| !words.is_empty()) {
            Some(words) => words,
            None => format!("status {}", status.as_u16()),
        };
        Self { retry_after, ..Self::new(kind, what) }
    }

    /// What an error within an answer with a good status says.
    pub fn of_complaint(complaint: &Complaint, key: &str, plain: &[&str]) -> Self {
        let status = match (complaint.kind.as_str(), complaint.code.as_str()) {
            ("overloaded_error", _) | (_, "overloaded" | "529" | "503") => 529,
            ("rate_limit_error" | "rate_limit_exceeded" | "requests" | "tokens", _) | (_, "rate_limit_exceeded" | "429") => 429,
            ("authentication_error", _) | (_, "invalid_api_key" | "401") => 401,
            ("permission_error", _) | (_, "403") => 403,
            ("billing_error" | "insufficient_quota", _) => 402,
            ("timeout_error", _) | (_, "timeout") => 408,
            ("not_found_error", _) | (_, "model_not_found" | "404") => 404,
            ("invalid_request_error" | "exceed_context_size_error", _) | (_, "400") => 400,
            _ => 500,
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::of_status(status, Some(complaint), None, key, plain)
    }

    /// What it says of the deployment's health.
    pub const fn sign(&self) -> Sign {
        match self.kind {
            Kind::RateLimited => Sign::Busy(self.retry_after),
            Kind::Overloaded | Kind::ServerError | Kind::Silent(_) | Kind::Unreachable | Kind::Corrupt | Kind::Cut => {
                Sign::Failed(self.retry_after)
            }
            Kind::Credential | Kind::Money => Sign::Credential,
            Kind::Refused(_) => Sign::Answered,
        }
    }

    /// Where to go now.
    pub const fn next(&self) -> Next {
        match self.kind {
            Kind::Refused(_) => Next::Stop,
            Kind::Credential | Kind::Money => Next::NotHere,
            _ => Next::Another,
        }
    }

    /// True where the upstream has done no work for it, for certain: nothing is to be paid.
    pub const fn is_free(&self) -> bool {
        !matches!(self.kind, Kind::Silent(Wait::FirstByte | Wait::Idle | Wait::Total) | Kind::Cut | Kind::Corrupt)
    }

    /// One word, for metrics.
    pub const fn outcome(&self) -> &'static str {
        match self.kind {
            Kind::RateLimited => "rate_limited",
            Kind::Overloaded => "overloaded",
            Kind::ServerError => "server_error",
            Kind::Silent(_) => "timeout",
            Kind::Unreachable => "unreachable",
            Kind::Corrupt => "corrupt",
            Kind::Cut => "cut",
            Kind::Credential => "credential",
            Kind::Money => "money",
            Kind::Refused(_) => "refused",
        }
    }

    /// What the caller hears when this was the last attempt.
    pub fn problem(&self) -> Problem {
        let (fault, message) = match self.kind {
            Kind::Refused(fault) => (fault, format!("the model's provider refuses the request: {}", self.what)),
            Kind::RateLimited => (Fault::RateLimited, "the model's provider is asked too fast".into()),
            Kind::Overloaded => (Fault::Overloaded, "the model's provider is overloaded".into()),
            Kind::Silent(wait) => (Fault::Timeout, format!("the model's provider was silent for too long ({wait:?})")),
            Kind::Unreachable => (Fault::Upstream, "the model's provider cannot be reached".into()),
            Kind::ServerError => (Fault::Upstream, format!("the model's provider failed: {}", self.what)),
            Kind::Corrupt => (Fault::Upstream, format!("the model's provider sent {}", self.what)),
            Kind::Cut => (Fault::Upstream, "the answer of the model's provider broke off".into()),
            Kind::Credential => (Fault::Upstream, "the model's provider does not take the gateway's key".into()),
            Kind::Money => (Fault::Upstream, "the gateway's money at the model's provider is gone".into()),
        };
        Problem::new(fault, message).after(self.retry_after)
    }
}

/// The upstream's own name of its answer, where it is plain enough for a log.
pub fn request_id(headers: &HeaderMap) -> Option<String> {
    let value = ["x-request-id", "request-id"].into_iter().find_map(|name| headers.get(name))?.to_str().ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    ((1..=100).contains(&value.len()) && value.bytes().all(plain)).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, code: &str, message: &str) -> Failure {
        let complaint = Complaint { kind: String::new(), code: code.into(), message: message.into() };
        Failure::of_status(StatusCode::from_u16(status).unwrap(), Some(&complaint), None, "s3cret", &[])
    }

    #[test]
    fn the_table_holds() {
        let rows = [
            (429, "", Kind::RateLimited, Next::Another),
            (500, "", Kind::ServerError, Next::Another),
            (502, "", Kind::ServerError, Next::Another),
            (503, "", Kind::Overloaded, Next::Another),
            (529, "", Kind::Overloaded, Next::Another),
            (408, "", Kind::Silent(Wait::FirstByte), Next::Another),
            (409, "", Kind::ServerError, Next::Another),
            (401, "", Kind::Credential, Next::NotHere),
            (403, "", Kind::Credential, Next::NotHere),
            (402, "", Kind::Money, Next::NotHere),
            (429, "insufficient_quota", Kind::Money, Next::NotHere),
            (400, "", Kind::Refused(Fault::Invalid), Next::Stop),
            (400, "context_length_exceeded", Kind::Refused(Fault::ContextLength), Next::Stop),
            (404, "", Kind::Refused(Fault::NotFound), Next::Stop),
            (413, "", Kind::Refused(Fault::TooLarge), Next::Stop),
            (422, "", Kind::Refused(Fault::Invalid), Next::Stop),
            (302, "", Kind::Corrupt, Next::Another),
        ];
        for (status, code, kind, next) in rows {
            let failure = of(status, code, "");
            assert_eq!((failure.kind, failure.next()), (kind, next), "{status} {code}");
        }
    }

    #[test]
    fn only_refusals_are_told_in_the_upstreams_words_and_those_without_keys() {
        assert_eq!(
            of(400, "", "messages.0: key s3cret is too long").problem().message,
            "the model's provider refuses the request: messages.0: key [withheld] is too long"
        );
        for status in [401, 402, 403, 429, 500, 503] {
            let problem = of(status, "", "internal host 10.0.0.1 key s3cret").problem();
            assert!(!problem.message.contains("s3cret") && !problem.message.contains("10.0.0.1"), "{}", problem.message);
        }
    }

    #[test]
    fn an_error_within_an_answer_counts_as_one_with_a_status() {
        let of = |kind: &str, code: &str| {
            Failure::of_complaint(&Complaint { kind: kind.into(), code: code.into(), message: String::new() }, "", &[]).kind
        };
        assert_eq!(of("overloaded_error", ""), Kind::Overloaded);
        assert_eq!(of("rate_limit_error", ""), Kind::RateLimited);
        assert_eq!(of("server_error", ""), Kind::ServerError);
        assert_eq!(of("", ""), Kind::ServerError);
        assert_eq!(of("insufficient_quota", ""), Kind::Money);
        assert_eq!(of("invalid_request_error", "context_length_exceeded"), Kind::Refused(Fault::ContextLength));
    }
}
