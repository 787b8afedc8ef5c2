//! What an error looks like (RFC 9457).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Media type of a [`Problem`].
pub const PROBLEM_JSON: &str = "application/problem+json";
/// What every `type` begins with.
const PREFIX: &str = "urn:kernelopt:problem:";
/// Greatest length of a detail, in characters; it may quote what a client sent.
const LONGEST_DETAIL: usize = 1000;

/// A kind of error, each with one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProblemKind {
    /// The request cannot be read: path, query or JSON.
    Malformed,
    /// No token, or one that is not known.
    Unauthorized,
    /// The token's role does not reach so far.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// The path is there, the method is not.
    MethodNotAllowed,
    /// The request did not come in time.
    TooSlow,
    /// Not now: it is in another state.
    Conflict,
    /// More bytes than are taken.
    TooLarge,
    /// Not JSON.
    UnsupportedMediaType,
    /// It can be read, and cannot be done.
    Refused,
    /// As many requests as can be served at a time.
    Busy,
    /// A part that is needed does not answer.
    Unavailable,
    /// No space is left.
    StorageFull,
}

impl ProblemKind {
    /// All kinds.
    pub const ALL: [Self; 13] = [
        Self::Malformed,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::TooSlow,
        Self::Conflict,
        Self::TooLarge,
        Self::UnsupportedMediaType,
        Self::Refused,
        Self::Busy,
        Self::Unavailable,
        Self::StorageFull,
    ];

    /// HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::TooSlow => 408,
            Self::Conflict => 409,
            Self::TooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Refused => 422,
            Self::Busy => 429,
            Self::Unavailable => 503,
            Self::StorageFull => 507,
        }
    }

    /// For people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Malformed => "the request cannot be read",
            Self::Unauthorized => "a token is needed",
            Self::Forbidden => "the token does not allow this",
            Self::NotFound => "not found",
            Self::MethodNotAllowed => "the method is not for this path",
            Self::TooSlow => "the request came too slowly",
            Self::Conflict => "not in this state",
            Self::TooLarge => "too large",
            Self::UnsupportedMediaType => "unsupported media type",
            Self::Refused => "refused",
            Self::Busy => "too many requests at a time",
            Self::Unavailable => "not available now",
            Self::StorageFull => "no space left",
        }
    }

    /// Last word of `type`.
    const fn slug(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not-found",
            Self::MethodNotAllowed => "method-not-allowed",
            Self::TooSlow => "too-slow",
            Self::Conflict => "conflict",
            Self::TooLarge => "too-large",
            Self::UnsupportedMediaType => "unsupported-media-type",
            Self::Refused => "refused",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
            Self::StorageFull => "storage-full",
        }
    }
}

/// An error (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Kind of error: the same word for the same kind, for programs.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind, for people.
    pub title: String,
    /// HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Name of the request, as in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Problem {
    /// A problem of `kind`; `detail` is cut where it is very long.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        let detail: String = detail.into();
        let detail =
            if detail.chars().count() > LONGEST_DETAIL { detail.chars().take(LONGEST_DETAIL).chain(['…']).collect() } else { detail };
        let kind_uri = format!("{PREFIX}{}", kind.slug());
        Self { kind: kind_uri, title: kind.title().into(), status: kind.status(), detail, remedy: None, request_id: None }
    }

    /// Adds what to do.
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// The kind; none where the other side is newer.
    pub fn known(&self) -> Option<ProblemKind> {
        let slug = self.kind.strip_prefix(PREFIX)?;
        ProblemKind::ALL.into_iter().find(|kind| kind.slug() == slug)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_known_again() {
        for kind in ProblemKind::ALL {
            let text = serde_json::to_string(&Problem::new(kind, "x").with_remedy("y")).unwrap();
            assert_eq!(serde_json::from_str::<Problem>(&text).unwrap().known(), Some(kind));
        }
        assert!(Problem::new(ProblemKind::Malformed, "x".repeat(10_000)).detail.chars().count() <= LONGEST_DETAIL + 1);
    }
}
