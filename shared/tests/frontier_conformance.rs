//! What every frontier must do, on each backend. Redis is a real one, of this test alone.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeSet;
use std::sync::Arc;

use kernelopt_shared::digest::Digest;
use kernelopt_shared::frontier::redis::{RedisFrontier, RedisOptions};
use kernelopt_shared::frontier::{Cursor, Entry, Frontier, FrontierError, MemoryFrontier, Offer, Offered, PAGE, Table, digest};
use kernelopt_shared::message::{DeviceClass, JobId};
use kernelopt_test_servers::Redis;

/// Runs each check on both backends, each on a frontier of its own.
macro_rules! conformance {
    ($($check:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                super::$check(std::sync::Arc::new(super::MemoryFrontier::default())).await;
            })*
        }
        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                let server = super::Redis::start(Default::default()).unwrap();
                super::$check(std::sync::Arc::new(super::RedisFrontier::open(super::RedisOptions::new(server.url())).await.unwrap())).await;
            })*
        }
    };
}

conformance!(
    many_offer_at_once,
    order_and_repetition_change_nothing,
    keys_do_not_meet,
    an_earlier_epoch_changes_nothing,
    a_rebuilt_one_is_exactly_what_was_given,
    a_rebuild_by_an_earlier_epoch_is_refused,
    all_of_many,
    large_numbers_are_exact,
);

fn offer(kernel: u32, candidate: u32, time_ns: u64) -> Offer {
    Offer {
        fingerprint: Digest::of([&kernel.to_le_bytes()[..]]),
        class: DeviceClass::parse("nvidia-h200-140g-sm90").unwrap(),
        candidate: Digest::of([&candidate.to_le_bytes()[..]]),
        document: Digest::of([b"document", &candidate.to_le_bytes()[..]]),
        time_ns,
        baseline_ns: 5_000,
        job: JobId::parse("7f3a9c2e41").unwrap(),
        epoch: 1,
    }
}

async fn best(frontier: &Arc<dyn Frontier>, of: &Offer) -> Option<Entry> {
    frontier.best(of.fingerprint, &of.class).await.unwrap()
}

/// Deterministic and without a pattern: a linear congruential generator (Knuth, MMIX).
fn drawn(at: u32) -> u64 {
    (u64::from(at) + 1).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 33
}

async fn many_offer_at_once(frontier: Arc<dyn Frontier>) {
    let offers = |task: u32| (0..100).map(move |at| offer(0, 100 * task + at, 1_000 + drawn(100 * task + at) % 1_000_000));
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let frontier = Arc::clone(&frontier);
            tokio::spawn(async move {
                let mut improved = Vec::new();
                for offer in offers(task) {
                    if let Offered::Improved { revision } = frontier.offer(&offer).await.unwrap() {
                        improved.push(revision);
                    }
                }
                improved
            })
        })
        .collect();
    let mut revisions = Vec::new();
    for task in tasks {
        revisions.extend(task.await.unwrap());
    }
    let least = (0..16).flat_map(offers).min_by_key(|offer| (offer.time_ns, offer.candidate)).unwrap();
    let entry = best(&frontier, &least).await.unwrap();
    assert_eq!(entry.offer, least);
    assert_eq!(entry.revision, revisions.len() as u64);
    // Each improvement was said to one.
    assert_eq!(revisions.iter().copied().collect::<BTreeSet<_>>(), (1..=entry.revision).collect());
}

async fn order_and_repetition_change_nothing(frontier: Arc<dyn Frontier>) {
    let offers: Vec<Offer> = (0..60).map(|at| offer(at % 3, at % 7, 1_000 + drawn(at) % 4)).collect();
    let mut expected = Table::default();
    for offer in &offers {
        assert_eq!(frontier.offer(offer).await.unwrap(), expected.offer(offer));
    }
    for offer in offers.iter().rev().chain(&offers) {
        let again = frontier.offer(offer).await.unwrap();
        assert!(matches!(again, Offered::Kept { .. }), "{again:?}");
    }
    let found = frontier.all().await.unwrap();
    assert_eq!(digest(&found), digest(expected.entries()));
}

async fn keys_do_not_meet(frontier: Arc<dyn Frontier>) {
    let here = offer(1, 1, 100);
    let other_kernel = offer(2, 1, 200);
    let other_class = Offer { class: DeviceClass::parse("host/amd.x_86-64t").unwrap(), time_ns: 300, ..offer(1, 1, 300) };
    assert_eq!(best(&frontier, &here).await, None);
    for offer in [&here, &other_kernel, &other_class] {
        assert_eq!(frontier.offer(offer).await.unwrap(), Offered::Improved { revision: 1 });
    }
    for offer in [&here, &other_kernel, &other_class] {
        assert_eq!(best(&frontier, offer).await.unwrap(), Entry { offer: offer.clone(), revision: 1 });
    }
}

