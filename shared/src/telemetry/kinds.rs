//! Closed sets of label values. A metric shows all of its set from the start, so that the first event of a kind is a rise from zero.

use crate::broker::BrokerState;
use crate::message::AgentMode;

/// [`crate::verdict::Verdict::kind`].
pub(super) const VERDICTS: [&str; 9] =
    ["accepted", "no_change", "slower", "wrong", "build_failed", "crashed", "hung", "rejected", "unstable"];
/// [`crate::message::Work::kind`].
pub(super) const WORKS: [&str; 6] = ["profile", "screen", "full", "confirm", "check_model", "nothing"];
/// [`crate::message::Reply::kind`].
pub(super) const REPLIES: [&str; 6] = ["profiled", "judged", "model_checked", "nothing", "handed_back", "failed"];
/// Kinds of frames.
pub(super) const FRAMES: [&str; 4] = ["task", "report", "pulse", "control"];
/// [`mode`].
pub(super) const MODES: [&str; 3] = ["working", "draining", "quarantined"];
/// [`broker_state`].
pub(super) const BROKER_STATES: [&str; 3] = ["up", "blocked", "down"];
/// Reasons why a frame cannot be read.
pub(super) const UNREADABLE: [&str; 8] = ["foreign", "torn", "checksum", "version", "kind", "unexpected", "too_large", "payload"];

/// What an agent does.
pub(super) const fn mode(mode: &AgentMode) -> &'static str {
    match mode {
        AgentMode::Working => "working",
        AgentMode::Draining => "draining",
        AgentMode::Quarantined { .. } => "quarantined",
    }
}

/// How the broker is.
pub(super) const fn broker_state(state: &BrokerState) -> &'static str {
    match state {
        BrokerState::Up => "up",
        BrokerState::Blocked { .. } => "blocked",
        BrokerState::Down { .. } => "down",
    }
}

/// One of a closed set, or [`super::OTHER`].
pub(super) fn one_of(set: &[&'static str], value: &str) -> &'static str {
    set.iter().find(|known| **known == value).copied().unwrap_or(super::OTHER)
}
