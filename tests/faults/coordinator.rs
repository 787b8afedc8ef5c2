//! Rows in which the coordinator dies, or there are two.

use std::time::{Duration, Instant};

use kernelopt_coordinator::fleet::{Fleet as Core, Policy};
use kernelopt_coordinator::job::{Drill, Job};
use kernelopt_coordinator::journal::{Entry, Event, Journal};
use kernelopt_shared::broker::Address;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{JobId, Lease, Task, Work};
use kernelopt_test_servers::Proxy;
use kernelopt_tests::rig::{Rig, Running, address_of, free_address, lead};

use crate::fleet::{Fleet, LONG};
use crate::in_full;
use crate::preload::{Kill, kill_at};
use crate::wire::Wire;

/// Tasks for each time that the coordinator is killed: more than it gets done meanwhile.
const TASKS_EACH: u32 = 12;
/// Longest that a coordinator may live whose writes are counted.
const LIFE: Duration = Duration::from_secs(30);

/// Row 3: killed before, in the middle of and after writes to its journal. What anybody saw of the journal before is there after; what it
/// replays to is the same for whoever leads next; and in the end each task was done once.
pub fn killed_at_journal_writes_replays_what_it_had_said() {
    let kills = if in_full() { 200 } else { 15 };
    let mut fleet = Fleet::start();
    // Many, since tasks of the journal that were never sent keep their places for ten seconds.
    let _agents: Vec<Running> = (1..=5).map(|n| fleet.agent(&format!("host{n}"))).collect();
    let tasks = kills * TASKS_EACH;
    let job = fleet.drill(tasks, 10, &[]);
    fleet.coordinator.kill9();
    let (mut before, mut torn) = (Vec::new(), 0);
    for number in 0..kills {
        let seen = live_until_killed(&fleet, kill_of(number));
        let after = Journal::read_only(fleet.rig.data.path()).expect("a journal that was cut off can be read");
        assert!(is_prefix(&before, &after), "kill {number}: what the last one left has changed");
        assert!(is_prefix(&seen, &after), "kill {number}: somebody saw what is not there");
        assert_eq!(state_of(&after[..before.len()], &job), state_of(&before, &job), "kill {number}");
        torn += usize::from(after.len() == before.len());
        before = after;
    }
    // Some fell before the first event of a life, most did not.
    assert!(torn < kills as usize / 2, "{torn} of {kills} lives left no event");
    (fleet.coordinator, fleet.address) = lead(&mut fleet.rig.coordinator_command(fleet.listen()));
    fleet.drill_ends_well(&job, tasks, LONG);
}

/// Kills at the first writes of a life and at later ones: an epoch begins, leases are taken up, tasks given out, reports taken.
fn kill_of(number: u32) -> Kill {
    match number % 3 {
        0 => Kill::Write(1 + number * 7 % 40),
        1 => Kill::Torn(1 + number * 11 % 40),
        _ => Kill::Flush(1 + number * 5 % 12),
    }
}

