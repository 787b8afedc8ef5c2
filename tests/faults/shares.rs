//! Rows of fairness and of clocks.

use std::time::Duration;

use kernelopt_coordinator::journal::{Entry, Event, Journal};
use serde_json::Value;

use crate::fleet::{Fleet, LONG};

/// Tasks that one agent holds, and those of one job in a row: what may be given out before a newcomer's.
const BOUND: usize = 12;

/// Row 24: a job of one task comes while a job of a thousand is at work.
pub fn a_thousand_tasks_do_not_hold_back_one() {
    let fleet = Fleet::start();
    let _agents = [fleet.agent("host1"), fleet.agent("host2")];
    let flood = fleet.drill(1000, 20, &[]);
    fleet.until_done(&flood, 100);
    let one = fleet.drill(1, 20, &[]);
    fleet.drill_ends_well(&one, 1, Duration::from_secs(20));
    let all = Journal::read_only(fleet.rig.data.path()).expect("the journal can be read");
    let is_of = |entry: &&Entry, job: &str| entry.job.as_ref().is_some_and(|id| id.as_str() == job);
    let is_given = |entry: &&Entry| matches!(entry.event, Event::Leased { .. });
    let came = all.iter().find(|entry| is_of(entry, &one)).expect("it began").seq;
    let given = all.iter().find(|entry| is_of(entry, &one) && is_given(entry)).expect("it was given out").seq;
    let meanwhile = all.iter().filter(|entry| (came..given).contains(&entry.seq));
    let before = meanwhile.filter(|entry| is_of(entry, &flood) && is_given(entry)).count();
    assert!(before <= BOUND, "{before} tasks of the other went first");
    fleet.drill_ends_well(&flood, 1000, LONG);
}

/// Row 25: tasks wait in the broker and at the agent for longer than they may run, and none fails for it; one that does run for too long does.
pub fn waiting_is_not_running() {
    let fleet = Fleet::start();
    let (job, _) = fleet.stranded("gone", 16, 400, &["--limit", "900ms"]);
    std::thread::sleep(Duration::from_secs(3));
    let _agent = fleet.agent("host1");
    fleet.drill_ends_well(&job, 16, LONG);
    assert!(fleet.charged(&job).is_empty(), "{:?}", fleet.charged(&job));
    let slow = fleet.drill(1, 5000, &["--limit", "300ms"]);
    let is_over = |job: &Value| job["phase"] == "failed";
    let shown = fleet.rig.until(&fleet.address, &["job", &slow], LONG, is_over);
    assert!(shown["reason"].as_str().is_some_and(|reason| reason.contains("did not end within 300 ms")), "{shown:#}");
}
