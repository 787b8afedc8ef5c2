//! Times of an agent.

use std::time::Duration;

use kernelopt_shared::broker::BEAT;

/// Least number of tasks that a device holds at a time: one measures, one waits with all that it needs.
pub const PREFETCH: u16 = 2;

/// Longest that any task may run, whatever it says of itself.
pub(super) const LONGEST_RUN: Duration = Duration::from_secs(24 * 3600);

/// How long an agent waits for what. The defaults are the fleet's; tests are shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Between two beats.
    pub beat: Duration,
    /// Between two sendings of a report that is not yet accepted.
    pub resend: Duration,
    /// For what a task needs from the store of blobs, before the task is handed back.
    pub fetching: Duration,
    /// From the order to the start of work: a builder's start, another process's turn on the device.
    pub preparing: Duration,
    /// From the wish that work ends to its end. What takes longer is given up, and with it the device.
    pub ending: Duration,
    /// For work that runs when the agent is told to leave; then it is stopped and handed back.
    pub drain: Duration,
    /// From the wish to leave to the last word, whatever is still open.
    pub farewell: Duration,
    /// For the agent's test of itself.
    pub canary: Duration,
}

impl Settings {
    /// Where somebody sits in front of the process: told to leave, it leaves.
    pub fn local() -> Self {
        Self { drain: Duration::ZERO, farewell: Duration::from_secs(4), ..Self::default() }
    }
}

impl Default for Settings {
    /// A drain is over within 20 s, the last messages included: systemd and Kubernetes wait longer before they kill.
    fn default() -> Self {
        Self {
            beat: BEAT,
            resend: Duration::from_secs(3),
            fetching: Duration::from_secs(120),
            preparing: Duration::from_secs(660),
            ending: Duration::from_secs(5),
            drain: Duration::from_secs(15),
            farewell: Duration::from_secs(18),
            canary: Duration::from_secs(180),
        }
    }
}
