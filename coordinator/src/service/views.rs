//! Jobs, agents and the frontier as they are shown.

use std::time::Instant;

use kernelopt_shared::api::{AgentAvailability, AgentView, Budget, FrontierRow, HeldTask, JobView, Phase};
use kernelopt_shared::broker::BrokerState;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::frontier;
use kernelopt_shared::message::{AgentMode, DeviceClass, JobId};
use kernelopt_shared::task::Depth;

use crate::fleet::Fleet;
use crate::fleet::leases::Held;
use crate::fleet::roster::{Gone, Member};
use crate::http::view;
use crate::job::{Course, Drill, Job, Terms};
use crate::journal::{Entry, Event};
use crate::search::allowance::Spent;
use crate::search::plan::Step;
use crate::search::state::{Ended, JobState};

/// A job at work; `None` for one that nobody submitted.
pub(super) fn job(fleet: &Fleet, job: &Job, now: Instant) -> Option<JobView> {
    if let Some(drill) = job.plan().as_drill() {
        let phase = if job.running().is_empty() { Phase::Waiting } else { Phase::Searching };
        let mut view = of_drill(job.id(), drill, job.terms(), fleet.place(job.id()).cloned(), phase);
        view.active_seconds = job.active(now).as_secs_f64();
        view.reason = view.reason.or_else(|| if phase == Phase::Waiting { why_waiting(fleet, job) } else { None });
        return Some(view);
    }
    let search = job.search()?;
    let state = search.state();
    let phase = phase_of(state, job.running().values());
    let waits = (phase == Phase::Waiting).then(|| why_waiting(fleet, job)).flatten();
    let opened =
        Opened { blob: search.blob(), model: &search.bundle().manifest.model, unix_ms: search.opened_unix_ms(), terms: job.terms() };
    let mut view = opened.view(job.id(), fleet.place(job.id()).cloned(), phase, state);
    (view.active_seconds, view.reason) = (job.active(now).as_secs_f64(), waits.or(view.reason));
    Some(view)
}

/// A job that is over, from its journal.
pub(super) fn of_journal(id: &JobId, entries: &[Entry]) -> Option<JobView> {
    let placed = entries.iter().find_map(|entry| match &entry.event {
        Event::Placed { class } => Some(class.clone()),
        _ => None,
    });
    if let (Event::Drill { terms, .. }, Some(drill)) = (&entries.first()?.event, Drill::replay(entries)) {
        let mut view = of_drill(id, &drill, terms, placed, Phase::Waiting);
        view.active_seconds = entries.last().map_or(0.0, |entry| entry.active.as_secs_f64());
        view.last_event = entries.last().map_or(0, |entry| entry.seq.unsigned_abs());
        return Some(view);
    }
    let Event::Opened { blob, model, opened_unix_ms, terms, .. } = &entries.first()?.event else { return None };
    let state = JobState::replay(entries);
    let class = placed.or_else(|| terms.class.clone());
    let opened = Opened { blob: *blob, model, unix_ms: *opened_unix_ms, terms };
    let mut view = opened.view(id, class, phase_of(&state, []), &state);
    view.last_event = entries.last().map_or(0, |entry| entry.seq.unsigned_abs());
    Some(view)
}

/// A drill, whose tasks count as candidates. `open` is its phase while tasks are left.
fn of_drill(id: &JobId, drill: &Drill, terms: &Terms, placed: Option<DeviceClass>, open: Phase) -> JobView {
    let (phase, reason) = match drill.course() {
        Course::Open => (open, None),
        Course::Done => (Phase::Finished, None),
        Course::Ended(Ended::Cancelled) => (Phase::Cancelled, None),
        Course::Ended(Ended::Failed { reason }) => (Phase::Failed, Some(reason.clone())),
    };
    let model = format!("drill of {} tasks", drill.tasks());
    let opened = Opened { blob: None, model: &model, unix_ms: drill.opened_unix_ms(), terms };
    let class = placed.or_else(|| terms.class.clone());
    JobView { judged: drill.done(), reason, ..opened.view(id, class, phase, &JobState::default()) }
}

/// How a job began.
struct Opened<'a> {
    blob: Option<Digest>,
    model: &'a str,
    unix_ms: u64,
    terms: &'a Terms,
}