async fn an_earlier_epoch_changes_nothing(frontier: Arc<dyn Frontier>) {
    let first = Offer { epoch: 9, ..offer(0, 1, 500) };
    frontier.offer(&first).await.unwrap();
    let late = Offer { epoch: 8, ..offer(0, 2, 100) };
    assert_eq!(frontier.offer(&late).await.unwrap(), Offered::Stale { epoch: 9 });
    assert_eq!(best(&frontier, &first).await.unwrap(), Entry { offer: first.clone(), revision: 1 });
    // An offer that is kept tells the key of its epoch too. 10 against 9: as numbers, not as texts.
    let slower = Offer { epoch: 10, ..offer(0, 3, 600) };
    assert_eq!(frontier.offer(&slower).await.unwrap(), Offered::Kept { best: Entry { offer: first.clone(), revision: 1 } });
    assert_eq!(frontier.offer(&first).await.unwrap(), Offered::Stale { epoch: 10 });
    let faster = Offer { epoch: 10, ..late };
    assert_eq!(frontier.offer(&faster).await.unwrap(), Offered::Improved { revision: 2 });
}

async fn a_rebuilt_one_is_exactly_what_was_given(frontier: Arc<dyn Frontier>) {
    assert_eq!(frontier.generation().await.unwrap(), None);
    for at in 0..20 {
        frontier.offer(&offer(at, 1, 10)).await.unwrap();
    }
    // Worse than what is there, partly other keys, and with a revision.
    let entries: Vec<Entry> = (10..40).map(|at| Entry { offer: offer(at, 2, 1_000), revision: 3 }).collect();
    let generation = frontier.rebuild(&entries, 2).await.unwrap();
    assert_eq!(generation.epoch, 2);
    assert_eq!(frontier.generation().await.unwrap(), Some(generation.clone()));
    let found = frontier.all().await.unwrap();
    assert_eq!(digest(&found), digest(&entries));
    assert!(found.iter().all(|entry| entry.revision == 3));

    let again = frontier.rebuild(&entries, 2).await.unwrap();
    assert_ne!(again.id, generation.id);
    assert_eq!(digest(&frontier.all().await.unwrap()), digest(&entries));
    // It is fenced, and goes on from there.
    assert_eq!(frontier.offer(&offer(10, 3, 1)).await.unwrap(), Offered::Stale { epoch: 2 });
    assert_eq!(frontier.offer(&Offer { epoch: 2, ..offer(10, 3, 1) }).await.unwrap(), Offered::Improved { revision: 4 });

    frontier.rebuild(&[], 3).await.unwrap();
    assert_eq!(frontier.all().await.unwrap(), []);
}

async fn a_rebuild_by_an_earlier_epoch_is_refused(frontier: Arc<dyn Frontier>) {
    let entries = [Entry { offer: offer(0, 1, 10), revision: 1 }];
    let generation = frontier.rebuild(&entries, 5).await.unwrap();
    assert!(matches!(frontier.rebuild(&[], 4).await, Err(FrontierError::Stale { epoch: 5 })));
    assert_eq!(frontier.generation().await.unwrap(), Some(generation));
    // By one that has only offered, too.
    frontier.offer(&Offer { epoch: 7, ..offer(0, 2, 20) }).await.unwrap();
    assert!(matches!(frontier.rebuild(&[], 6).await, Err(FrontierError::Stale { epoch: 7 })));
    assert_eq!(digest(&frontier.all().await.unwrap()), digest(&entries));
}

async fn all_of_many(frontier: Arc<dyn Frontier>) {
    let entries: Vec<Entry> = (0..5 * PAGE as u32 / 2).map(|at| Entry { offer: offer(at, 1, 10), revision: 1 }).collect();
    frontier.rebuild(&entries, 1).await.unwrap();
    let found = frontier.all().await.unwrap();
    assert_eq!(found.len(), entries.len());
    assert_eq!(digest(&found), digest(entries.iter().rev()));
    assert_ne!(digest(&found), digest(&entries[1..]));
    let page = frontier.page(Cursor::default()).await.unwrap();
    assert!(page.entries.len() < 2 * PAGE && page.next.is_some());
}

async fn large_numbers_are_exact(frontier: Arc<dyn Frontier>) {
    // Two that are one number as a double.
    let (large, less) = (offer(0, 1, (1 << 60) + 1), offer(0, 2, 1 << 60));
    assert_eq!(frontier.offer(&large).await.unwrap(), Offered::Improved { revision: 1 });
    assert_eq!(frontier.offer(&less).await.unwrap(), Offered::Improved { revision: 2 });
    let most = Offer { epoch: u64::MAX, ..offer(0, 3, u64::MAX) };
    assert_eq!(frontier.offer(&most).await.unwrap(), Offered::Kept { best: Entry { offer: less.clone(), revision: 2 } });
    assert_eq!(frontier.offer(&less).await.unwrap(), Offered::Stale { epoch: u64::MAX });
}
