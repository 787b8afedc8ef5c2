//! What came out, for people and for programs.

use std::time::Duration;

use kernelopt_shared::exit::ExitCode;
use serde::Serialize;

use super::load::Streamed;
use crate::args::bench::Gateway as Options;
use crate::commands::bench::host;
use crate::failure::Failure;

/// Changes with the meaning of a field.
const SCHEMA_VERSION: u32 = 1;

/// Of the whole command. Times are in microseconds.
#[derive(Debug, Serialize)]
pub struct Figures {
    schema_version: u32,
    #[serde(flatten)]
    ours: Measured,
    direct_requests_per_second: f64,
    rate: u32,
    /// The same of another gateway.
    against: Option<Measured>,
    host: Host,
    kernelopt: &'static str,
}

/// Of one gateway.
#[derive(Debug, Serialize)]
pub struct Measured {
    added_p50_us: f64,
    added_p99_us: f64,
    direct_p50_us: f64,
    direct_p99_us: f64,
    requests_per_second: f64,
    streams: Streams,
}

/// Of streams at a time.
#[derive(Debug, Serialize)]
pub struct Streams {
    count: usize,
    complete: usize,
    added_first_event_p50_us: f64,
    added_first_event_p99_us: f64,
}

/// Of the upstream by itself.
pub struct Reference {
    /// Requests a second.
    pub throughput: f64,
    /// Its streams.
    pub first_events: Streamed,
}

/// Where it was measured.
#[derive(Debug, Serialize)]
pub struct Host {
    cores: usize,
    load_before: Option<f64>,
}

impl Host {
    /// This host.
    pub fn now() -> Self {
        Self { cores: std::thread::available_parallelism().map_or(1, usize::from), load_before: host::load() }
    }
}

impl Measured {
    /// Of requests side by side, and the rest.
    pub fn of([direct, through]: &[Vec<Duration>; 2], requests_per_second: f64, streams: &Streamed, reference: &Reference) -> Self {
        let (direct, through) = (sorted(direct), sorted(through));
        let (first, first_direct) = (sorted(&streams.first_event), sorted(&reference.first_events.first_event));
        Self {
            added_p50_us: rank(&through, 0.50) - rank(&direct, 0.50),
            added_p99_us: rank(&through, 0.99) - rank(&direct, 0.99),
            direct_p50_us: rank(&direct, 0.50),
            direct_p99_us: rank(&direct, 0.99),
            requests_per_second,
            streams: Streams {
                count: reference.first_events.first_event.len().max(streams.first_event.len()),
                complete: streams.complete,
                added_first_event_p50_us: rank(&first, 0.50) - rank(&first_direct, 0.50),
                added_first_event_p99_us: rank(&first, 0.99) - rank(&first_direct, 0.99),
            },
        }
    }

    fn lines(&self, who: &str) -> String {
        let Self { added_p50_us, added_p99_us, requests_per_second, streams, .. } = self;
        let Streams { count, complete, added_first_event_p50_us, added_first_event_p99_us } = streams;
        format!(
            "{who}\n  added to a request      p50 {added_p50_us:>8.0} us   p99 {added_p99_us:>8.0} us\n  requests a second       {requests_per_second:>12.0}\n  \
             streams without a loss  {complete:>5} of {count}\n  added to a first event  p50 {added_first_event_p50_us:>8.0} us   p99 {added_first_event_p99_us:>8.0} us\n"
        )
    }
}

impl Figures {
    /// Puts them together.
    pub fn of(ours: Measured, against: Option<Measured>, reference: &Reference, options: &Options, host: Host) -> Self {
        let direct_requests_per_second = reference.throughput;
        Self {
            schema_version: SCHEMA_VERSION,
            ours,
            direct_requests_per_second,
            rate: options.rate,
            against,
            host,
            kernelopt: env!("CARGO_PKG_VERSION"),
        }
    }

    /// On stdout.
    pub fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            let text = serde_json::to_string_pretty(self).map_err(|e| Failure::new(ExitCode::Failure, e, "Report this."))?;
            println!("{text}");
            return Ok(());
        }
        print!("{}", self.ours.lines("this gateway"));
        if let Some(against) = &self.against {
            print!("{}", against.lines("the other"));
        }
        println!(
            "the upstream by itself: {:.0} requests a second; p50 {:.0} us, p99 {:.0} us",
            self.direct_requests_per_second, self.ours.direct_p50_us, self.ours.direct_p99_us
        );
        Ok(())
    }
}

fn sorted(times: &[Duration]) -> Vec<f64> {
    let mut times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Nearest rank; zero of nothing.
fn rank(sorted: &[f64], quantile: f64) -> f64 {
    let at = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
}
