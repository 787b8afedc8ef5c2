//! One rule of the fleet each, with the failure that would break it.

use std::time::Duration;

use kernelopt_coordinator::journal::Event;
use kernelopt_coordinator::search::state::Ended;
use kernelopt_shared::message::{AgentMode, JobId};
use proptest::prelude::*;

use crate::crew::{Crew, terms};

const SECOND: Duration = Duration::from_secs(1);

fn all(tasks: u64) -> Vec<u64> {
    (0..tasks).collect()
}

fn job(name: &str) -> JobId {
    JobId::parse(name).expect("a plain name")
}

#[test]
fn every_task_is_done_once() {
    let mut crew = Crew::new(4);
    crew.copies = 3;
    crew.drill("a", 200, SECOND / 2, terms(10, 5));
    crew.run(Duration::from_secs(300));
    assert_eq!(crew.done()[&job("a")], all(200));
    assert_eq!((crew.count("evidence"), crew.count("released"), crew.count("drilled")), (0, 0, 1));
}

#[test]
fn a_dead_agents_tasks_are_with_others_within_fifteen_seconds() {
    let mut crew = Crew::new(3);
    crew.drill("a", 60, SECOND, terms(10, 5));
    crew.run(Duration::from_secs(6));
    crew.hands[0].mute = true;
    let died = crew.now;
    while crew.count("released") == 0 {
        crew.step();
        assert!(crew.now < died + Duration::from_secs(16), "its lease is still its");
    }
    crew.run(Duration::from_secs(300));
    assert_eq!(crew.done()[&job("a")], all(60));
}

#[test]
fn an_agent_that_slept_changes_nothing_and_its_result_is_kept() {
    let mut crew = Crew::new(2);
    crew.drill("a", 40, SECOND * 2, terms(10, 5));
    crew.run(Duration::from_secs(7));
    crew.hands[0].mute = true;
    crew.run(Duration::from_secs(30));
    crew.hands[0].mute = false;
    crew.run(Duration::from_secs(300));
    assert_eq!(crew.done()[&job("a")], all(40));
    assert!(crew.count("evidence") >= 1, "what it measured meanwhile is evidence");
}

#[test]
fn what_a_restarted_agent_held_is_given_out_at_once() {
    let mut crew = Crew::new(1);
    crew.drill("a", 5, SECOND * 4, terms(10, 5));
    crew.run(Duration::from_secs(11));
    crew.hands[0].restart();
    let restarted = crew.now;
    crew.run(Duration::from_secs(60));
    assert_eq!(crew.done()[&job("a")], all(5));
    assert!(crew.now - restarted < Duration::from_secs(25), "{:?}", crew.now - restarted);
}

#[test]
fn a_task_that_kills_agents_is_found_out_though_the_broker_hands_it_on() {
    let mut crew = Crew::new(4);
    crew.drill("deadly", 1, SECOND * 5, terms(10, 5));
    crew.run(SECOND);
    let task = crew.fleet.leases().iter().next().map(|held| (held.id, held.lease)).expect("it is given out");
    let now = std::time::Instant::now() + crew.now;
    // Each begins with it and dies, and the broker delivers it to the next, under the same lease.
    for number in 1..4 {
        crew.fleet.started(crew.hands[number].id.clone(), task.0, task.1, now);
    }
    crew.settle();
    assert_eq!((crew.count("quarantined"), crew.count("failed")), (1, 1));
}

#[test]
fn a_black_hole_poisons_no_task() {
    let mut crew = Crew::new(3);
    crew.hands[0].broken = true;
    crew.drill("a", 100, SECOND, terms(10, 5));
    crew.run(Duration::from_secs(4));
    let failed = crew.count("released");
    assert!(failed > 3, "{failed}");
    // Its own test failed as well.
    crew.hands[0].mode = AgentMode::Quarantined { reason: "the canary failed".into() };
    crew.run(Duration::from_secs(300));
    assert_eq!(crew.done()[&job("a")], all(100));
    assert_eq!((crew.count("quarantined"), crew.count("agent_quarantined")), (0, 1));
}

