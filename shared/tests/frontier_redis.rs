//! A frontier in Redis while Redis misbehaves. Each test has a server of its own.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernelopt_shared::digest::Digest;
use kernelopt_shared::exit::UserError;
use kernelopt_shared::frontier::redis::{RedisFrontier, RedisOptions};
use kernelopt_shared::frontier::{Entry, Frontier, FrontierError, Offer, Offered, digest};
use kernelopt_shared::message::{DeviceClass, JobId};
use kernelopt_shared::secret::SecretString;
use kernelopt_test_servers::{Proxy, Redis, RedisOptions as Server};

const DEADLINE: Duration = Duration::from_millis(800);
/// What a busy machine may add to a deadline.
const SLACK: Duration = Duration::from_millis(700);

fn server() -> Redis {
    Redis::start(Server::default()).unwrap()
}

fn options(url: &str) -> RedisOptions {
    RedisOptions { deadline: DEADLINE, ..RedisOptions::new(url) }
}

async fn open(url: &str) -> RedisFrontier {
    RedisFrontier::open(options(url)).await.unwrap()
}

fn offer(kernel: u8, time_ns: u64) -> Offer {
    Offer {
        fingerprint: Digest::of([[kernel].as_slice()]),
        class: DeviceClass::parse("cpu-2t").unwrap(),
        candidate: Digest::of([&time_ns.to_le_bytes()[..]]),
        document: Digest::of([b"document".as_slice()]),
        time_ns,
        baseline_ns: 5_000,
        job: JobId::parse("job").unwrap(),
        epoch: 1,
    }
}

fn entries(count: u8) -> Vec<Entry> {
    (0..count).map(|kernel| Entry { offer: offer(kernel, 1_000), revision: 1 }).collect()
}

fn key(kernel: u8) -> String {
    format!("kernelopt:frontier:{{{}}}:cpu-2t", offer(kernel, 1).fingerprint)
}

