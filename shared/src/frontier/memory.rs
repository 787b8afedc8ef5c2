//! A frontier in this process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::offer::{Entry, Key, Offer, Offered};
use super::table::Table;
use super::{Cursor, Frontier, FrontierError, Generation, Health, PAGE, Page, token};
use crate::digest::Digest;
use crate::message::DeviceClass;

/// A frontier in this process: gone with it, and so rebuilt from the journal by the next one.
#[derive(Debug)]
pub struct MemoryFrontier {
    state: Mutex<State>,
    run: String,
}

#[derive(Debug, Default)]
struct State {
    table: Table,
    rebuilt: Option<(u64, String)>,
}

impl Default for MemoryFrontier {
    fn default() -> Self {
        Self { state: Mutex::default(), run: token() }
    }
}

impl MemoryFrontier {
    fn state(&self) -> MutexGuard<'_, State> {
        // No call leaves half a change behind, so what a panicking thread leaves is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Frontier for MemoryFrontier {
    async fn offer(&self, offer: &Offer) -> Result<Offered, FrontierError> {
        Ok(self.state().table.offer(offer))
    }

    async fn best(&self, fingerprint: Digest, class: &DeviceClass) -> Result<Option<Entry>, FrontierError> {
        Ok(self.state().table.best(&Key { fingerprint, class: class.clone() }).cloned())
    }

    async fn page(&self, from: Cursor) -> Result<Page, FrontierError> {
        let after = parse(&from);
        let entries = self.state().table.after(after.as_ref(), PAGE);
        let next = entries.last().filter(|_| entries.len() == PAGE).map(|entry| cursor(&entry.offer.key()));
        Ok(Page { entries, next })
    }

    async fn rebuild(&self, entries: &[Entry], epoch: u64) -> Result<Generation, FrontierError> {
        let mut state = self.state();
        let rebuilt = state.rebuilt.as_ref().map_or(0, |(rebuilt, _)| *rebuilt);
        if rebuilt > epoch {
            return Err(FrontierError::Stale { epoch: rebuilt });
        }
        state.table.rebuild(entries, epoch).map_err(|epoch| FrontierError::Stale { epoch })?;
        let id = token();
        state.rebuilt = Some((epoch, id.clone()));
        Ok(Generation { epoch, id, server: self.run.clone() })
    }

    async fn generation(&self) -> Result<Option<Generation>, FrontierError> {
        let rebuilt = self.state().rebuilt.clone();
        Ok(rebuilt.map(|(epoch, id)| Generation { epoch, id, server: self.run.clone() }))
    }

    async fn health(&self) -> Result<Health, FrontierError> {
        Ok(Health::default())
    }
}

fn cursor(key: &Key) -> Cursor {
    Cursor(format!("{} {}", key.fingerprint, key.class))
}

fn parse(cursor: &Cursor) -> Option<Key> {
    let (fingerprint, class) = cursor.0.split_once(' ')?;
    Some(Key { fingerprint: Digest::parse(fingerprint)?, class: DeviceClass::parse(class).ok()? })
}
