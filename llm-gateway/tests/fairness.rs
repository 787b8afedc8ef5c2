//! Whose turn it is, without any clock or limit but those that the tests make.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::BTreeMap;

use kernelopt_llm_gateway::queue::drr::{Bounds, Entry, Full, Queue};
use proptest::prelude::*;

type Fair = Queue<&'static str, u8, (&'static str, u64)>;

const BOUNDS: Bounds = Bounds { most: 100_000, most_per_job: 100_000, ageing: 60_000 };

fn entry(job: &'static str, cost: u64) -> Entry<&'static str, u8, (&'static str, u64)> {
    Entry { job, weight: 1, lane: 0, priority: 5, cost, deadline: u64::MAX, again: false, item: (job, cost) }
}

/// Sends `count` requests and says how many tokens each job got. After each, `refill` may push more.
fn send(queue: &mut Fair, count: usize, mut refill: impl FnMut(&mut Fair, (&'static str, u64))) -> BTreeMap<&'static str, u64> {
    let mut got = BTreeMap::new();
    for _ in 0..count {
        let sent = queue.next(0, |_| true).unwrap();
        *got.entry(sent.0).or_default() += sent.1;
        refill(queue, sent);
    }
    got
}

fn share(got: &BTreeMap<&'static str, u64>, job: &str) -> f64 {
    got[job] as f64 / got.values().sum::<u64>() as f64
}

#[test]
fn a_flood_of_small_ones_and_a_few_large_ones_share_by_tokens() {
    let mut queue = Fair::new(BOUNDS);
    (0..50_000).for_each(|at| assert!(queue.push(entry("flood", 50 + at % 20), 0).is_ok()));
    // The other has four requests at a time: when one is sent, its answer brings the next.
    (0..4).for_each(|_| assert!(queue.push(entry("few", 3_000), 0).is_ok()));
    let got = send(&mut queue, 20_000, |queue, (job, _)| {
        if job == "few" {
            queue.push(entry("few", 3_000), 0).unwrap();
        }
    });
    assert!((share(&got, "few") - 0.5).abs() < 0.01, "{got:?}");
    assert!(queue.len() > 30_000);
}

#[test]
fn shares_follow_weights() {
    let mut queue = Fair::new(BOUNDS);
    for at in 0..20_000 {
        queue.push(Entry { weight: 3, ..entry("heavy", 100 + at % 7) }, 0).unwrap();
        queue.push(entry("light", 900 + at % 11), 0).unwrap();
    }
    let got = send(&mut queue, 15_000, |_, _| {});
    assert!((share(&got, "heavy") - 0.75).abs() < 0.01, "{got:?}");
}

#[test]
fn idleness_earns_nothing() {
    let mut queue = Fair::new(BOUNDS);
    (0..2_000).for_each(|_| assert!(queue.push(entry("busy", 100), 0).is_ok()));
    send(&mut queue, 1_000, |_, _| {});
    (0..1_000).for_each(|_| assert!(queue.push(entry("late", 100), 0).is_ok()));
    let got = send(&mut queue, 500, |_, _| {});
    assert!((share(&got, "late") - 0.5).abs() < 0.01, "{got:?}");
}

#[test]
fn priorities_are_strict_until_they_age() {
    let mut queue = Fair::new(Bounds { ageing: 10, ..BOUNDS });
    queue.push(Entry { priority: 6, item: ("old", 0), ..entry("low", 1) }, 0).unwrap();
    queue.push(Entry { priority: 5, item: ("new", 0), ..entry("high", 1) }, 9).unwrap();
    assert_eq!(queue.next(9, |_| true), Some(("new", 0)));
    queue.push(Entry { priority: 4, item: ("newer", 0), ..entry("high", 1) }, 20).unwrap();
    // Two steps in twenty milliseconds: they are equal, and the older one's turn is longer ago.
    assert_eq!(queue.next(20, |_| true), Some(("old", 0)));
    assert_eq!(queue.next(20, |_| true), Some(("newer", 0)));
    assert_eq!(queue.next(20, |_| true), None);
}

#[test]
fn the_age_of_a_flood_puts_it_before_nobody() {
    let mut queue = Fair::new(Bounds { ageing: 10, ..BOUNDS });
    (0..1_000).for_each(|_| assert!(queue.push(entry("flood", 100), 0).is_ok()));
    let mut got = BTreeMap::<_, u64>::new();
    for now in 1..400 {
        if now % 2 == 0 {
            queue.push(entry("late", 100), now).unwrap();
        }
        let (job, cost) = queue.next(now, |_| true).unwrap();
        *got.entry(job).or_default() += cost;
    }
    assert!((share(&got, "late") - 0.5).abs() < 0.02, "{got:?}");
}

#[test]
fn a_low_priority_that_is_starved_gets_one_through_per_age() {
    let mut queue = Fair::new(Bounds { ageing: 10, ..BOUNDS });
    (0..1_000).for_each(|_| assert!(queue.push(Entry { priority: 9, ..entry("batch", 100) }, 0).is_ok()));
    let mut got = BTreeMap::<_, u64>::new();
    for now in 0..1_000 {
        queue.push(entry("people", 100), now).unwrap();
        let (job, _) = queue.next(now, |_| true).unwrap();
        *got.entry(job).or_default() += 1;
    }
    // Four priorities between them, and fifty milliseconds until it is first; forty until it takes turns.
    assert!((19..=26).contains(&got["batch"]), "{got:?}");
}

#[test]
fn retries_go_first_within_their_job_and_the_rest_keep_their_order() {
    let mut queue = Fair::new(BOUNDS);
    for (number, again) in [(1, false), (2, false), (3, true), (4, true)] {
        queue.push(Entry { again, item: ("job", number), ..entry("job", 10) }, 0).unwrap();
    }
    let order: Vec<_> = std::iter::from_fn(|| queue.next(0, |_| true)).map(|item| item.1).collect();
    assert_eq!(order, [3, 4, 1, 2]);
}

#[test]
fn who_cannot_go_on_holds_nobody_up_and_earns_nothing() {
    let mut queue = Fair::new(BOUNDS);
    for _ in 0..1_000 {
        queue.push(Entry { lane: 1, ..entry("stuck", 100) }, 0).unwrap();
        queue.push(entry("free", 100), 0).unwrap();
        queue.push(entry("other", 100), 0).unwrap();
    }
    // A second lane of the job that is stuck goes on.
    queue.push(Entry { item: ("stuck", 7), ..entry("stuck", 100) }, 0).unwrap();
    let mut got = BTreeMap::<_, u64>::new();
    for _ in 0..401 {
        let (job, cost) = queue.next(0, |item| *item != ("stuck", 100)).unwrap();
        *got.entry(job).or_default() += cost;
    }
    assert_eq!(got, BTreeMap::from([("stuck", 7), ("free", 20_000), ("other", 20_000)]));
    // Let go, it has its third from now on and nothing for the past.
    let got = send(&mut queue, 300, |_, _| {});
    assert!((share(&got, "stuck") - 1.0 / 3.0).abs() < 0.02, "{got:?}");
}

#[test]
fn bounds_hold_and_a_refusal_has_no_effect() {
    let mut queue = Fair::new(Bounds { most: 3, most_per_job: 2, ..BOUNDS });
    let place = queue.push(entry("a", 1), 0).unwrap();
    queue.push(entry("a", 1), 0).unwrap();
    assert_eq!(queue.push(entry("a", 1), 0), Err(Full::Job));
    queue.push(entry("b", 1), 0).unwrap();
    assert_eq!(queue.push(entry("c", 1), 0), Err(Full::Queue));
    assert_eq!((queue.len(), queue.jobs().count()), (3, 2));
    assert_eq!(queue.remove(place), Some(("a", 1)));
    assert_eq!(queue.remove(place), None);
    queue.push(entry("a", 1), 0).unwrap();
}

#[test]
fn deadlines_are_kept() {
    let mut queue = Fair::new(BOUNDS);
    for deadline in [30, 10, 20] {
        queue.push(Entry { deadline, item: ("job", deadline), ..entry("job", 1) }, 0).unwrap();
    }
    assert_eq!(queue.first_deadline(), Some(10));
    assert_eq!(queue.expire(9), []);
    assert_eq!(queue.expire(20), [("job", 10), ("job", 20)]);
    assert_eq!((queue.len(), queue.first_deadline()), (1, Some(30)));
}

proptest! {
    /// Whatever is pushed comes out once, by one of the three ways, and then the queue is empty.
    #[test]
    fn each_request_leaves_once(steps in prop::collection::vec((0..4u8, 0..6usize, 1..1000u64, 0..10u8, 1..500u64, any::<bool>()), 1..300)) {
        const JOBS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
        let mut queue = Queue::<&str, u8, u64>::new(Bounds { most: 50, most_per_job: 20, ageing: 7 });
        let (mut places, mut inside, mut number, mut now) = (Vec::new(), std::collections::BTreeSet::new(), 0, 0);
        for (what, job, cost, priority, time, flag) in steps {
            now += time / 50;
            match what {
                0 | 1 => {
                    number += 1;
                    let entry = Entry { job: JOBS[job], weight: 1 + job as u32, lane: priority % 3, priority, cost, deadline: now + time, again: flag, item: number };
                    if let Ok(place) = queue.push(entry, now) {
                        places.push((place, number));
                        inside.insert(number);
                    }
                }
                2 => if let Some(sent) = queue.next(now, |item| flag || item % 3 == 0) {
                    prop_assert!(inside.remove(&sent));
                },
                _ if flag => queue.expire(now).into_iter().for_each(|item| assert!(inside.remove(&item))),
                _ => if let Some((place, item)) = places.pop() {
                    prop_assert_eq!(queue.remove(place), inside.remove(&item).then_some(item));
                },
            }
            prop_assert_eq!(queue.len(), inside.len());
            prop_assert_eq!(queue.jobs().map(|(_, count)| count).sum::<usize>(), inside.len());
        }
        while let Some(sent) = queue.next(now, |_| true) {
            prop_assert!(inside.remove(&sent));
        }
        prop_assert!(inside.is_empty() && queue.is_empty() && queue.first_deadline().is_none() && queue.jobs().next().is_none());
    }
}
