//! Failures in a row that are no candidate's fault.

use kernelopt_shared::message::{FailureKind, Reply};

/// As many make an agent doubt itself.
const DOUBT: u32 = 3;

/// Counts them.
#[derive(Debug, Default)]
pub(super) struct Streak(u32);

impl Streak {
    /// One more reply.
    pub(super) fn count(&mut self, reply: &Reply) {
        match reply {
            Reply::Profiled(_) | Reply::Judged(_) | Reply::ModelChecked(_) | Reply::Nothing => self.0 = 0,
            // A baseline that does not run says as much of the model as of the device.
            Reply::HandedBack { .. } => {}
            Reply::Failed(failure) => match failure.kind {
                FailureKind::Environment | FailureKind::TimedOut | FailureKind::Internal => self.0 += 1,
                FailureKind::Baseline => {}
            },
        }
    }

    /// True where the agent has reason to doubt itself.
    pub(super) const fn is_doubtful(&self) -> bool {
        self.0 >= DOUBT
    }

    /// The doubt is resolved.
    pub(super) fn clear(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use kernelopt_shared::message::Failure;

    use super::*;

    fn failed(kind: FailureKind) -> Reply {
        Reply::Failed(Failure { kind, what: String::new(), remedy: String::new() })
    }

    #[test]
    fn three_in_a_row_raise_doubt_and_what_says_nothing_does_not_interrupt_them() {
        let mut streak = Streak::default();
        let mut count = |reply: Reply| {
            streak.count(&reply);
            streak.is_doubtful()
        };
        let handed_back = Reply::HandedBack { reason: String::new() };
        let replies = [failed(FailureKind::TimedOut), handed_back, failed(FailureKind::Baseline), failed(FailureKind::Internal)];
        assert!(!replies.into_iter().any(&mut count));
        assert!(count(failed(FailureKind::Environment)));
        assert!(count(failed(FailureKind::Baseline)), "until it is resolved");
        assert!(!count(Reply::Nothing) && !count(failed(FailureKind::Internal)) && !count(failed(FailureKind::Internal)));
    }
}
