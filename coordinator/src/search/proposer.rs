//! Where candidates come from.

use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::target::Target;
use kernelopt_shared::verdict::Verdict;

/// A candidate that has been judged.
#[derive(Clone, Debug)]
pub struct Judged {
    /// What was offered.
    pub candidate: Candidate,
    /// What the referee said.
    pub verdict: Verdict,
}

/// A source of candidates for one target. Deterministic: the same target and history give the same proposals, so that
/// a resumed search goes on where it stopped.
pub trait Proposer: Send {
    /// Name, as in a candidate's origin.
    fn name(&self) -> &'static str;

    /// Up to `want` new candidates, most promising first, given everything judged so far for this target. An empty
    /// answer means that it has nothing more to offer.
    fn propose(&mut self, target: &Target, history: &[Judged], want: usize) -> Vec<Candidate>;
}
