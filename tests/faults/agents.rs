//! Rows in which agents die, stop, fail everything, or are told to leave.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kernelopt_coordinator::journal::Event;
use kernelopt_shared::message::Lease;
use kernelopt_tests::rig::Running;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::fleet::{Fleet, LEASE, LONG, agents, holds, running};
use crate::in_full;

/// Where in its work an agent is killed.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The compiler runs.
    Build,
    /// The candidate's own process has run for so long: it is verified, then measured.
    Run(Duration),
    /// Its report is out, and not yet accepted: the coordinator is stopped meanwhile.
    Reported,
}

/// Row 1: agents killed at each stage of a task; every time another one has what it held within a lease's time, and the search ends as any
/// other.
pub fn killed_at_each_stage_another_ends_its_tasks() {
    let ms = Duration::from_millis;
    let stages = [Stage::Build, Stage::Run(ms(0)), Stage::Run(ms(300)), Stage::Run(ms(900)), Stage::Reported];
    let fleet = Fleet::start();
    let mut agent = fleet.agent("host0");
    let job = fleet.submit_with(&["--budget", "300s", "--max-candidates", "16"]);
    // Each time in another task: one that takes three agents with it would be put aside.
    let mut struck = BTreeSet::new();
    for (number, stage) in stages.into_iter().enumerate() {
        let (holder, next) = (format!("host{number}/cpu"), fleet.agent(&format!("host{}", number + 1)));
        match stage {
            Stage::Build => until(stage, || agent.has_child("cc1plus")),
            Stage::Run(time) => {
                fleet.until_at_work(&job, |agent, task| agent == holder && struck.insert(task));
                std::thread::sleep(time);
            }
            Stage::Reported => {
                fleet.until_at_work(&job, |agent, task| agent == holder && struck.insert(task));
                fleet.coordinator.signal(Signal::SIGSTOP);
                // Nothing is given out meanwhile: what it is at ends, and is reported.
                std::thread::sleep(ms(4000));
            }
        }
        agent.kill9();
        let killed = Instant::now();
        fleet.coordinator.signal(Signal::SIGCONT);
        fleet.rig.until(&fleet.address, &["agents"], LONG, |page| holds(page).iter().all(|(agent, _)| *agent != holder));
        assert!(killed.elapsed() < LEASE, "{stage:?}: {:.1?}", killed.elapsed());
        agent = next;
    }
    fleet.search_ends_well(&job);
    assert!(!fleet.kinds(&job).contains(&"quarantined"), "{:#?}", fleet.kinds(&job));
}

