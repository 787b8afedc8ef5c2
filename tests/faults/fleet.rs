//! A fleet under test, and what its journal says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kernelopt_coordinator::journal::{Entry, Event, Journal};
use kernelopt_coordinator::search::plan::Step;
use kernelopt_coordinator::search::state::JobState;
use kernelopt_shared::broker::Address;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{DeviceClass, JobId, TaskId};
use kernelopt_tests::bundle;
use kernelopt_tests::rig::{Rig, Running, free_address, lead, serve};
use serde_json::Value;

use crate::wire::Wire;

/// Longest that a job may take, faults included.
pub const LONG: Duration = Duration::from_secs(120);
/// Longest that a lease may outlive its agent: 15 s, and some time for a busy host.
pub const LEASE: Duration = Duration::from_secs(20);

/// Servers, a coordinator, and its address, at which it is started again.
pub struct Fleet {
    pub rig: Rig,
    pub coordinator: Running,
    /// `http://127.0.0.1:PORT`.
    pub address: String,
}

impl Fleet {
    /// Starts one without agents.
    pub fn start() -> Self {
        Self::on(Rig::start())
    }

    /// Starts a coordinator on servers that run.
    pub fn on(rig: Rig) -> Self {
        let (coordinator, address) = lead(&mut rig.coordinator_command(&free_address()));
        Self { rig, coordinator, address }
    }

    /// Where the coordinator listens, without the scheme.
    pub fn listen(&self) -> &str {
        self.address.trim_start_matches("http://")
    }

    /// Starts an agent; the coordinator has heard of it when this returns.
    pub fn agent(&self, name: &str) -> Running {
        let agent = self.rig.agent(name, &self.address);
        self.until_heard(name);
        agent
    }

    /// The same, by a command that was changed.
    pub fn agent_with(&self, name: &str, change: impl FnOnce(&mut std::process::Command)) -> Running {
        let mut command = self.rig.agent_command(name, &self.address);
        change(&mut command);
        let agent = serve(&mut command);
        self.until_heard(name);
        agent
    }

    fn until_heard(&self, name: &str) {
        let heard = |agent: &Value| agent["id"] == format!("{name}/cpu") && agent["mode"] == "working";
        self.rig.until(&self.address, &["agents"], LONG, |page| agents(page).iter().any(heard));
    }

    /// Begins a drill of `tasks` tasks of `busy_ms`; its job.
    pub fn drill(&self, tasks: u32, busy_ms: u32, more: &[&str]) -> String {
        let (tasks, busy) = (tasks.to_string(), format!("{busy_ms}ms"));
        let job = self.rig.json(&self.address, &[&["drill", "--tasks", &tasks, "--busy", &busy], more].concat());
        job["id"].as_str().expect("a job has an id").to_owned()
    }

    /// The class of the agents.
    pub fn class(&self) -> DeviceClass {
        let page = self.rig.json(&self.address, &["agents"]);
        DeviceClass::parse(page["agents"][0]["class"].as_str().expect("an agent has a class")).expect("a class")
    }

    /// Submits a model with one small kernel.
    pub fn submit(&self) -> String {
        self.submit_with(&["--budget", "60s", "--max-candidates", "6"])
    }

    /// The same within other bounds.
    pub fn submit_with(&self, bounds: &[&str]) -> String {
        self.rig.submit(&self.address, &bundle("layer_norm_one_thread"), bounds)
    }

    /// Everything journaled of `job`.
    pub fn events(&self, job: &str) -> Vec<Entry> {
        let job = JobId::parse(job).expect("a job's name");
        Journal::reader(self.rig.data.path()).and_then(|reader| reader.of_job(&job)).expect("the journal can be read")
    }

