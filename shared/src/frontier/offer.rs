//! What is offered, what is kept, and how two offers compare.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::message::{DeviceClass, JobId};

/// What a frontier is asked by: one kernel's meaning on one class of device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Hash of the target's meaning and precision contract.
    pub fingerprint: Digest,
    /// Class of the device on which it was measured.
    pub class: DeviceClass,
}

/// A confirmed candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Hash of the target's meaning and precision contract.
    pub fingerprint: Digest,
    /// Class of the device on which it was measured.
    pub class: DeviceClass,
    /// The candidate's id.
    pub candidate: Digest,
    /// Blob of the candidate ([`crate::candidate::Candidate`] as JSON).
    pub document: Digest,
    /// Median time of a launch as confirmed, in nanoseconds.
    pub time_ns: u64,
    /// Median time of the baseline's launch in the same measurement, in nanoseconds.
    pub baseline_ns: u64,
    /// The job that found it.
    pub job: JobId,
    /// Term of the coordinator that offers it.
    pub epoch: u64,
}

/// What a frontier keeps under a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The best offer.
    pub offer: Offer,
    /// How often the key's best has changed, from one. It counts what was seen, so it depends on the order of offers.
    pub revision: u64,
}

/// What came of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It is the best now. Said once: the same offer again is kept.
    Improved {
        /// The entry's revision with it.
        revision: u64,
    },
    /// Another one is as good or better, or it was the best already.
    Kept {
        /// The best one.
        best: Entry,
    },
    /// The key has heard of a later coordinator; nothing was changed.
    Stale {
        /// Latest epoch that it has heard of.
        epoch: u64,
    },
}

impl Offer {
    /// What it is kept under.
    pub fn key(&self) -> Key {
        Key { fingerprint: self.fingerprint, class: self.class.clone() }
    }

    /// Its place among the offers of a key: the lower text is the better offer. Time first, then candidate id, then the rest, so that
    /// any two different ones are in order; all but the epoch, which says who offers, not what.
    ///
    /// A text of fixed width in digits and `a-f`, so that a store compares it as it is: Lua's numbers lose digits from 2^53.
    pub fn rank(&self) -> String {
        let rest = Digest::of([self.document.to_string().as_bytes(), &self.baseline_ns.to_le_bytes(), self.job.as_str().as_bytes()]);
        format!("{:020}{}{rest}", self.time_ns, self.candidate)
    }
}

/// The identity of what a frontier holds: of two with the same entries it is the same, in whatever order they come. Epochs and revisions
/// are no part of it, since they tell of the way there.
pub fn digest<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Digest {
    let mut lines: Vec<String> =
        entries.into_iter().map(|Entry { offer, .. }| format!("{} {} {}", offer.fingerprint, offer.class, offer.rank())).collect();
    lines.sort_unstable();
    Digest::of(lines.iter().map(String::as_bytes))
}
