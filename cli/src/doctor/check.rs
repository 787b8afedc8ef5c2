//! One thing that was looked at.

use serde::Serialize;

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Works, with a drawback.
    Warn,
    /// Necessary, and not there.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What, in one word.
    pub name: &'static str,
    /// How it stands.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// What to do about it, where there is something to do.
    pub remedy: Option<String>,
}

impl Check {
    /// All is well.
    pub fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, detail: detail.into(), remedy: None }
    }

    /// It works, with a drawback that `remedy` takes away.
    pub fn warn(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, status: Status::Warn, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    /// It does not work until `remedy` is followed.
    pub fn missing(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, status: Status::Missing, detail: detail.into(), remedy: Some(remedy.into()) }
    }
}