    /// Kinds of a job's events, in order.
    pub fn kinds(&self, job: &str) -> Vec<&'static str> {
        self.events(job).iter().map(|entry| entry.event.kind()).collect()
    }

    /// Waits for an event of a job.
    pub fn until_event(&self, job: &str, patience: Duration, wanted: impl Fn(&Event) -> bool) -> Entry {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(entry) = self.events(job).into_iter().find(|entry| wanted(&entry.event)) {
                return entry;
            }
            assert!(Instant::now() < deadline, "no such event: {:#?}", self.kinds(job));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until so many tasks of a drill are done.
    pub fn until_done(&self, job: &str, count: usize) {
        let deadline = Instant::now() + LONG;
        while self.kinds(job).iter().filter(|kind| **kind == "done").count() < count {
            assert!(Instant::now() < deadline, "fewer than {count} done: {:#?}", self.kinds(job));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until an agent works on a task of a job: its name, and the task.
    pub fn until_running(&self, job: &str) -> (String, TaskId) {
        self.until_at_work(job, |_, _| true)
    }

    /// The same, of one that is `wanted`.
    pub fn until_at_work(&self, job: &str, mut wanted: impl FnMut(&str, TaskId) -> bool) -> (String, TaskId) {
        let deadline = Instant::now() + LONG;
        loop {
            let page = self.rig.json(&self.address, &["agents"]);
            for (agent, task) in running(&page).into_iter().filter(|(_, task)| task["job"] == job) {
                let id = task["task"].as_str().and_then(Digest::parse).expect("a task has an id");
                if wanted(&agent, id) {
                    return (agent, id);
                }
            }
            assert!(Instant::now() < deadline, "nobody works on such a task of {job}: {page:#}\n{:#?}", self.kinds(job));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The drill ends, and each of its tasks was done exactly once, whatever happened.
    pub fn drill_ends_well(&self, job: &str, tasks: u32, patience: Duration) {
        let ended = |event: &Event| matches!(event, Event::Drilled | Event::Failed { .. } | Event::Cancelled);
        let end = self.until_event(job, patience, ended);
        assert!(matches!(end.event, Event::Drilled), "{end:#?}");
        let mut done = BTreeSet::new();
        for entry in self.events(job) {
            if let Event::Done { number } = entry.event {
                assert!(done.insert(number), "task {number} was counted twice");
            }
        }
        assert!(done.iter().copied().eq(0..u64::from(tasks)), "{} of {tasks} tasks are done", done.len());
        let shown = self.rig.json(&self.address, &["job", job]);
        assert_eq!((&shown["phase"], &shown["judged"]), (&Value::from("finished"), &Value::from(tasks)), "{shown:#}");
    }

    /// A drill whose first tasks wait in the broker: they were sent to an agent that had just died. Its job, and the class.
    pub fn stranded(&self, name: &str, tasks: u32, busy_ms: u32, more: &[&str]) -> (String, DeviceClass) {
        let mut dead = self.agent(name);
        let class = self.class();
        dead.kill9();
        (self.drill(tasks, busy_ms, more), class)
    }

    /// Waits until tasks wait in a lane.
    pub fn until_waiting(&self, wire: &Wire, lane: &Address) {
        let deadline = Instant::now() + LEASE;
        while wire.ready(lane) < 2 {
            assert!(Instant::now() < deadline, "no task waits");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Tasks of a drill that were given out, by number: how often.
    pub fn leases(&self, job: &str) -> BTreeMap<u64, usize> {
        let mut leases = BTreeMap::new();
        for entry in self.events(job) {
            if let Event::Leased { step: Step::Nothing { number }, .. } = entry.event {
                *leases.entry(number).or_default() += 1;
            }
        }
        leases
    }

    /// Agents that were charged with a failure of a job, in order.
    pub fn charged(&self, job: &str) -> Vec<String> {
        let charged = |entry: Entry| match entry.event {
            Event::Released { charged, .. } => charged.map(|agent| agent.to_string()),
            _ => None,
        };
        self.events(job).into_iter().filter_map(charged).collect()
    }

    /// The search goes on: another of its tasks is done. Then it is cancelled, since its end takes long and shows no more.
    pub fn search_goes_on(&self, job: &str) {
        let learnt = || self.kinds(job).iter().filter(|kind| matches!(**kind, "profiled" | "judged")).count();
        let (before, deadline) = (learnt(), Instant::now() + LONG);
        while learnt() == before {
            assert!(Instant::now() < deadline, "nothing more is learnt: {:#?}", self.kinds(job));
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(self.rig.client(&self.address, &["cancel", job]).status.success());
    }

    /// The search ends, no look was counted twice, and the journal's fold is what the coordinator said at the end.
    pub fn search_ends_well(&self, job: &str) {
        self.rig.until(&self.address, &["job", job], LONG, |job| {
            assert!(job["phase"] != "failed" && job["phase"] != "cancelled", "{job:#}");
            job["phase"] == "finished"
        });
        let entries = self.events(job);
        let mut looks = BTreeSet::new();
        for entry in &entries {
            if let Event::Judged { target, depth, outcome, .. } = &entry.event {
                assert!(looks.insert((target.clone(), format!("{depth:?}"), outcome.candidate)), "judged twice: {target} {depth:?}");
            }
        }
        let said = entries.iter().find_map(|entry| if let Event::Finished { frontier } = &entry.event { Some(*frontier) } else { None });
        assert_eq!(said, Some(JobState::replay(&entries).frontier_digest()));
    }
}

/// The agents of a page.
pub fn agents(page: &Value) -> &[Value] {
    page["agents"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What is held, and by whom.
pub fn holds(page: &Value) -> Vec<(String, &Value)> {
    let of_agent = |agent: &'_ Value| agent["id"].as_str().expect("an agent has a name").to_owned();
    let held = |agent| (of_agent(agent), agent["holds"].as_array());
    agents(page).iter().map(held).flat_map(|(name, tasks)| tasks.into_iter().flatten().map(move |task| (name.clone(), task))).collect()
}

/// What is worked on, and by whom.
pub fn running(page: &Value) -> Vec<(String, &Value)> {
    holds(page).into_iter().filter(|(_, task)| task["running_ms"].is_u64()).collect()
}