/// Repeats an offer until it is taken.
async fn recovers(frontier: &RedisFrontier, offer: &Offer) -> Offered {
    let started = Instant::now();
    loop {
        match frontier.offer(offer).await {
            Ok(offered) => return offered,
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                assert!(started.elapsed() < Duration::from_secs(10), "not within 10 s: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// An offer that fails, within its deadline.
async fn fails(frontier: &RedisFrontier, offer: &Offer) -> FrontierError {
    let started = Instant::now();
    let error = frontier.offer(offer).await.unwrap_err();
    assert!(started.elapsed() < DEADLINE + SLACK, "{:?}: {error}", started.elapsed());
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn flushed_scripts_come_back() {
    let redis = server();
    let frontier = open(&redis.url()).await;
    frontier.offer(&offer(0, 100)).await.unwrap();
    redis.command(&["SCRIPT", "FLUSH"]).unwrap();
    assert_eq!(frontier.offer(&offer(0, 90)).await.unwrap(), Offered::Improved { revision: 2 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_store_is_noticed_and_rebuilt() {
    let redis = server();
    let frontier = open(&redis.url()).await;
    let entries = entries(50);
    let generation = frontier.rebuild(&entries, 1).await.unwrap();
    redis.command(&["FLUSHALL"]).unwrap();
    assert_eq!(frontier.generation().await.unwrap(), None);
    assert_eq!(frontier.all().await.unwrap(), []);
    assert_ne!(frontier.rebuild(&entries, 1).await.unwrap(), generation);
    assert_eq!(digest(&frontier.all().await.unwrap()), digest(&entries));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_is_noticed() {
    // A replica that was cut off before the last offer becomes the primary.
    let primary = server();
    let replica = server();
    let frontier = open(&primary.url()).await;
    let generation = frontier.rebuild(&entries(3), 1).await.unwrap();
    replica.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]).unwrap();
    let there = open(&replica.url()).await;
    let started = Instant::now();
    while there.generation().await.ok().flatten().is_none() {
        assert!(started.elapsed() < Duration::from_secs(20), "the replica did not follow");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let error = fails(&there, &offer(0, 1)).await;
    assert!(matches!(error, FrontierError::ReadOnly), "{error}");
    assert!(matches!(there.health().await, Err(FrontierError::ReadOnly)));
    assert!(matches!(there.rebuild(&[], 1).await, Err(FrontierError::ReadOnly)));
    replica.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    frontier.offer(&offer(0, 10)).await.unwrap();

    let found = there.generation().await.unwrap().unwrap();
    assert_eq!((found.epoch, &found.id), (generation.epoch, &generation.id));
    assert_ne!(found.server, generation.server);
    assert_eq!(there.offer(&offer(0, 10)).await.unwrap(), Offered::Improved { revision: 2 });
    assert!(there.health().await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn full_memory_refuses_and_loses_nothing() {
    let redis = server();
    let frontier = open(&redis.url()).await;
    frontier.rebuild(&entries(3), 1).await.unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let error = fails(&frontier, &offer(0, 10)).await;
    assert!(matches!(error, FrontierError::Full), "{error}");
    assert!(error.remedy().unwrap().contains("maxmemory"));
    assert!(matches!(frontier.health().await, Err(FrontierError::Full)));
    let kept = frontier.best(offer(0, 10).fingerprint, &offer(0, 10).class).await.unwrap().unwrap();
    assert_eq!(kept, entries(1)[0]);

    // A rebuild that was interrupted is seen as one, and repeated.
    assert!(matches!(frontier.rebuild(&entries(9), 1).await, Err(FrontierError::Full)));
    assert_eq!(frontier.generation().await.unwrap(), None);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    frontier.rebuild(&entries(9), 1).await.unwrap();
    assert_eq!(digest(&frontier.all().await.unwrap()), digest(&entries(9)));
    assert_eq!(frontier.offer(&offer(0, 10)).await.unwrap(), Offered::Improved { revision: 2 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_comes_back() {
    let mut redis = server();
    let frontier = open(&redis.url()).await;
    let generation = frontier.rebuild(&entries(3), 1).await.unwrap();
    frontier.offer(&offer(0, 10)).await.unwrap();
    redis.kill9();
    for _ in 0..5 {
        let error = fails(&frontier, &offer(0, 9)).await;
        assert!(matches!(error, FrontierError::Down(_)), "{error}");
    }
    assert!(frontier.health().await.is_err());
    redis.restart().unwrap();
    assert_eq!(recovers(&frontier, &offer(0, 10)).await, Offered::Kept { best: Entry { offer: offer(0, 10), revision: 2 } });
    let found = frontier.generation().await.unwrap().unwrap();
    assert_eq!(found.id, generation.id);
    assert_ne!(found.server, generation.server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_costs_a_deadline() {
    let redis = server();
    let frontier = open(&redis.url()).await;
    frontier.offer(&offer(0, 10)).await.unwrap();
    redis.pause();
    for _ in 0..2 {
        let error = fails(&frontier, &offer(0, 9)).await;
        assert!(error.is_transient(), "{error}");
    }
    redis.resume();
    // The offers that got no answer may have been taken: said again, it is kept or an improvement.
    recovers(&frontier, &offer(0, 9)).await;
    let entry = frontier.best(offer(0, 9).fingerprint, &offer(0, 9).class).await.unwrap().unwrap();
    assert_eq!(entry, Entry { offer: offer(0, 9), revision: 2 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_breaks_loses_nothing() {
    let redis = server();
    let proxy = Arc::new(Proxy::to(redis.port()).unwrap());
    let frontier = Arc::new(open(&format!("redis://127.0.0.1:{}", proxy.port())).await);
    let cutter = {
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move {
            for cut in 0..10 {
                tokio::time::sleep(Duration::from_millis(60)).await;
                if cut == 5 {
                    proxy.close();
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    proxy.open();
                }
                proxy.cut();
            }
        })
    };
    let tasks: Vec<_> = (0..4u64)
        .map(|task| {
            let frontier = Arc::clone(&frontier);
            tokio::spawn(async move {
                for step in 0..100 {
                    recovers(&frontier, &offer(0, 10_000 - 4 * step - task)).await;
                    tokio::time::sleep(Duration::from_millis(8)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    cutter.await.unwrap();
    let best = frontier.best(offer(0, 1).fingerprint, &offer(0, 1).class).await.unwrap().unwrap();
    assert_eq!(best.offer.time_ns, 10_000 - 4 * 99 - 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_starts_late_is_waited_for() {
    let mut redis = server();
    redis.kill9();
    let frontier = open(&redis.url()).await;
    fails(&frontier, &offer(0, 10)).await;
    redis.restart().unwrap();
    assert_eq!(recovers(&frontier, &offer(0, 10)).await, Offered::Improved { revision: 1 });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicting_server_is_refused_or_warned_of() {
    let mut redis = Redis::start(Server::default().set("maxmemory-policy", "allkeys-lru")).unwrap();
    let refused = RedisFrontier::open(options(&redis.url())).await.err().unwrap();
    assert!(matches!(&refused, FrontierError::Evicts(policy) if policy == "allkeys-lru"), "{refused}");
    assert!(refused.remedy().unwrap().contains("noeviction"));

    let allowed = RedisFrontier::open(RedisOptions { allow_eviction: true, ..options(&redis.url()) }).await.unwrap();
    allowed.offer(&offer(0, 10)).await.unwrap();
    assert!(allowed.health().await.unwrap().warning.unwrap().contains("allkeys-lru"));

    // One that was not there at the start is looked at before it is used.
    redis.kill9();
    let late = open(&redis.url()).await;
    redis.restart().unwrap();
    assert!(matches!(late.offer(&offer(0, 9)).await, Err(FrontierError::Evicts(_) | FrontierError::Down(_))));
    assert!(matches!(late.best(offer(0, 9).fingerprint, &offer(0, 9).class).await, Err(FrontierError::Evicts(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_needed_and_not_told() {
    let redis = Redis::start(Server::default().password("correct-horse")).unwrap();
    let with = |password: &str| RedisOptions { password: Some(SecretString::from(password)), ..options(&redis.url()) };
    let frontier = RedisFrontier::open(with("correct-horse")).await.unwrap();
    assert_eq!(frontier.offer(&offer(0, 10)).await.unwrap(), Offered::Improved { revision: 1 });
    assert!(!format!("{:?}", with("correct-horse")).contains("correct-horse"));

    let in_url = redis.url().replace("://", "://:battery-staple@");
    for wrong in [with("battery-staple"), options(&redis.url()), options(&in_url)] {
        let shown = format!("{wrong:?}");
        let error = RedisFrontier::open(wrong).await.err().unwrap();
        assert!(matches!(error, FrontierError::Refused(_)), "{error:?}");
        assert!(!format!("{error} {error:?} {shown}").contains("battery-staple"), "{error:?} {shown}");
    }
    for unusable in ["http://user:battery-staple@host", "redis://host:port:battery-staple", "battery-staple"] {
        let error = RedisFrontier::open(options(unusable)).await.err().unwrap();
        assert!(matches!(error, FrontierError::Options(_)), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("battery"), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_rights_is_told_so() {
    let redis = server();
    redis.command(&["ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read", "+info", "+hello"]).unwrap();
    let reader = RedisOptions { username: Some("reader".into()), password: Some(SecretString::from("secret")), ..options(&redis.url()) };
    let frontier = RedisFrontier::open(reader).await.unwrap();
    let error = fails(&frontier, &offer(0, 10)).await;
    assert!(matches!(&error, FrontierError::Refused(words) if words.contains("NOPERM")), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_knows_its_server() {
    let fixture = |name: &str| -> PathBuf { Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name) };
    let redis = Redis::start(Server::default().tls(&fixture("server.pem"), &fixture("server.key"))).unwrap();
    let by = |ca: &str| RedisOptions { ca_file: Some(fixture(ca)), ..options(&redis.url()) };
    let frontier = RedisFrontier::open(by("ca.pem")).await.unwrap();
    assert_eq!(frontier.offer(&offer(0, 10)).await.unwrap(), Offered::Improved { revision: 1 });

    let other = RedisFrontier::open(by("other-ca.pem")).await.unwrap();
    let error = fails(&other, &offer(0, 9)).await;
    assert!(error.to_string().contains("certificate"), "{error}");
    let system = open(&redis.url()).await;
    assert!(fails(&system, &offer(0, 9)).await.to_string().contains("certificate"));
    assert!(matches!(RedisFrontier::open(by("no-such.pem")).await.err().unwrap(), FrontierError::Options(_)));
    assert!(matches!(RedisFrontier::open(by("README.md")).await.err().unwrap(), FrontierError::Options(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_values_are_named_and_healed() {
    let redis = server();
    let frontier = open(&redis.url()).await;
    frontier.rebuild(&entries(3), 1).await.unwrap();
    redis.command(&["SET", &key(0), "not ours"]).unwrap();
    let error = fails(&frontier, &offer(0, 10)).await;
    assert!(matches!(&error, FrontierError::Corrupt { key: named, .. } if *named == key(0)), "{error:?}");
    redis.command(&["HSET", &key(1), "offer", "{}"]).unwrap();
    let error = frontier.all().await.unwrap_err();
    assert!(matches!(error, FrontierError::Corrupt { .. }), "{error:?}");
    redis.command(&["SADD", &key(9), "not ours"]).unwrap();

    frontier.rebuild(&entries(3), 1).await.unwrap();
    assert_eq!(digest(&frontier.all().await.unwrap()), digest(&entries(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_share_a_server() {
    let redis = server();
    redis.command(&["SET", "somebody:else", "1"]).unwrap();
    let one = RedisFrontier::open(RedisOptions { prefix: "one".into(), ..options(&redis.url()) }).await.unwrap();
    let two = RedisFrontier::open(RedisOptions { prefix: "two".into(), ..options(&redis.url()) }).await.unwrap();
    one.rebuild(&entries(3), 1).await.unwrap();
    two.rebuild(&entries(5), 9).await.unwrap();
    one.rebuild(&[], 2).await.unwrap();
    assert_eq!(one.all().await.unwrap(), []);
    assert_eq!(digest(&two.all().await.unwrap()), digest(&entries(5)));
    assert_eq!(redis.command(&["GET", "somebody:else"]).unwrap().trim(), "1");
    let pattern = RedisFrontier::open(RedisOptions { prefix: "*".into(), ..options(&redis.url()) }).await.err().unwrap();
    assert!(matches!(pattern, FrontierError::Options(_)));
}
