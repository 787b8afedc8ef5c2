//! Errors, each said in the caller's dialect: status, body and headers.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::Dialect;

/// Kinds of errors. Both dialects have a word for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The request cannot be done as it is.
    Invalid,
    /// The prompt is longer than the model reads.
    ContextLength,
    /// No key, or one that is not known.
    Unauthorized,
    /// The key does not reach so far.
    Forbidden,
    /// There is no such model, file, batch or route.
    NotFound,
    /// The route has no such method.
    MethodNotAllowed,
    /// The body is too long.
    TooLarge,
    /// Asking for more than a limit holds, at any time.
    NeverFits,
    /// Requests or tokens come too fast; later there is room.
    RateLimited,
    /// Money or tokens are gone; waiting does not help.
    BudgetSpent,
    /// The queue is full, or every upstream is.
    Overloaded,
    /// The upstream answered with something that is no answer, or refused the gateway itself.
    Upstream,
    /// No upstream could be reached or answered in time.
    Timeout,
    /// A fault of the gateway's own.
    Internal,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Invalid,
        Self::ContextLength,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::TooLarge,
        Self::NeverFits,
        Self::RateLimited,
        Self::BudgetSpent,
        Self::Overloaded,
        Self::Upstream,
        Self::Timeout,
        Self::Internal,
    ];

    /// One word, for metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::ContextLength => "context_length",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::TooLarge => "too_large",
            Self::NeverFits => "never_fits",
            Self::RateLimited => "rate_limited",
            Self::BudgetSpent => "budget_spent",
            Self::Overloaded => "overloaded",
            Self::Upstream => "upstream",
            Self::Timeout => "timeout",
            Self::Internal => "internal",
        }
    }

    /// Status, `type` and `code` of an OpenAI error.
    const fn openai(self) -> (u16, &'static str, Option<&'static str>) {
        const INVALID: &str = "invalid_request_error";
        const SERVER: &str = "server_error";
        match self {
            Self::Invalid => (400, INVALID, None),
            Self::ContextLength => (400, INVALID, Some("context_length_exceeded")),
            Self::Unauthorized => (401, INVALID, Some("invalid_api_key")),
            Self::Forbidden => (403, INVALID, Some("permission_denied")),
            Self::NotFound => (404, INVALID, Some("not_found")),
            Self::MethodNotAllowed => (405, INVALID, Some("method_not_allowed")),
            Self::TooLarge => (413, INVALID, Some("request_too_large")),
            Self::NeverFits => (400, INVALID, Some("over_limit")),
            Self::RateLimited => (429, "rate_limit_error", Some("rate_limit_exceeded")),
            Self::BudgetSpent => (429, "insufficient_quota", Some("insufficient_quota")),
            Self::Overloaded => (503, SERVER, Some("overloaded")),
            Self::Upstream => (502, SERVER, Some("upstream_error")),
            Self::Timeout => (504, SERVER, Some("timeout")),
            Self::Internal => (500, SERVER, None),
        }
    }

    /// Status and `type` of an Anthropic error.
    const fn anthropic(self) -> (u16, &'static str) {
        const INVALID: &str = "invalid_request_error";
        match self {
            Self::Invalid | Self::ContextLength | Self::NeverFits => (400, INVALID),
            Self::Unauthorized => (401, "authentication_error"),
            Self::BudgetSpent => (402, "billing_error"),
            Self::Forbidden => (403, "permission_error"),
            Self::NotFound => (404, "not_found_error"),
            Self::MethodNotAllowed => (405, INVALID),
            Self::TooLarge => (413, "request_too_large"),
            Self::RateLimited => (429, "rate_limit_error"),
            Self::Internal => (500, "api_error"),
            Self::Upstream => (502, "api_error"),
            Self::Timeout => (504, "timeout_error"),
            Self::Overloaded => (529, "overloaded_error"),
        }
    }

    /// Whether the same request may be answered later. Official clients obey this over their own rules.
    const fn may_help_later(self) -> bool {
        matches!(self, Self::RateLimited | Self::Overloaded | Self::Upstream | Self::Timeout | Self::Internal)
    }
}

/// An error on its way to the caller. Its message is the gateway's own, or an upstream's without anything that may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind.
    pub fault: Fault,
    /// One sentence.
    pub message: String,
    /// The field of the request that it is about.
    pub param: Option<String>,
    /// Time after which it may be otherwise, no less.
    pub retry_after: Option<Duration>,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(fault: Fault, message: impl Into<String>) -> Self {
        Self { fault, message: message.into(), param: None, retry_after: None }
    }

    /// About a field of the request.
    pub fn about(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// With a time to wait.
    pub const fn after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    /// The status.
    pub fn status(&self, dialect: Dialect) -> StatusCode {
        let status = match dialect {
            Dialect::Openai => self.fault.openai().0,
            Dialect::Anthropic => self.fault.anthropic().0,
        };
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The body, and the data of an error within a stream.
    pub fn body(&self, dialect: Dialect, request_id: Option<&str>) -> Value {
        match dialect {
            Dialect::Openai => {
                let (_, kind, code) = self.fault.openai();
                json!({"error": {"message": self.message, "type": kind, "param": self.param, "code": code}})
            }
            Dialect::Anthropic => {
                let error = json!({"type": self.fault.anthropic().1, "message": self.message});
                json!({"type": "error", "error": error, "request_id": request_id})
            }
        }
    }

    /// `retry-after` in whole seconds and `retry-after-ms`, both the true wait, and whether to retry at all.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(3);
        if let Some(wait) = self.retry_after {
            let milliseconds = u64::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(milliseconds.div_ceil(1000)));
            headers.insert(HeaderName::from_static("retry-after-ms"), HeaderValue::from(milliseconds));
        }
        if !self.fault.may_help_later() {
            headers.insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
        }
        headers
    }
}

impl From<super::object::BadObject> for Problem {
    fn from(error: super::object::BadObject) -> Self {
        let param = match &error {
            super::object::BadObject::Field { field, .. } => Some(field.clone()),
            _ => None,
        };
        Self { param, ..Self::new(Fault::Invalid, error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_an_error_in_both_dialects() {
        for fault in Fault::ALL {
            let problem = Problem::new(fault, "what");
            for dialect in [Dialect::Openai, Dialect::Anthropic] {
                assert!(problem.status(dialect).as_u16() >= 400, "{fault:?}");
                assert_eq!(problem.body(dialect, None)["error"]["message"], "what");
            }
        }
    }

    #[test]
    fn the_wait_is_never_rounded_down() {
        let headers = Problem::new(Fault::RateLimited, "").after(Some(Duration::from_micros(1_200_100))).headers();
        assert!(headers["retry-after"] == "2" && headers["retry-after-ms"] == "1201", "{headers:?}");
        assert!(!headers.contains_key("x-should-retry"));
        assert_eq!(Problem::new(Fault::BudgetSpent, "").headers()["x-should-retry"], "false");
    }

    #[test]
    fn money_gone_is_said_as_each_provider_says_it() {
        let problem = Problem::new(Fault::BudgetSpent, "gone");
        assert_eq!(problem.status(Dialect::Openai), 429);
        assert_eq!(problem.body(Dialect::Openai, None)["error"]["code"], "insufficient_quota");
        assert_eq!(problem.status(Dialect::Anthropic), 402);
        assert_eq!(problem.body(Dialect::Anthropic, Some("r"))["error"]["type"], "billing_error");
    }
}
