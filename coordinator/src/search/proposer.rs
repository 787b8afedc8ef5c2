//! Where candidates come from.

use std::collections::BTreeSet;

use kernelopt_shared::bundle::CapturedDevice;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::language_model::Question;
use kernelopt_shared::target::Target;
use kernelopt_shared::verdict::{CodeFacts, Verdict};

use super::exchange::Exchange;
use super::rank::Weight;

/// A candidate that has been judged.
#[derive(Clone, Debug)]
pub struct Judged {
    /// What was offered.
    pub candidate: Candidate,
    /// What the referee said.
    pub verdict: Verdict,
}

/// All that a proposer may look at.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    /// What is to become faster.
    pub target: &'a Target,
    /// Everything judged so far for this target, in the order in which it was offered.
    pub history: &'a [Judged],
    /// Everything offered so far, judged or not.
    pub tried: BTreeSet<Digest>,
    /// Every question about this target so far, in the order in which they were asked.
    pub exchanges: &'a [Exchange],
    /// What the target weighs in its model.
    pub weight: Weight,
    /// The device, as the capture knows it.
    pub device: Option<&'a CapturedDevice>,
    /// Machine code of the fastest right candidate, where it is known.
    pub code: Option<&'a CodeFacts>,
    /// Candidates that are wanted at most.
    pub want: usize,
}

impl<'a> Scene<'a> {
    /// A target of which nothing is known but what was judged.
    pub fn of(target: &'a Target, history: &'a [Judged], want: usize) -> Self {
        let tried = history.iter().map(|judged| judged.candidate.id()).collect();
        Self { target, history, tried, exchanges: &[], weight: Weight::default(), device: None, code: None, want }
    }
}

/// What a proposer has to say. Neither candidates nor questions: nothing more, as things are; what is still under way may change that.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offer {
    /// New candidates, most promising first.
    pub candidates: Vec<Candidate>,
    /// Questions whose answers it needs. They go out before the candidates, so that a model thinks while devices measure.
    pub questions: Vec<Question>,
}

impl Offer {
    /// Of candidates alone.
    pub const fn of(candidates: Vec<Candidate>) -> Self {
        Self { candidates, questions: Vec::new() }
    }

    /// Of questions alone.
    pub const fn ask(questions: Vec<Question>) -> Self {
        Self { candidates: Vec::new(), questions }
    }
}

/// A source of candidates for one target. A pure function of the scene, so that a resumed search goes on where it stopped: whatever it
/// needs from outside it asks for, and finds among the exchanges of a later scene.
pub trait Proposer: Send {
    /// Name, as in a candidate's origin.
    fn name(&self) -> &'static str;

    /// What it offers next.
    fn propose(&mut self, scene: &Scene<'_>) -> Offer;
}
