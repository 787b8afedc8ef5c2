//! What is true of a coordinator now, for Prometheus: read from the loop once a second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kernelopt_shared::api::Phase;
use kernelopt_shared::broker::link::CoordinatorEnd;
use kernelopt_shared::broker::{Address, BrokerState};
use kernelopt_shared::message::{AgentId, AgentMode, DeviceClass, JobId};
use kernelopt_shared::telemetry::{AgentCounts, JobNow, LaneNow};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::handle::Handle;
use super::tally::{BROKER, Metrics, Tally};
use super::views;
use crate::fleet::Fleet;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Phases that a job can be in.
const PHASES: [Phase; 8] = [
    Phase::Waiting,
    Phase::Profiling,
    Phase::Searching,
    Phase::Confirming,
    Phase::CheckingModel,
    Phase::Finished,
    Phase::Cancelled,
    Phase::Failed,
];

/// One look.
struct Look {
    lanes: Vec<LaneNow>,
    quarantined: Vec<AgentId>,
    phases: BTreeMap<Phase, u64>,
    jobs: Vec<(JobId, JobNow)>,
}

/// Looks until `stop`.
pub(super) async fn run(handle: Handle, end: CoordinatorEnd, tally: Tally, stop: CancellationToken) {
    let Some(metrics) = tally.metrics() else { return };
    let mut state = end.broker().state();
    let mut waiting_since: BTreeMap<JobId, Instant> = BTreeMap::new();
    let mut shown: BTreeSet<JobId> = BTreeSet::new();
    while !stop.is_cancelled() {
        note_state(&state, metrics);
        let since = std::mem::take(&mut waiting_since);
        let Ok((look, since)) = handle.look(move |fleet, now| look(fleet, since, now)).await else { return };
        metrics.health.turned();
        waiting_since = since;
        let mut queues = Vec::new();
        for lane in &look.lanes {
            if let Ok(Some(depth)) = end.lane_depth(&lane.class).await {
                queues.push((Address::Lane(lane.class.clone()), depth));
            }
        }
        metrics.coordinator.queues.replace(queues.iter().map(|(address, depth)| (address, *depth)));
        metrics.coordinator.lanes(&look.lanes);
        metrics.coordinator.quarantined(&look.quarantined);
        metrics.coordinator.jobs.phases(PHASES.map(|phase| (name(phase), look.phases.get(&phase).copied().unwrap_or(0))));
        look.jobs.iter().for_each(|(id, now)| metrics.coordinator.jobs.running(id, now));
        let now: BTreeSet<JobId> = look.jobs.into_iter().map(|(id, _)| id).collect();
        shown.difference(&now).for_each(|id| metrics.coordinator.jobs.ended(id));
        shown = now;
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = state.changed() => {}
            () = stop.cancelled() => {}
        }
    }
}

fn note_state(state: &watch::Receiver<BrokerState>, metrics: &Metrics) {
    let now = state.borrow().clone();
    metrics.broker.state(&now);
    match now {
        BrokerState::Up => metrics.health.met(BROKER),
        BrokerState::Blocked { reason } | BrokerState::Down { reason } => metrics.health.unmet(BROKER, reason),
    }
}

fn look(fleet: &Fleet, mut since: BTreeMap<JobId, Instant>, now: Instant) -> (Look, BTreeMap<JobId, Instant>) {
    since.retain(|id, _| fleet.jobs().get(id).is_some_and(|job| job.running().is_empty()));
    let idle = fleet.jobs().values().filter(|job| job.running().is_empty());
    for job in idle {
        since.entry(job.id().clone()).or_insert(now);
    }
    let mut phases: BTreeMap<Phase, u64> = BTreeMap::new();
    let mut jobs = Vec::new();
    for job in fleet.jobs().values() {
        let Some(view) = views::job(fleet, job, now) else { continue };
        *phases.entry(view.phase).or_default() += 1;
        let best = view.targets.iter().filter_map(|target| target.best.filter(|best| best.confirmed));
        let won = view.targets.iter().filter(|target| target.best.is_some_and(|best| best.confirmed)).count();
        let limits = job.terms().limits();
        let time = view.active_seconds / limits.budget.as_secs_f64().max(1.0);
        let count = view.judged as f64 / limits.max_candidates.max(1) as f64;
        let now = JobNow {
            best_speedup: best.map(|best| best.speedup.estimate).fold(1.0, f64::max),
            tasks_outstanding: job.running().len() as u64,
            candidates_judged: view.judged,
            targets_won: won as u64,
            budget_spent: time.max(count).min(1.0),
        };
        jobs.push((job.id().clone(), now));
    }
    let quarantined =
        fleet.roster().iter().filter(|(_, member)| matches!(member.beat.mode, AgentMode::Quarantined { .. }) && member.gone.is_none());
    let quarantined = quarantined.map(|(id, _)| id.clone()).collect();
    let classes = fleet.jobs().keys().filter_map(|id| fleet.place(id).cloned()).chain(fleet.roster().classes());
    let classes: BTreeSet<DeviceClass> = classes.collect();
    let lanes = classes.into_iter().map(|class| lane(fleet, class, &since, now)).collect();
    (Look { lanes, quarantined, phases, jobs }, since)
}

/// A class as it is. A job with nothing under way counts as one waiting task: which one is decided when a device is free.
fn lane(fleet: &Fleet, class: DeviceClass, since: &BTreeMap<JobId, Instant>, now: Instant) -> LaneNow {
    let idle = since.iter().filter(|(id, _)| fleet.place(id) == Some(&class));
    let of_class = || fleet.leases().iter().filter(|held| held.class == class);
    let unstarted = || of_class().filter(|held| held.started.is_none());
    let ages = idle.clone().map(|(_, since)| *since).chain(unstarted().map(|held| held.sent));
    let oldest = ages.min().map(|then| now.saturating_duration_since(then));
    let members = || fleet.roster().iter().filter(|(_, member)| member.class == class && member.gone.is_none());
    let count = |mode: fn(&AgentMode) -> bool| members().filter(|(_, member)| mode(&member.beat.mode)).count() as u64;
    LaneNow {
        waiting: idle.count() as u64,
        leased: unstarted().count() as u64,
        running: of_class().filter(|held| held.started.is_some()).count() as u64,
        oldest,
        agents: AgentCounts {
            working: count(|mode| *mode == AgentMode::Working),
            draining: count(|mode| *mode == AgentMode::Draining),
            quarantined: count(|mode| matches!(mode, AgentMode::Quarantined { .. })),
        },
        class,
    }
}

/// As it is serialised.
const fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Waiting => "waiting",
        Phase::Profiling => "profiling",
        Phase::Searching => "searching",
        Phase::Confirming => "confirming",
        Phase::CheckingModel => "checking_model",
        Phase::Finished => "finished",
        Phase::Cancelled => "cancelled",
        Phase::Failed => "failed",
    }
}