impl Opened<'_> {
    fn view(&self, id: &JobId, class: Option<DeviceClass>, phase: Phase, state: &JobState) -> JobView {
        let reason = match &state.ended {
            Some(Ended::Failed { reason }) => Some(reason.clone()),
            Some(Ended::Cancelled) | None => None,
        };
        let Terms { name, budget_ms, max_candidates, priority, weight, .. } = self.terms;
        JobView {
            id: id.clone(),
            name: name.clone(),
            model: self.model.to_owned(),
            bundle: self.blob.unwrap_or_else(|| Digest::of([])),
            phase,
            reason,
            class,
            priority: *priority,
            weight: u8::try_from(*weight).unwrap_or(u8::MAX),
            submitted_unix_ms: self.unix_ms,
            active_seconds: state.active.as_secs_f64(),
            budget: Budget { seconds: budget_ms / 1000, max_candidates: *max_candidates },
            judged: state.judged(),
            last_event: 0,
            targets: view::targets(state),
            verdict: view::verdict(state),
        }
    }
}

/// How far a job is: what is under way says more than what is done.
fn phase_of<'s>(state: &JobState, running: impl IntoIterator<Item = &'s Step>) -> Phase {
    let doing = running.into_iter().map(|step| match step {
        Step::Profile | Step::Nothing { .. } => Phase::Profiling,
        Step::Evaluate { depth: Depth::Confirm, .. } => Phase::Confirming,
        Step::Evaluate { .. } => Phase::Searching,
        Step::CheckModel { .. } => Phase::CheckingModel,
    });
    match &state.ended {
        Some(Ended::Cancelled) => Phase::Cancelled,
        Some(Ended::Failed { .. }) => Phase::Failed,
        None if state.finished.is_some() => Phase::Finished,
        None => doing.max().unwrap_or(if state.profile.is_some() { Phase::Searching } else { Phase::Waiting }),
    }
}

/// Why nothing of a job is under way; `None` where it is only not its turn.
fn why_waiting(fleet: &Fleet, job: &Job) -> Option<String> {
    let Some(class) = fleet.place(job.id()) else {
        let captured = job.plan().device().map(|device| device.name.clone()).unwrap_or_default();
        return Some(format!("no agent with a device like the capturing one ({captured}) takes tasks"));
    };
    let of_class: Vec<&Member> = fleet.roster().iter().map(|(_, member)| member).filter(|member| member.class == *class).collect();
    let working = of_class.iter().filter(|member| member.capacity() > 0).count();
    match (of_class.len(), working) {
        (0, _) => Some(format!("no agent of class {class} was ever heard of")),
        (all, 0) => Some(format!("none of the {all} agents of class {class} takes tasks")),
        _ => None,
    }
}

/// Why a job is where it is, most important first.
pub(super) fn explain(fleet: &Fleet, job: &Job, broker: &BrokerState, now: Instant) -> Vec<String> {
    let mut sentences = Vec::new();
    if let BrokerState::Down { reason } | BrokerState::Blocked { reason } = broker {
        sentences.push(format!("The broker takes no tasks: {reason}."));
    }
    sentences.extend(why_waiting(fleet, job).map(|why| format!("Nothing is under way: {why}.")));
    if let Some(class) = fleet.place(job.id()) {
        sentences.extend(rivals(fleet, job, class));
        let quarantined = fleet.roster().iter().filter(|(_, member)| member.class == *class && member.gone.is_none());
        sentences.extend(quarantined.filter_map(|(id, member)| match &member.beat.mode {
            AgentMode::Quarantined { reason } => Some(format!("Agent {id} is in quarantine: {reason}.")),
            AgentMode::Draining => Some(format!("Agent {id} ends what it has and leaves.")),
            AgentMode::Working => None,
        }));
    }
    let held = |held: &Held| {
        let age = now.saturating_duration_since(held.started.unwrap_or(held.sent)).as_secs();
        match (&held.agent, held.started) {
            (Some(agent), Some(_)) => format!("{agent} has been at {} for {age} s.", held.told()),
            (Some(agent), None) => format!("{agent} holds {}; others run before it.", held.told()),
            (None, _) => format!("{} was sent {age} s ago, and nobody was heard to hold it.", capital(&held.told())),
        }
    };
    sentences.extend(fleet.leases().iter().filter(|lease| lease.job == *job.id()).map(held));
    if job.asking() > 0 {
        sentences.push(format!("{} questions are with the language model.", job.asking()));
    }
    let limits = job.terms().limits();
    if let Some(drill) = job.plan().as_drill() {
        sentences.push(format!("{} of {} tasks of the drill are done.", drill.done(), drill.tasks()));
        return sentences;
    }
    let judged = job.search().map_or(0, |search| search.state().judged());
    let spent = job.active(now).as_secs();
    sentences.push(format!(
        "{judged} of at most {} candidates are judged, {spent} of {} s are spent.",
        limits.max_candidates,
        limits.budget.as_secs()
    ));
    if job.terms().max_tokens > 0 {
        let tokens = job.search().map_or(0, |search| Spent::of(search.state()).tokens);
        sentences.push(format!("{tokens} of {} tokens of language models are spent.", job.terms().max_tokens));
    }
    sentences
}

