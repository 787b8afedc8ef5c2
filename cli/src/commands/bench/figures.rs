//! What came out, for people and for programs.

use std::time::Duration;

use kernelopt_shared::exit::ExitCode;
use serde::Serialize;

use super::setup::Course;
use super::stage::Stage;
use crate::failure::Failure;

/// Changes with the meaning of a field.
const SCHEMA_VERSION: u32 = 1;

/// Of the whole command; `docs/performance.md` says what each figure means.
#[derive(Debug, Serialize)]
pub struct Figures {
    schema_version: u32,
    agents: u16,
    tasks: usize,
    tasks_per_second: f64,
    p50_dispatch_ms: f64,
    p99_dispatch_ms: f64,
    p50_offer_ms: f64,
    p99_offer_ms: f64,
    given_out_again: u64,
    /// Only where the coordinator's process is its own.
    coordinator_cpu_us_per_task: Option<f64>,
    one_second: Option<OneSecond>,
    host: Host,
    versions: Versions,
}

/// Of tasks of one second.
#[derive(Debug, Serialize)]
pub struct OneSecond {
    tasks: u64,
    elapsed_seconds: f64,
    ideal_seconds: f64,
    coordinator_overhead_percent: f64,
    /// Of one core; only where the coordinator's process is its own.
    coordinator_cpu_percent: Option<f64>,
}

/// Where it was measured.
#[derive(Debug, Serialize)]
pub struct Host {
    /// Processors that this process may use.
    pub cores: usize,
    /// Mean load of the minute before.
    pub load_before: Option<f64>,
    /// Median time in which 4 KiB reach the journal's disk.
    pub flush_ms: f64,
}

/// What was measured. Servers are absent where all was in one process.
#[derive(Debug, Serialize)]
pub struct Versions {
    kernelopt: &'static str,
    rabbitmq: Option<String>,
    redis: Option<String>,
}

impl Versions {
    /// Of what a stage is made of.
    pub fn of(stage: &Stage) -> Self {
        let (rabbitmq, redis) = match stage {
            Stage::Servers { broker_version, redis_version, .. } => (broker_version.clone(), Some(redis_version.clone())),
            Stage::Memory { .. } => (None, None),
        };
        Self { kernelopt: env!("CARGO_PKG_VERSION"), rabbitmq, redis }
    }
}

impl OneSecond {
    /// Of a drill whose devices could have done it in `ideal`.
    pub fn of(course: &Course, tasks: u64, ideal: Duration, apart: bool) -> Self {
        let (elapsed, ideal) = (course.elapsed.as_secs_f64(), ideal.as_secs_f64());
        Self {
            tasks,
            elapsed_seconds: elapsed,
            ideal_seconds: ideal,
            coordinator_overhead_percent: 100.0 * (elapsed / ideal - 1.0),
            coordinator_cpu_percent: apart.then(|| 100.0 * course.processor.as_secs_f64() / elapsed),
        }
    }
}

impl Figures {
    /// Of a drill of tasks that do nothing, and of a longer one.
    pub fn of(course: &Course, agents: u16, one_second: Option<OneSecond>, host: Host, versions: Versions, apart: bool) -> Self {
        let tasks = course.dispatch.len();
        let (dispatch, offers) = (sorted_ms(&course.dispatch), sorted_ms(&course.offers));
        Self {
            schema_version: SCHEMA_VERSION,
            agents,
            tasks,
            tasks_per_second: tasks as f64 / course.elapsed.as_secs_f64(),
            p50_dispatch_ms: rank(&dispatch, 0.50),
            p99_dispatch_ms: rank(&dispatch, 0.99),
            p50_offer_ms: rank(&offers, 0.50),
            p99_offer_ms: rank(&offers, 0.99),
            given_out_again: course.again,
            coordinator_cpu_us_per_task: apart.then(|| course.processor.as_secs_f64() * 1e6 / tasks as f64),
            one_second,
            host,
            versions,
        }
    }

    /// On stdout.
    pub fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            let text = serde_json::to_string_pretty(self).map_err(|e| Failure::new(ExitCode::Failure, e, "Report this."))?;
            println!("{text}");
        } else {
            print!("{}", self.table());
        }
        Ok(())
    }

    fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| text += &format!("  {name:<28} {value}\n");
        let server = |name: &str, version: &Option<String>| version.as_ref().map(|version| format!("{name} {version}"));
        let servers: Vec<String> =
            server("RabbitMQ", &self.versions.rabbitmq).into_iter().chain(server("Redis", &self.versions.redis)).collect();
        row("tasks a second", format!("{:.0} ({} of {} agents)", self.tasks_per_second, self.tasks, self.agents));
        row("given out until begun", format!("{:.1} ms, 99 % within {:.1} ms", self.p50_dispatch_ms, self.p99_dispatch_ms));
        row("offer to the frontier", format!("{:.1} ms, 99 % within {:.1} ms", self.p50_offer_ms, self.p99_offer_ms));
        if let Some(cpu) = self.coordinator_cpu_us_per_task {
            row("coordinator, a task", format!("{cpu:.0} us of a core"));
        }
        if self.given_out_again > 0 {
            row("given out again", format!("{}: servers or agents were disturbed", self.given_out_again));
        }
        if let Some(one) = &self.one_second {
            let share = one.coordinator_cpu_percent.map_or_else(String::new, |cpu| format!(", coordinator {cpu:.1} % of a core"));
            let times = format!("{:.3} s for {:.0} s of work", one.elapsed_seconds, one.ideal_seconds);
            row("tasks of one second", format!("{:.2} % lost ({times}{share})", one.coordinator_overhead_percent));
        }
        let load = self.host.load_before.map_or_else(String::new, |load| format!(", load {load:.2} before"));
        row("host", format!("{} cores{load}, a flush of its disk takes {:.2} ms", self.host.cores, self.host.flush_ms));
        row("servers", if servers.is_empty() { "none: all in this process".into() } else { servers.join(", ") });
        text
    }
}

fn sorted_ms(times: &[Duration]) -> Vec<f64> {
    let mut times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// The least value that this share of all values does not exceed (nearest rank); zero of none.
fn rank(sorted: &[f64], share: f64) -> f64 {
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!((rank(&values, 0.5), rank(&values, 0.99), rank(&values, 1.0)), (100.0, 198.0, 200.0));
        assert_eq!((rank(&[7.0], 0.99), rank(&[], 0.5)), (7.0, 0.0));
    }
}
