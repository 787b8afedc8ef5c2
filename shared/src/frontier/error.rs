//! Why a frontier did not answer.

use std::time::Duration;

use crate::exit::{ExitCode, UserError};

/// Why a frontier did not do what it was asked. It may have done it all the same: repeat it.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum FrontierError {
    #[error("Redis did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("Redis cannot be reached: {0}")]
    Down(String),
    #[error("Redis takes no writes: it is a replica")]
    ReadOnly,
    #[error("Redis takes no writes: it is at its maxmemory")]
    Full,
    #[error("Redis evicts keys when it is full (maxmemory-policy {0}): the best candidates would vanish unnoticed")]
    Evicts(String),
    #[error("Redis refuses: {0}")]
    Refused(String),
    #[error("{key} holds what no frontier of this version wrote: {what}")]
    Corrupt { key: String, what: String },
    #[error("a coordinator of epoch {epoch} has written to this frontier")]
    Stale { epoch: u64 },
    #[error("more than {0} entries")]
    TooMany(usize),
    #[error("the frontier's settings: {0}")]
    Options(String),
}

impl FrontierError {
    /// `timed_out`, `down`, ...: bounded, for metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::TimedOut(_) => "timed_out",
            Self::Down(_) => "down",
            Self::ReadOnly => "read_only",
            Self::Full => "full",
            Self::Evicts(_) => "evicts",
            Self::Refused(_) => "refused",
            Self::Corrupt { .. } => "corrupt",
            Self::Stale { .. } => "stale",
            Self::TooMany(_) => "too_many",
            Self::Options(_) => "options",
        }
    }

    /// True where it may go away by itself: ask again later.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::Down(_) | Self::ReadOnly | Self::Full)
    }
}

impl UserError for FrontierError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Options(_) => ExitCode::Usage,
            Self::Stale { .. } | Self::Corrupt { .. } | Self::TooMany(_) => ExitCode::Failure,
            _ => ExitCode::Environment,
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::TimedOut(_) | Self::Down(_) => {
                "Check that Redis runs at the address that was given, and that this host may reach it.".into()
            }
            Self::ReadOnly => "Give the address of the primary; after a failover, of the new one.".into(),
            Self::Full => "Raise maxmemory, or move other users of this Redis elsewhere: `redis-cli CONFIG SET maxmemory 256mb`.".into(),
            Self::Evicts(_) => {
                "Run `redis-cli CONFIG SET maxmemory-policy noeviction` and put the same into redis.conf; or allow eviction, \
                                and the frontier is rebuilt only when all of it is gone."
                    .into()
            }
            Self::Refused(_) => {
                "Check user and password, and that the user may run EVALSHA, SCRIPT, SCAN, HMGET, GET, SET, DEL and INFO on its keys."
                    .into()
            }
            Self::Corrupt { .. } => "Give the frontier a prefix of its own; restart the coordinator, which rebuilds it.".into(),
            Self::Stale { .. } => "End this coordinator: another one leads.".into(),
            Self::TooMany(_) => "Give each cluster a prefix of its own.".into(),
            Self::Options(_) => return None,
        })
    }
}
