//! The `frontier` proposer: what is already known of a kernel on this class of device.

use std::collections::BTreeMap;

use kernelopt_shared::candidate::{Candidate, Origin};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::target::Target;

use super::proposer::{Judged, Proposer};

/// Its name, as in a candidate's origin.
pub const FRONTIER: &str = "frontier";

/// Offers the best known candidate of a fingerprint, once.
#[derive(Clone, Debug, Default)]
pub struct Known(BTreeMap<Digest, Candidate>);

impl Extend<(Digest, Candidate)> for Known {
    fn extend<I: IntoIterator<Item = (Digest, Candidate)>>(&mut self, known: I) {
        self.0.extend(known);
    }
}

impl Proposer for Known {
    fn name(&self) -> &'static str {
        FRONTIER
    }

    fn propose(&mut self, target: &Target, history: &[Judged], _want: usize) -> Vec<Candidate> {
        let Some(candidate) = self.0.get(&target.fingerprint).filter(|c| c.language == target.baseline.language) else { return Vec::new() };
        if history.iter().any(|judged| judged.candidate.id() == candidate.id()) {
            return Vec::new();
        }
        let note = format!("the best known: {}", candidate.origin.note);
        vec![Candidate { origin: Origin { proposer: FRONTIER.into(), note, parent: None, round: 0 }, ..candidate.clone() }]
    }
}
