//! Books in Redis, one script each for reserving and settling, so that what is found to fit is taken before anybody else looks.
//!
//! The clock is Redis's own: gateways need not agree on the time. All keys carry one hash tag and are on one node of a cluster. A script that
//! was cut off by a deadline may have run: tickets are named by the gateway, so that a repeated reservation changes nothing, and one
//! that nobody knows of expires.

use std::time::Duration;

use async_trait::async_trait;
use kernelopt_shared::frontier::redis::RedisOptions;
use kernelopt_shared::language_model::NanoUsd;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{FromRedisValue, Script, ScriptInvocation};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::limit::account::{Position, When};
use crate::limit::books::{Books, Unreachable};
use crate::limit::ledger::{AccountName, Denied, TicketId, Wanted, note};
use crate::limit::{Amounts, Kind, Limits, Meter};
use crate::settings::Shared;

/// The largest amount that is written: sums of such ones are exact in binary64, in which scripts count.
const MOST_AMOUNT: u64 = 1_000_000_000_000_000;
/// The largest amount of a rate.
const MOST_UNITS: u64 = 10_000_000_000;

/// Books in Redis.
pub struct RedisBooks {
    connection: ConnectionManager,
    scripts: Scripts,
    start: String,
    deadline: Duration,
    ticket: Duration,
    /// Set once the server was seen to be one that throws no budgets away.
    checked: OnceCell<()>,
}

struct Scripts {
    reserve: Script,
    settle: Script,
    renew: Script,
    look: Script,
}

/// A script with what all have in common before it.
macro_rules! script {
    ($file:literal) => {
        Script::new(concat!(include_str!("common.lua"), "\n", include_str!($file)))
    };
}

impl RedisBooks {
    /// Books in the Redis that is set. Nothing is asked of it yet.
    ///
    /// # Errors
    /// The address or the certificates cannot be used.
    pub fn new(settings: &Shared) -> Result<Self, Unreachable> {
        let options =
            RedisOptions { ca_file: settings.ca_file.clone(), prefix: settings.prefix.clone(), ..RedisOptions::new(settings.url.clone()) };
        let client = options.client().map_err(|e| Unreachable(e.to_string()))?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(settings.deadline.mul_f64(0.9)))
            .set_response_timeout(Some(settings.deadline.mul_f64(0.9)))
            .set_number_of_retries(1)
            .set_min_delay(Duration::from_millis(10))
            .set_max_delay(Duration::from_millis(50));
        let connection = ConnectionManager::new_lazy_with_config(client, config).map_err(|e| Unreachable(e.category().into()))?;
        let scripts = Scripts {
            reserve: script!("reserve.lua"),
            settle: script!("settle.lua"),
            renew: script!("renew.lua"),
            look: script!("look.lua"),
        };
        let start = format!("{}:limits:{{books}}:", settings.prefix);
        Ok(Self { connection, scripts, start, deadline: settings.deadline, ticket: settings.ticket, checked: OnceCell::new() })
    }

    fn key(&self, of: &str, name: impl std::fmt::Display) -> String {
        format!("{}{of}:{name}", self.start)
    }

    async fn within<T>(&self, call: impl Future<Output = redis::RedisResult<T>>) -> Result<T, Unreachable> {
        match timeout(self.deadline, call).await {
            // The library's own words may repeat an address with a password in it.
            Ok(done) => done.map_err(|error| Unreachable(error.detail().map_or_else(|| error.category().into(), Into::into))),
            Err(_) => Err(Unreachable(format!("no answer within {} ms", self.deadline.as_millis()))),
        }
    }

    async fn run<T: FromRedisValue>(&self, call: ScriptInvocation<'_>) -> Result<T, Unreachable> {
        self.check().await?;
        let mut connection = self.connection.clone();
        self.within(call.invoke_async(&mut connection)).await
    }

    /// Refuses a server that throws keys away when it is full: what was spent would be forgotten.
    async fn check(&self) -> Result<(), Unreachable> {
        let check = async || {
            let mut connection = self.connection.clone();
            let info: String = self.within(redis::cmd("INFO").arg("memory").query_async(&mut connection)).await?;
            let says =
                |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default().trim().to_owned();
            let (policy, most) = (says("maxmemory_policy"), says("maxmemory"));
            if most != "0" && !policy.is_empty() && policy != "noeviction" {
                return Err(Unreachable(format!(
                    "it evicts keys when it is full ({policy}), and budgets with them: set maxmemory-policy noeviction"
                )));
            }
            Ok(())
        };
        self.checked.get_or_try_init(check).await.copied()
    }

    /// A script on the accounts of a reservation.
    fn on<'a>(&self, script: &'a Script, ticket: TicketId, wanted: &Wanted) -> ScriptInvocation<'a> {
        let mut call = script.prepare_invoke();
        call.key(self.tickets()).key(self.key("ticket", ticket));
        for (account, _) in &wanted.accounts {
            call.key(self.key("account", account));
        }
        call
    }

    fn tickets(&self) -> String {
        format!("{}tickets", self.start)
    }

    fn ttl_ms(&self) -> u64 {
        u64::try_from(self.ticket.as_millis()).unwrap_or(u64::MAX)
    }
}

