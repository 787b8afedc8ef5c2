//! A frontier in Redis: what coordinators share, and agents' operators look at.
//!
//! | key | what |
//! |---|---|
//! | `PREFIX:frontier:{FINGERPRINT}:CLASS` | hash of one entry, see `frontier.lua`; the braces keep a fingerprint's keys on one node of a cluster |
//! | `PREFIX:frontier:generation` | which rebuild the entries are from, as JSON |
//!
//! Writes go through one script, so that a comparison and what follows from it are one step. Whatever fails may have been done, and may be
//! repeated. The library's connection reconnects underneath; the call that meets the break fails, and every call has its own deadline.

mod options;
mod reply;

use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands, RedisResult, Script};
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;
use tokio::time::timeout;

pub use options::RedisOptions;

use self::reply::{Info, Set};
use super::offer::{Entry, Key, Offer, Offered};
use super::{Cursor, Frontier, FrontierError, Generation, Health, PAGE, Page, token};
use crate::digest::Digest;
use crate::message::DeviceClass;

/// The script's text.
const SCRIPT: &str = include_str!("frontier.lua");
/// Scripts under way at once while a frontier is rebuilt.
const AT_ONCE: usize = 32;

/// A frontier in Redis.
pub struct RedisFrontier {
    connection: ConnectionManager,
    script: Script,
    options: RedisOptions,
    /// Set once the server's settings were seen to be such that entries stay.
    checked: OnceCell<()>,
}

/// What the generation's key holds.
#[derive(Serialize, Deserialize)]
struct Rebuilt {
    epoch: u64,
    id: String,
}

impl RedisFrontier {
    /// Connects and looks at the server's settings. A server that cannot be reached is no error: work goes on without it, and each call tries
    /// again.
    ///
    /// # Errors
    /// The settings are wrong, the server refuses them, or it evicts keys and that is not allowed.
    pub async fn open(options: RedisOptions) -> Result<Self, FrontierError> {
        let client = options.client()?;
        // One more try at once, for a server that closed an idle connection; the next call tries again anyhow. The deadlines within
        // are shorter than a call's, so that a call ends with the reason.
        let within = options.deadline.mul_f64(0.45);
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(within))
            .set_response_timeout(Some(options.deadline.mul_f64(0.9)))
            .set_number_of_retries(1)
            .set_min_delay(Duration::from_millis(20))
            .set_max_delay(Duration::from_millis(100));
        let connection = ConnectionManager::new_lazy_with_config(client, config).map_err(FrontierError::from)?;
        let frontier = Self { connection, script: Script::new(SCRIPT), options, checked: OnceCell::new() };
        match frontier.check().await {
            Err(error) if error.is_transient() => tracing::warn!(%error, "the frontier is not there yet; work goes on without it"),
            done => done?,
        }
        Ok(frontier)
    }

    /// Which release of Redis answers.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn version(&self) -> Result<String, FrontierError> {
        Ok(self.info().await?.version)
    }

    /// Removes every key of this prefix. For a cluster that was set up for a while; nobody must use it any more.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn remove(&self) -> Result<(), FrontierError> {
        self.drop_others(&Set::default(), u64::MAX).await?;
        let mut connection = self.connection.clone();
        let _: u64 = self.within(connection.del(self.generation_key())).await?;
        Ok(())
    }

    /// Refuses a server that evicts keys. Done once; before the first answer no call goes on.
    async fn check(&self) -> Result<(), FrontierError> {
        let check = async || {
            let info = self.info().await?;
            match info.evicts() {
                Some(policy) if !self.options.allow_eviction => Err(FrontierError::Evicts(policy.into())),
                Some(policy) => {
                    tracing::warn!(policy, "Redis evicts keys when it is full: best candidates may vanish unnoticed");
                    Ok(())
                }
                None => Ok(()),
            }
        };
        self.checked.get_or_try_init(check).await.copied()
    }

    async fn info(&self) -> Result<Info, FrontierError> {
        let mut connection = self.connection.clone();
        let text: String = self.within(async { redis::cmd("INFO").query_async(&mut connection).await }).await?;
        Ok(Info::parse(&text))
    }

    async fn within<T>(&self, call: impl Future<Output = RedisResult<T>>) -> Result<T, FrontierError> {
        match timeout(self.options.deadline, call).await {
            Ok(done) => done.map_err(FrontierError::from),
            Err(_) => Err(FrontierError::TimedOut(self.options.deadline)),
        }
    }

    /// Runs the script on one key.
    async fn run(&self, key: &str, verb: &str, epoch: u64, further: &[&str]) -> Result<Vec<String>, FrontierError> {
        self.check().await?;
        let mut connection = self.connection.clone();
        let mut call = self.script.key(key);
        call.arg(verb).arg(format!("{epoch:020}")).arg(further);
        let replied: Result<_, FrontierError> = self.within(call.invoke_async(&mut connection)).await;
        replied.map_err(|error| reply::blame(error, key))
    }

    fn key(&self, key: &Key) -> String {
        format!("{}{{{}}}:{}", self.start(), key.fingerprint, key.class)
    }

    /// What the keys of entries begin with.
    fn start(&self) -> String {
        format!("{}:frontier:", self.options.prefix)
    }

    fn generation_key(&self) -> String {
        format!("{}generation", self.start())
    }

    /// One step of a scan: some keys, and where to go on. A key may come twice; one that is there all the time comes at least once.
    async fn scan(&self, from: &Cursor) -> Result<(Vec<String>, Option<Cursor>), FrontierError> {
        let mut connection = self.connection.clone();
        let mut command = redis::cmd("SCAN");
        command.arg(if from.0.is_empty() { "0" } else { &from.0 }).arg("MATCH").arg(format!("{}{{*", self.start())).arg("COUNT").arg(PAGE);
        let (next, keys): (String, Vec<String>) = self.within(command.query_async(&mut connection)).await?;
        Ok((keys, Some(next).filter(|next| next != "0").map(Cursor)))
    }

    async fn set(&self, entry: &Entry, epoch: u64) -> Result<(), FrontierError> {
        let (offer, revision) = (reply::encode(&entry.offer), entry.revision.to_string());
        let said = self.run(&self.key(&entry.offer.key()), "set", epoch, &[&entry.offer.rank(), &offer, &revision]).await?;
        reply::not_stale(&said)
    }

    /// Removes every key that is not in `keep`.
    async fn drop_others(&self, keep: &Set, epoch: u64) -> Result<(), FrontierError> {
        let mut cursor = Some(Cursor::default());
        while let Some(from) = cursor {
            let (keys, next) = self.scan(&from).await?;
            for key in keys.iter().filter(|key| !keep.contains(*key)) {
                reply::not_stale(&self.run(key, "drop", epoch, &[]).await?)?;
            }
            cursor = next;
        }
        Ok(())
    }
}

