//! What Redis says, as our own types.

use std::collections::BTreeSet;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use serde::Serialize;

use crate::frontier::{Entry, FrontierError, Offered};

/// Keys.
pub type Set = BTreeSet<String>;

/// The part of `INFO` that matters to us.
pub struct Info {
    /// Its release.
    pub version: String,
    /// The server's run and its replication history: another one after a start, a failover, or a time as a replica.
    pub history: String,
    /// It follows another server.
    pub replica: bool,
    /// Memory in use.
    pub used_bytes: u64,
    /// Memory that it may use; none is no limit.
    pub limit_bytes: Option<u64>,
    policy: String,
}

impl Info {
    /// Reads `name:value` lines; what is missing is empty or zero.
    pub fn parse(text: &str) -> Self {
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(found, _)| *found == name).map(|(_, value)| value.trim()).unwrap_or_default()
        };
        let number = |name| value(name).parse().unwrap_or(0);
        Self {
            version: value("redis_version").into(),
            history: format!("{} {}", value("run_id"), value("master_replid")),
            replica: value("role") == "slave",
            used_bytes: number("used_memory"),
            limit_bytes: Some(number("maxmemory")).filter(|limit| *limit > 0),
            policy: value("maxmemory_policy").into(),
        }
    }

    /// The policy, where it is one that evicts keys without an expiry, as ours are. The `volatile` ones do not today, and would as soon as
    /// anything else sets one; only `noeviction` is a promise.
    pub fn evicts(&self) -> Option<&str> {
        Some(self.policy.as_str()).filter(|policy| !matches!(*policy, "noeviction" | ""))
    }
}

/// As JSON text.
pub fn encode(value: &impl Serialize) -> String {
    // Texts and numbers: nothing in them that JSON cannot say.
    serde_json::to_string(value).unwrap_or_default()
}

/// An entry from its two fields; `None` where the key is not there.
pub fn entry(key: &str, offer: Option<&str>, revision: Option<&str>) -> Result<Option<Entry>, FrontierError> {
    let corrupt = |what: String| FrontierError::Corrupt { key: key.into(), what };
    let (offer, revision) = match (offer, revision) {
        (None, None) => return Ok(None),
        (Some(offer), Some(revision)) => (offer, revision),
        _ => return Err(corrupt("a field is missing".into())),
    };
    let offer = serde_json::from_str(offer).map_err(|e| corrupt(format!("offer: {e}")))?;
    let revision = revision.parse().map_err(|e| corrupt(format!("revision: {e}")))?;
    Ok(Some(Entry { offer, revision }))
}

/// The script's answer to an offer.
pub fn offered(said: &[String], key: &str) -> Result<Offered, FrontierError> {
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    let unknown = || FrontierError::Corrupt { key: key.into(), what: format!("the script said {said:?}") };
    match said.as_slice() {
        ["improved", revision] => Ok(Offered::Improved { revision: revision.parse().map_err(|_| unknown())? }),
        ["kept", offer, revision] => entry(key, Some(*offer), Some(*revision))?.map(|best| Offered::Kept { best }).ok_or_else(unknown),
        ["stale", epoch] => Ok(Offered::Stale { epoch: epoch.parse().map_err(|_| unknown())? }),
        _ => Err(unknown()),
    }
}

/// An error where the script refused an epoch.
pub fn not_stale(said: &[String]) -> Result<(), FrontierError> {
    match said {
        [word, epoch] if word == "stale" => Err(FrontierError::Stale { epoch: epoch.parse().unwrap_or(u64::MAX) }),
        _ => Ok(()),
    }
}

/// Names the key in an error that is about what lies there.
pub fn blame(error: FrontierError, key: &str) -> FrontierError {
    match error {
        FrontierError::Refused(what) if what.contains("WRONGTYPE") => FrontierError::Corrupt { key: key.into(), what },
        error => error,
    }
}

impl From<RedisError> for FrontierError {
    fn from(error: RedisError) -> Self {
        let words = || match (error.code(), error.detail()) {
            (Some(code), Some(detail)) => format!("{code} {detail}"),
            _ => error.to_string(),
        };
        match (error.kind(), error.code()) {
            // A script's own error carries the command's code in its words.
            (ErrorKind::Server(ServerErrorKind::ReadOnly), _) => Self::ReadOnly,
            (_, Some("OOM")) => Self::Full,
            (ErrorKind::Server(ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown), _) => Self::Down(words()),
            (ErrorKind::Server(_) | ErrorKind::AuthenticationFailed | ErrorKind::Extension, _) => Self::Refused(words()),
            _ => Self::Down(words()),
        }
    }
}