/// Who else wants the same devices.
fn rivals(fleet: &Fleet, job: &Job, class: &DeviceClass) -> Option<String> {
    let others = fleet.jobs().values().filter(|other| other.id() != job.id() && fleet.place(other.id()) == Some(class));
    let priority = job.terms().priority;
    let (before, beside): (Vec<u8>, Vec<u8>) =
        others.map(|other| other.terms().priority).filter(|other| *other >= priority).partition(|other| *other > priority);
    match (before.len(), beside.len()) {
        (0, 0) => None,
        (0, beside) => Some(format!("{beside} other jobs of its priority share the devices of class {class}.")),
        (before, _) => Some(format!("{before} jobs of a higher priority are served before it on devices of class {class}.")),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Agents by name, of one host or of all.
pub(super) fn agents(fleet: &Fleet, host: Option<&str>, now: Instant) -> Vec<AgentView> {
    let of_host = fleet.roster().iter().filter(|(id, _)| host.is_none_or(|host| id.host() == host));
    let view = |(id, member): (&kernelopt_shared::message::AgentId, &Member)| AgentView {
        id: id.clone(),
        class: member.class.clone(),
        device: member.beat.device.clone(),
        mode: match member.gone {
            None => AgentAvailability::from(&member.beat.mode),
            Some(Gone::Left) => AgentAvailability::Left,
            Some(Gone::Silent) => AgentAvailability::Silent,
        },
        reason: match &member.beat.mode {
            AgentMode::Quarantined { reason } => Some(reason.clone()),
            AgentMode::Working | AgentMode::Draining => None,
        },
        holds: fleet.leases().iter().filter(|held| held.agent.as_ref() == Some(id)).map(|held| held_task(held, now)).collect(),
        busy: member.beat.busy,
        version: member.beat.version.clone(),
        last_beat_ms: now.saturating_duration_since(member.heard).as_millis() as u64,
        done: member.done,
        failed: member.failed,
    };
    of_host.map(view).collect()
}

fn held_task(held: &Held, now: Instant) -> HeldTask {
    let (work, target) = match &held.step {
        Step::Profile => ("profile", None),
        Step::Evaluate { target, depth: Depth::Screen, .. } => ("screen", Some(target)),
        Step::Evaluate { target, depth: Depth::Full, .. } => ("full", Some(target)),
        Step::Evaluate { target, depth: Depth::Confirm, .. } => ("confirm", Some(target)),
        Step::CheckModel { .. } => ("check_model", None),
        Step::Nothing { .. } => ("nothing", None),
    };
    HeldTask {
        task: held.id,
        job: held.job.clone(),
        work: work.into(),
        target: target.cloned(),
        running_ms: held.started.map(|started| now.saturating_duration_since(started).as_millis() as u64),
    }
}

/// A row of the frontier.
pub(super) fn frontier(entry: frontier::Entry) -> FrontierRow {
    let frontier::Offer { fingerprint, class, candidate, time_ns, baseline_ns, job, .. } = entry.offer;
    let (best_us, baseline_us) = (time_ns as f64 / 1e3, baseline_ns as f64 / 1e3);
    FrontierRow { fingerprint, class, candidate, baseline_us, best_us, speedup: baseline_us / best_us, job }
}
