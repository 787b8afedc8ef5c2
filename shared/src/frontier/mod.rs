//! The best candidate known for each kernel on each class of device: a role with two backends, one in this process and one in Redis.
//!
//! A frontier is an index, not a record. The record is the coordinator's journal: whatever is here can be [rebuilt](Frontier::rebuild) from
//! it, and must be when the store lost something, which [`Frontier::generation`] shows. The order of writes is journal, frontier,
//! announcement.
//!
//! | rule | why |
//! |---|---|
//! | less time wins, then the lower candidate id | two runs with the same offers must end alike |
//! | an offer may be repeated, and come late | connections break after the server has done its work |
//! | an offer of an earlier epoch than the key has seen changes nothing | a coordinator that was replaced may not know it yet |
//!
//! So the frontier depends on which offers an epoch made, not on their order or number ([`Table`] has the rules as code and as a property
//! test). What an earlier epoch's coordinator never got through is in the journal, from which the next one rebuilds.

mod error;
mod memory;
mod offer;
pub mod redis;
mod table;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use async_trait::async_trait;

pub use error::FrontierError;
pub use memory::MemoryFrontier;
pub use offer::{Entry, Key, Offer, Offered, digest};
pub use table::Table;

use crate::digest::Digest;
use crate::message::DeviceClass;

/// Entries of one page, about.
pub const PAGE: usize = 200;
/// Most entries that [`Frontier::all`] collects: some hundred megabytes.
const MOST_ENTRIES: usize = 1_000_000;

/// Where the next page begins; the first one is the default. Of use to the frontier that gave it only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(String);

/// Some entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// About [`PAGE`] of them, or none, in no order. One may come again on a later page.
    pub entries: Vec<Entry>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// What a frontier holds is that of this rebuild on this server, and later offers. When it changes, the store was wiped, replaced by an older
/// copy, or rebuilt by somebody else: rebuild it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Epoch of the coordinator that rebuilt it.
    pub epoch: u64,
    /// Drawn at that rebuild.
    pub id: String,
    /// The server's own history: another one after a restart or a failover, either of which may lose what was confirmed.
    pub server: String,
}

/// A frontier that takes offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Memory of the store, in bytes.
    pub used_bytes: u64,
    /// What it may use, where it is limited.
    pub limit_bytes: Option<u64>,
    /// What is wrong with it though it works, in a sentence.
    pub warning: Option<String>,
}

/// A frontier. Every call ends within the deadline of its backend, and may be repeated.
#[async_trait]
pub trait Frontier: Send + Sync + 'static {
    /// Offers a candidate.
    async fn offer(&self, offer: &Offer) -> Result<Offered, FrontierError>;

    /// The best one known.
    async fn best(&self, fingerprint: Digest, class: &DeviceClass) -> Result<Option<Entry>, FrontierError>;

    /// Some entries; see [`Self::all`].
    async fn page(&self, from: Cursor) -> Result<Page, FrontierError>;

    /// Makes it exactly `entries`, fenced against epochs before `epoch`. For the one who writes: what is offered meanwhile may be lost.
    /// Interrupted, it leaves some of both; repeat it.
    ///
    /// # Errors
    /// [`FrontierError::Stale`] where a later epoch has rebuilt it or made an offer to one of its keys.
    async fn rebuild(&self, entries: &[Entry], epoch: u64) -> Result<Generation, FrontierError>;

    /// What the store holds; `None` where it was never rebuilt, or has lost that.
    async fn generation(&self) -> Result<Option<Generation>, FrontierError>;

    /// Whether it takes offers; an error says why not.
    async fn health(&self) -> Result<Health, FrontierError>;

    /// All entries by key. Offers that arrive meanwhile may be among them.
    async fn all(&self) -> Result<Vec<Entry>, FrontierError> {
        let mut entries = BTreeMap::new();
        let mut cursor = Some(Cursor::default());
        while let Some(from) = cursor {
            let page = self.page(from).await?;
            entries.extend(page.entries.into_iter().map(|entry| (entry.offer.key(), entry)));
            if entries.len() > MOST_ENTRIES {
                return Err(FrontierError::TooMany(MOST_ENTRIES));
            }
            cursor = page.next;
        }
        Ok(entries.into_values().collect())
    }
}

/// Tells two rebuilds or runs apart; no secret. The standard library's seed of hash tables is drawn by the system.
fn token() -> String {
    let word = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", word(), word())
}
