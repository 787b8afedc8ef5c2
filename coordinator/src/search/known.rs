//! The `frontier` proposer: what is already known of a kernel on this class of device.

use std::collections::BTreeMap;

use kernelopt_shared::candidate::{Candidate, Origin};
use kernelopt_shared::digest::Digest;

use super::proposer::{Offer, Proposer, Scene};

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

    fn propose(&mut self, scene: &Scene<'_>) -> Offer {
        let known = self.0.get(&scene.target.fingerprint).filter(|c| c.language == scene.target.baseline.language);
        let Some(candidate) = known.filter(|candidate| !scene.tried.contains(&candidate.id())) else { return Offer::default() };
        let note = format!("the best known: {}", candidate.origin.note);
        Offer::of(vec![Candidate { origin: Origin { proposer: FRONTIER.into(), note, parent: None, round: 0 }, ..candidate.clone() }])
    }
}