fn until(stage: Stage, there: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !there() {
        assert!(Instant::now() < deadline, "{stage:?} was not reached");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Row 2: its lease moves to another; when it goes on, its result is kept as evidence and changes nothing.
pub fn stopped_for_half_a_minute_its_late_result_is_evidence() {
    let mut fleet = Fleet::start();
    let mut first = fleet.agent("host1");
    let job = fleet.drill(8, 3000, &[]);
    let (_, task) = fleet.until_running(&job);
    first.signal(Signal::SIGSTOP);
    let lease_of = |fleet: &Fleet| -> Vec<Lease> {
        let leases = fleet.events(&job).into_iter().filter_map(|entry| match entry.event {
            Event::Leased { task: of, lease, .. } if of == task => Some(lease),
            _ => None,
        });
        leases.collect()
    };
    let old = lease_of(&fleet)[0];
    let mut second = fleet.agent("host2");
    let stopped = Instant::now();
    while lease_of(&fleet).len() < 2 {
        assert!(stopped.elapsed() < LEASE, "its lease did not move: {:#?}", fleet.kinds(&job));
        std::thread::sleep(Duration::from_millis(100));
    }
    // Long enough for the broker to give its connection up.
    std::thread::sleep(Duration::from_secs(if in_full() { 60 } else { 28 }).saturating_sub(stopped.elapsed()));
    first.signal(Signal::SIGCONT);
    let late = |event: &Event| matches!(event, Event::Evidence { report } if report.lease == old && report.task == task);
    fleet.until_event(&job, LEASE, late);
    fleet.drill_ends_well(&job, 8, LONG);
    assert_eq!(fleet.charged(&job), ["host1/cpu"], "the one that it had begun, once");
    assert!(first.runs() && second.runs() && fleet.coordinator.runs());
}

/// Row 9: it takes every agent with it that begins with it. After three it is put aside, with a reason; a job beside it does not notice.
pub fn a_poison_task_is_put_aside_and_harms_no_other() {
    let fleet = Fleet::start();
    let mut crew: Vec<(String, Running)> = (0..3).map(|n| format!("host{n}")).map(|name| (name.clone(), fleet.agent(&name))).collect();
    let neighbour = fleet.drill(150, 100, &[]);
    let poison = fleet.drill(1, 30_000, &[]);
    let deadline = Instant::now() + LONG;
    let mut killed = Vec::new();
    while !fleet.kinds(&poison).contains(&"quarantined") {
        assert!(Instant::now() < deadline, "{:#?}", fleet.kinds(&poison));
        let page = fleet.rig.json(&fleet.address, &["agents"]);
        let victim = running(&page).into_iter().find(|(_, task)| task["job"] == poison).map(|(agent, _)| agent);
        if let Some((_, agent)) = crew.iter_mut().find(|(name, _)| victim.as_ref().is_some_and(|id| *id == format!("{name}/cpu"))) {
            agent.kill9();
            killed.extend(victim.filter(|victim| killed.last() != Some(victim)));
        }
        if killed.len() == crew.len() {
            let name = format!("host{}", crew.len());
            crew.push((name.clone(), fleet.agent(&name)));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(killed.len(), 3, "{killed:?}");
    let shown = fleet.rig.json(&fleet.address, &["job", &poison]);
    let reason = shown["reason"].as_str().unwrap_or_default();
    assert!(shown["phase"] == "failed" && killed.iter().filter(|agent| reason.contains(agent.as_str())).count() >= 2, "{shown:#}");
    fleet.drill_ends_well(&neighbour, 150, LONG);
    assert!(fleet.charged(&neighbour).is_empty(), "{:?}", fleet.charged(&neighbour));
}

/// Row 10: a host whose Python has no compiler, alone at first. It fails three times, tests itself, fails that too and takes no more; no task is
/// charged, and the job ends on a host that works.
pub fn a_black_hole_tests_itself_and_leaves() {
    let fleet = Fleet::start();
    let _hole = fleet.agent_with("hole", |command| {
        command.env("CXX", "/bin/false").env("TORCHINDUCTOR_CACHE_DIR", fleet.rig.data.path().join("no-cache"));
    });
    let job = fleet.submit();
    let is_out = |page: &Value| agents(page).iter().any(|agent| agent["id"] == "hole/cpu" && agent["mode"] == "quarantined");
    let page = fleet.rig.until(&fleet.address, &["agents"], LONG, is_out);
    let reason = agents(&page)[0]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("its own test failed: its Python cannot compile"), "{reason}");
    assert_eq!(fleet.charged(&job).len(), 3, "{:#?}", fleet.events(&job));
    assert_eq!(fleet.rig.json(&fleet.address, &["job", &job])["phase"], "waiting");
    let explained = fleet.rig.json(&fleet.address, &["explain", &job]).to_string();
    assert!(explained.contains("hole/cpu is in quarantine"), "{explained}");
    let _good = fleet.agent("good");
    fleet.search_goes_on(&job);
    assert!(!fleet.kinds(&job).contains(&"quarantined"), "{:#?}", fleet.kinds(&job));
}

/// Row 22: told to end in mid-task it hands back what does not end in time, uncounted, and is gone within 20 s.
pub fn told_to_end_it_goes_in_good_order() {
    let fleet = Fleet::start();
    let mut first = fleet.agent("host1");
    let job = fleet.submit();
    fleet.until_running(&job);
    first.signal(Signal::SIGTERM);
    assert_eq!(first.exit_code(Duration::from_secs(20)), Some(0), "{}", first.words());
    let mut second = fleet.agent("host2");
    fleet.search_goes_on(&job);
    // And with a task that does not end in time.
    let long = fleet.drill(4, 25_000, &[]);
    fleet.until_running(&long);
    second.signal(Signal::SIGTERM);
    assert_eq!(second.exit_code(Duration::from_secs(20)), Some(0), "{}", second.words());
    let page = fleet.rig.until(&fleet.address, &["agents"], Duration::from_secs(5), |page| holds(page).is_empty());
    assert!(agents(&page).iter().all(|agent| agent["mode"] == "silent"), "{page:#}");
    assert!(fleet.charged(&long).is_empty() && fleet.charged(&job).is_empty());
}

/// Row 30: what runs is stopped within 5 s, and no result appears after.
pub fn a_cancelled_job_leaves_its_agent_idle() {
    let mut fleet = Fleet::start();
    let _agent = fleet.agent("host1");
    let job = fleet.submit();
    fleet.until_running(&job);
    assert!(fleet.rig.client(&fleet.address, &["cancel", &job]).status.success(), "{}", fleet.coordinator.words());
    // The agent may say so with its next beat only.
    fleet.rig.until(&fleet.address, &["agents"], Duration::from_secs(10), |page| holds(page).is_empty());
    let after = || fleet.kinds(&job).into_iter().skip_while(|kind| *kind != "cancelled").skip(1).collect::<Vec<_>>();
    std::thread::sleep(Duration::from_secs(4));
    assert!(after().is_empty(), "{:?}", after());
    // The device is free: something else begins at once.
    let other = fleet.drill(4, 100, &[]);
    fleet.drill_ends_well(&other, 4, Duration::from_secs(10));
}