fn amounts(call: &mut ScriptInvocation<'_>, amounts: &Amounts) {
    for kind in Kind::ALL {
        call.arg(amounts.of(kind).min(MOST_UNITS));
    }
    call.arg(amounts.money.0.min(MOST_AMOUNT)).arg(amounts.budget_tokens.min(MOST_AMOUNT));
}

fn limits(call: &mut ScriptInvocation<'_>, limits: &Limits) {
    for rate in limits.rates {
        let (per_minute, burst) = rate.map_or((0, 0), |rate| (rate.per_minute, rate.burst));
        call.arg(per_minute).arg(burst);
    }
    for limit in [limits.concurrent, limits.budget.map(|money| money.0), limits.budget_tokens] {
        call.arg(limit.map_or(-1, |limit| i64::try_from(limit.min(MOST_AMOUNT)).unwrap_or(i64::MAX)));
    }
}

#[async_trait]
impl Books for RedisBooks {
    async fn reserve(&self, ticket: TicketId, wanted: &Wanted) -> Result<Result<(), Denied>, Unreachable> {
        let mut call = self.on(&self.scripts.reserve, ticket, wanted);
        call.arg(self.ttl_ms());
        amounts(&mut call, &wanted.amounts);
        wanted.accounts.iter().for_each(|(_, of)| limits(&mut call, of));
        let obstacles: Vec<(usize, u8, u8, u64)> = self.run(call).await?;
        let mut denied = None;
        for (account, meter, when, wait) in obstacles {
            let (name, _) = account.checked_sub(1).and_then(|at| wanted.accounts.get(at)).ok_or_else(garbled)?;
            let meter = match meter {
                1..=4 => Meter::Rate(Kind::ALL[usize::from(meter) - 1]),
                5 => Meter::Concurrent,
                6 => Meter::Money,
                _ => Meter::BudgetTokens,
            };
            note(&mut denied, name, meter, [When::After(wait), When::Released, When::Spent, When::Never][usize::from(when.min(3))]);
        }
        Ok(denied.map_or(Ok(()), Err))
    }

    async fn settle(&self, ticket: TicketId, wanted: &Wanted, used: &Amounts) -> Result<bool, Unreachable> {
        let mut call = self.on(&self.scripts.settle, ticket, wanted);
        amounts(&mut call, used);
        wanted.accounts.iter().for_each(|(_, of)| limits(&mut call, of));
        self.run(call).await
    }

    async fn renew(&self, tickets: &[TicketId]) -> Result<(), Unreachable> {
        for some in tickets.chunks(500) {
            let mut call = self.scripts.renew.prepare_invoke();
            call.key(self.tickets()).arg(self.ttl_ms());
            for ticket in some {
                call.key(self.key("ticket", ticket));
            }
            let _: u64 = self.run(call).await?;
        }
        Ok(())
    }

    async fn position(&self, account: &AccountName, of: &Limits) -> Result<Position, Unreachable> {
        let mut call = self.scripts.look.prepare_invoke();
        call.key(self.tickets()).key(self.key("account", account));
        limits(&mut call, of);
        let seen: Vec<i64> = self.run(call).await?;
        let [in_flight, reserved, spent, reserved_tokens, spent_tokens, ref left @ ..] = seen[..] else { return Err(garbled()) };
        let count = |number: i64| u64::try_from(number).unwrap_or_default();
        let mut shown = Position {
            in_flight: count(in_flight),
            reserved: NanoUsd(count(reserved)),
            spent: NanoUsd(count(spent)),
            reserved_tokens: count(reserved_tokens),
            spent_tokens: count(spent_tokens),
            left: [None; 4],
        };
        for (kind, left) in shown.left.iter_mut().zip(left) {
            *kind = u64::try_from(*left).ok();
        }
        Ok(shown)
    }
}

fn garbled() -> Unreachable {
    Unreachable("its answer is not that of our script".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scripts are a contract with gateways of other versions on the same Redis: a change of them is meant, and seen here.
    #[test]
    fn the_scripts_are_these() {
        let hashes = [script!("reserve.lua"), script!("settle.lua"), script!("renew.lua"), script!("look.lua")]
            .map(|script| script.get_hash().to_owned());
        insta::assert_debug_snapshot!(hashes);
    }
}