/// Starts a coordinator that will be killed; what was to be read in its journal while it lived.
fn live_until_killed(fleet: &Fleet, kill: Kill) -> Vec<Entry> {
    let mut command = fleet.rig.coordinator_command(fleet.listen());
    kill_at(&mut command, "journal.db", kill);
    let (mut running, mut seen) = (Running::start(&mut command), Vec::new());
    let deadline = Instant::now() + LIFE;
    while running.runs() {
        assert!(Instant::now() < deadline, "{kill:?} was not reached:\n{}", running.words());
        // It may be at the moment of opening it.
        if let Ok(entries) = Journal::read_only(fleet.rig.data.path()) {
            seen = entries;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = running.exit_code(Duration::ZERO);
    assert_eq!(ended, None, "it ended by itself: {}", running.words());
    seen
}

fn is_prefix(first: &[Entry], all: &[Entry]) -> bool {
    let line = |entry: &Entry| format!("{entry:?}");
    first.len() <= all.len() && first.iter().map(line).eq(all[..first.len()].iter().map(line))
}

/// What a coordinator makes of a journal with one drill: its tasks, who may work on which, and who is charged with what.
fn state_of(entries: &[Entry], job: &str) -> Option<Digest> {
    let id = JobId::parse(job).expect("a job's name");
    let of_job: Vec<&Entry> = entries.iter().filter(|entry| entry.job.as_ref() == Some(&id)).collect();
    let Event::Drill { terms, .. } = &of_job.first()?.event else { panic!("a drill begins with what it is") };
    let drill = Drill::of_event(&of_job[0].event)?;
    let mut core = Core::new(Policy::default(), 1);
    core.admit(Job::resume(id.clone(), terms.clone(), Box::new(drill), of_job), Vec::new());
    core.restore(entries, Instant::now());
    let leases: Vec<String> =
        core.leases().iter().map(|held| format!("{} {:?} {:?} {}", held.id, held.lease, held.step, held.class)).collect();
    let plan = core.jobs().get(&id).and_then(|job| job.plan().as_drill()).map(|drill| format!("{drill:?}"));
    Some(Digest::of([leases.join("\n").as_bytes(), plan.unwrap_or_default().as_bytes()]))
}

/// Row 4: the one that leads is cut off from the broker, another takes over, and then it is back.
pub fn the_older_of_two_is_fenced() {
    let rig = Rig::start();
    let proxy = Proxy::to(rig.rabbit.port()).expect("a proxy");
    let mut command = rig.coordinator_command(&free_address());
    command.env("KERNELOPT_BROKER_URL", rig.rabbit.url_at(proxy.port()));
    let (mut first, address) = lead(&mut command);
    let mut second = Running::start(&mut rig.coordinator_command(&free_address()));
    second.wait_for("waiting for the turn", LONG);
    let mut fleet = Fleet { rig, coordinator: second, address };
    let _agent = fleet.agent("host1");
    let job = fleet.drill(120, 100, &[]);
    fleet.until_done(&job, 8);
    proxy.close();
    fleet.address = address_of(&fleet.coordinator.wait_for("the API is at", LONG));
    proxy.open();
    let code = first.exit_code(Duration::from_secs(30));
    let words = first.words();
    assert!(code == Some(1) && words.contains("a coordinator of epoch 2 writes it now"), "{code:?}: {words}");
    fleet.drill_ends_well(&job, 120, LONG);
    let epochs: Vec<u64> = fleet.events(&job).iter().filter_map(lease_of).map(|lease| lease.epoch).collect();
    assert!(epochs.is_sorted() && epochs.first() == Some(&1) && epochs.last() == Some(&2), "{epochs:?}");
    agents_refuse_an_older_epoch(&fleet, &job);
}

fn lease_of(entry: &Entry) -> Option<Lease> {
    if let Event::Leased { lease, .. } = &entry.event { Some(*lease) } else { None }
}

/// A task of the fenced coordinator that was still under way is done by nobody; the same of the one that leads is.
fn agents_refuse_an_older_epoch(fleet: &Fleet, job: &str) {
    let wire = Wire::connect(&fleet.rig.rabbit.url());
    let class = fleet.class();
    let stray = |epoch: u64| Task {
        id: Digest::of([b"stray".as_slice(), &epoch.to_le_bytes()]),
        job: JobId::parse(job).expect("a job's name"),
        lease: Lease { epoch, serial: 1_000_000 },
        epoch,
        bundle: Digest::of([]),
        work: Work::Nothing { busy_us: 1000 },
        seed: 0,
        run_limit_ms: 1000,
    };
    [1, 2].iter().for_each(|epoch| wire.send(&Address::Lane(class.clone()), &stray(*epoch)));
    fleet.until_event(job, LONG, |event| matches!(event, Event::Evidence { report } if report.task == stray(2).id));
    let of_old = |entry: &Entry| matches!(&entry.event, Event::Evidence { report } if report.task == stray(1).id);
    assert!(!fleet.events(job).iter().any(of_old), "a task of an older epoch was done");
}