#[test]
fn a_task_that_no_agent_can_do_ends_its_job_and_no_other() {
    let mut crew = Crew::new(2);
    crew.hands.iter_mut().for_each(|hand| hand.broken = true);
    crew.drill("bad", 1, SECOND, terms(10, 5));
    crew.run(Duration::from_secs(30));
    let reason = crew.journal.iter().find_map(|entry| match &entry.event {
        Event::Quarantined { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    let reason = reason.expect("it is in quarantine");
    assert!(reason.contains("no compiler") && reason.contains("host0") && reason.contains("host1"), "{reason}");
    crew.hands.iter_mut().for_each(|hand| hand.broken = false);
    crew.drill("good", 10, SECOND, terms(10, 5));
    crew.run(Duration::from_secs(60));
    assert_eq!(crew.done()[&job("good")], all(10));
}

#[test]
fn a_purged_broker_gets_exactly_what_is_outstanding() {
    let mut crew = Crew::new(2);
    crew.drill("a", 30, SECOND * 3, terms(10, 5));
    crew.run(Duration::from_secs(8));
    // An agent that joins makes room, so that tasks lie in the broker.
    crew.hire();
    crew.hands[2].mode = AgentMode::Draining;
    crew.lanes.clear();
    crew.run(Duration::from_secs(300));
    assert_eq!(crew.done()[&job("a")], all(30));
}

#[test]
fn a_cancelled_job_stops_and_nothing_appears_after() {
    let mut crew = Crew::new(2);
    crew.drill("a", 100, SECOND * 2, terms(10, 5));
    crew.run(Duration::from_secs(10));
    let now = std::time::Instant::now() + crew.now;
    assert!(crew.fleet.end(&job("a"), Ended::Cancelled, now));
    crew.settle();
    let done = crew.count("done");
    crew.run(Duration::from_secs(1));
    (0..200).for_each(|_| crew.step());
    assert_eq!(crew.count("done"), done);
    assert!(crew.fleet.leases().is_empty());
    assert!(!crew.fleet.end(&job("a"), Ended::Cancelled, now), "it is over");
}

#[test]
fn priority_comes_before_share() {
    let mut crew = Crew::new(2);
    crew.drill("low", 50, SECOND, terms(100, 1));
    crew.run(Duration::from_secs(5));
    let before = crew.dispatched.len();
    crew.drill("high", 20, SECOND, terms(1, 9));
    crew.run(Duration::from_secs(8));
    assert!(crew.dispatched[before..].iter().take(10).all(|id| *id == job("high")), "{:?}", &crew.dispatched[before..]);
    crew.run(Duration::from_secs(100));
    assert!(crew.is_done());
}

#[test]
fn a_job_of_a_thousand_does_not_hold_back_a_job_of_one() {
    let mut crew = Crew::new(4);
    crew.drill("flood", 1000, SECOND, terms(10, 5));
    crew.run(Duration::from_secs(20));
    let before = crew.dispatched.len();
    crew.drill("one", 1, SECOND, terms(10, 5));
    crew.run(Duration::from_secs(6));
    let waited = crew.dispatched[before..].iter().position(|id| *id == job("one")).expect("it was served");
    assert!(waited <= 8, "{waited} tasks were given out before it");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Whatever happens to agents and coordinators, every task is done, each counts once, and the journal alone gives the same state.
    #[test]
    fn nothing_is_lost_and_nothing_counts_twice(accidents in prop::collection::vec((0u8..6, 0usize..4, 1u64..20), 1..25), copies in 1usize..3) {
        let mut crew = Crew::new(4);
        crew.copies = copies;
        crew.drill("a", 40, SECOND, terms(10, 5));
        crew.drill("b", 25, SECOND * 2, terms(30, 5));
        for (what, hand, seconds) in accidents {
            match what {
                0 => crew.hands[hand].mute = true,
                1 => crew.hands[hand].mute = false,
                2 => crew.hands[hand].restart(),
                3 => crew.replace_coordinator(),
                4 => crew.lanes.clear(),
                _ => crew.lanes.values_mut().for_each(|lane| lane.make_contiguous().reverse()),
            }
            crew.run(Duration::from_secs(seconds));
        }
        crew.hands.iter_mut().for_each(|hand| hand.mute = false);
        crew.run(Duration::from_secs(600));
        prop_assert_eq!(&crew.done()[&job("a")], &all(40));
        prop_assert_eq!(&crew.done()[&job("b")], &all(25));
        prop_assert!(crew.fleet.leases().is_empty());
    }
}