#[async_trait]
impl Frontier for RedisFrontier {
    async fn offer(&self, offer: &Offer) -> Result<Offered, FrontierError> {
        let key = self.key(&offer.key());
        let said = self.run(&key, "offer", offer.epoch, &[&offer.rank(), &reply::encode(offer)]).await?;
        reply::offered(&said, &key)
    }

    async fn best(&self, fingerprint: Digest, class: &DeviceClass) -> Result<Option<Entry>, FrontierError> {
        self.check().await?;
        let key = self.key(&Key { fingerprint, class: class.clone() });
        let mut connection = self.connection.clone();
        let found: Result<(Option<String>, Option<String>), _> =
            self.within(redis::cmd("HMGET").arg(&key).arg(&["offer", "revision"]).query_async(&mut connection)).await;
        let (offer, revision) = found.map_err(|error| reply::blame(error, &key))?;
        reply::entry(&key, offer.as_deref(), revision.as_deref())
    }

    async fn page(&self, from: Cursor) -> Result<Page, FrontierError> {
        self.check().await?;
        let (keys, next) = self.scan(&from).await?;
        if keys.is_empty() {
            return Ok(Page { entries: Vec::new(), next });
        }
        let mut many = redis::pipe();
        for key in &keys {
            many.cmd("HMGET").arg(key).arg(&["offer", "revision"]);
        }
        let mut connection = self.connection.clone();
        let found: Result<Vec<(Option<String>, Option<String>)>, _> = self.within(many.query_async(&mut connection)).await;
        let found = found.map_err(|error| reply::blame(error, &self.start()))?;
        let entry = |(key, (offer, revision)): (&String, &(Option<String>, Option<String>))| {
            reply::entry(key, offer.as_deref(), revision.as_deref()).transpose()
        };
        let entries = keys.iter().zip(&found).filter_map(entry).collect::<Result<_, _>>()?;
        Ok(Page { entries, next })
    }

    async fn rebuild(&self, entries: &[Entry], epoch: u64) -> Result<Generation, FrontierError> {
        self.check().await?;
        if let Some(held) = self.generation().await?.filter(|held| held.epoch > epoch) {
            return Err(FrontierError::Stale { epoch: held.epoch });
        }
        let mut connection = self.connection.clone();
        // Gone until all is done, so that an interrupted rebuild is seen as one.
        let _: u64 = self.within(connection.del(self.generation_key())).await?;
        // By number: closures over borrowed items are not general enough for a boxed future.
        stream::iter(0..entries.len()).map(|at| self.set(&entries[at], epoch)).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let keep: Set = entries.iter().map(|entry| self.key(&entry.offer.key())).collect();
        self.drop_others(&keep, epoch).await?;
        let rebuilt = reply::encode(&Rebuilt { epoch, id: token() });
        let _: () = self.within(connection.set(self.generation_key(), rebuilt)).await?;
        // Read back, for the server's own run; by now it may be another one's already.
        self.generation().await?.ok_or_else(|| FrontierError::Down("what was just written is gone".into()))
    }

    async fn generation(&self) -> Result<Option<Generation>, FrontierError> {
        self.check().await?;
        let mut connection = self.connection.clone();
        let key = self.generation_key();
        let both: (Option<String>, String) = self.within(redis::pipe().get(&key).cmd("INFO").query_async(&mut connection)).await?;
        let (Some(text), info) = both else { return Ok(None) };
        let Rebuilt { epoch, id } = serde_json::from_str(&text).map_err(|e| FrontierError::Corrupt { key, what: e.to_string() })?;
        Ok(Some(Generation { epoch, id, server: Info::parse(&info).history }))
    }

    async fn health(&self) -> Result<Health, FrontierError> {
        let info = self.info().await?;
        if info.replica {
            return Err(FrontierError::ReadOnly);
        }
        let evicts = info.evicts();
        if let Some(policy) = evicts.filter(|_| !self.options.allow_eviction) {
            return Err(FrontierError::Evicts(policy.into()));
        }
        if info.limit_bytes.is_some_and(|limit| info.used_bytes >= limit) {
            return Err(FrontierError::Full);
        }
        let warning = evicts.map(|policy| format!("Redis evicts keys when it is full ({policy}): best candidates may vanish unnoticed"));
        Ok(Health { used_bytes: info.used_bytes, limit_bytes: info.limit_bytes, warning })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The script is a contract with coordinators of other versions on the same Redis: a change of it is meant, and seen here.
    #[test]
    fn the_script_is_this_one() {
        assert_eq!(Script::new(SCRIPT).get_hash(), "6d5f278e8871d1729c8fa945748495b6e25b040e");
    }
}
