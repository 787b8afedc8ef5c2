//! Every metric that is declared has a name that says its unit, a help text, and somebody who moves it; and their number is bounded.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod drive;
mod scrape;
mod server;

use std::collections::BTreeSet;
use std::path::Path;

use kernelopt_shared::telemetry::{Declared, Kind, MOST_CLASSES, MOST_HOSTS, MOST_JOBS, ProcessMetrics, Registry, Unit};

use drive::{Agent, Coordinator, Gateway};

/// All groups of a coordinator, an agent and a gateway, driven: their registries, and what they said before.
fn driven() -> [(Registry, String); 3] {
    let registries = [Registry::new(), Registry::new(), Registry::new()];
    let [coordinator, agent, gateway] = &registries;
    let (one, other, third) = (Coordinator::new(coordinator).unwrap(), Agent::new(agent).unwrap(), Gateway::new(gateway).unwrap());
    let before = registries.each_ref().map(|registry| registry.text().unwrap());
    for (registry, name) in registries.iter().zip(["coordinator", "agent", "gateway"]) {
        ProcessMetrics::new(registry, name).unwrap().ready(true);
    }
    one.drive(1);
    other.drive(1);
    third.drive(1);
    let ([a, b, c], [first, second, last]) = (registries, before);
    [(a, first), (b, second), (c, last)]
}

/// All that is declared, by name.
fn declared() -> Vec<Declared> {
    let mut all: Vec<_> = driven().iter().flat_map(|(registry, _)| registry.declared()).collect();
    all.sort_by_key(|metric| metric.name);
    all.dedup();
    all
}

#[test]
fn every_metric_moves() {
    for (registry, before) in driven() {
        let after = registry.text().unwrap();
        let (before, after) = (scrape::series(&before), scrape::series(&after));
        for metric in registry.declared() {
            let (before, after) = (scrape::of(&before, metric.name), scrape::of(&after, metric.name));
            let moved = after.iter().any(|(series, value)| *value != before.get(series).copied().unwrap_or(0.0));
            assert!(moved, "nothing moves {}", metric.name);
        }
    }
}

#[test]
fn names_say_kind_and_unit() {
    let units = ["_total", "_info", "_seconds", "_ratio", "_celsius", "_watts", "_hertz", "_bytes"];
    for Declared { name, kind, unit, labels, help } in declared() {
        assert!(name.starts_with("kernelopt_") && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        match unit.suffix() {
            "" => assert!(!units.iter().any(|unit| name.ends_with(unit)), "{name} ends like one with a unit"),
            suffix => assert!(name.ends_with(suffix), "{name} does not end with {suffix}"),
        }
        assert_eq!(kind == Kind::Counter, unit == Unit::Events, "{name}: counters count events");
        assert!(kind != Kind::Histogram || unit == Unit::Seconds, "{name}: histograms are of durations");
        for not_base in ["_ms", "_us", "_ns", "_minutes", "_mhz", "_percent", "_milli", "_kilo", "_mega", "_giga"] {
            assert!(!name.contains(not_base), "{name} is not in a base unit");
        }
        assert!(help.ends_with('.') && help.len() > 20, "{name} says little: {help:?}");
        // Prometheus itself gives these to what it scrapes.
        assert!(!labels.iter().any(|label| ["job", "instance", "le", "quantile"].contains(label)), "{name}: {labels:?}");
        assert_eq!(labels.contains(&"job_id"), name.starts_with("kernelopt_job_"), "{name}: only what is shown of jobs names them");
    }
}

#[test]
fn every_metric_has_help_and_type() {
    for (registry, _) in driven() {
        let text = registry.text().unwrap();
        for Declared { name, kind, help, .. } in registry.declared() {
            let kind = format!("{kind:?}").to_lowercase();
            assert!(text.contains(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")), "{name}");
        }
    }
}

/// Counters are read as rises, so one that first appears with its first event hides that event.
#[test]
fn counters_start_at_zero() {
    let registry = Registry::new();
    let coordinator = Coordinator::new(&registry).unwrap();
    coordinator.lanes(&[drive::class(140)], 1);
    let quiet = registry.text().unwrap();
    coordinator.drive(1);
    let loud = registry.text().unwrap();
    let (quiet, loud) = (scrape::series(&quiet), scrape::series(&loud));
    for metric in registry.declared().iter().filter(|metric| metric.kind == Kind::Counter && !metric.labels.contains(&"route")) {
        let first_lane_only = |series: &&&str| !series.contains("80g");
        for series in scrape::of(&loud, metric.name).keys().filter(first_lane_only) {
            assert!(quiet.contains_key(series), "{series} appears with its first event");
        }
    }
}

/// A fleet of so many hosts, jobs and classes, over time.
fn series_of_a_fleet(size: u64) -> usize {
    let registry = Registry::new();
    let coordinator = Coordinator::new(&registry).unwrap();
    let agents = Registry::new();
    let agent = Agent::new(&agents).unwrap();
    let gateways = Registry::new();
    let gateway = Gateway::new(&gateways).unwrap();
    coordinator.drive(1);
    for number in 0..size {
        coordinator.job(&drive::job(number), number);
        coordinator.own.jobs.improved(&drive::class(number));
        coordinator.own.leases.granted(&drive::class(number), true);
        coordinator.http.answered("GET", Some(&format!("/v1/jobs/{number}")), 404, std::time::Duration::ZERO);
        agent.device(&drive::agent(7, number), number);
        gateway.drive(number);
    }
    coordinator.lanes(&(0..size).map(drive::class).collect::<Vec<_>>(), 1);
    let everyone: Vec<_> = (0..size).map(|host| drive::agent(host, 0)).collect();
    coordinator.own.quarantined(&everyone);
    [registry, agents, gateways].iter().map(|registry| scrape::series(&registry.text().unwrap()).len()).sum()
}

#[test]
fn a_hundred_times_the_fleet_has_the_same_series() {
    let large = series_of_a_fleet(200);
    assert_eq!(series_of_a_fleet(2_000), large);
    assert!(large < 10_000, "{large} series");
}

#[test]
fn beyond_the_caps_nothing_is_lost_but_the_name() {
    let registry = Registry::new();
    let coordinator = Coordinator::new(&registry).unwrap();
    let hosts: Vec<_> = (0..300).map(|host| drive::agent(host, 0)).collect();
    coordinator.own.quarantined(&hosts);
    let classes: Vec<_> = (0..80).map(drive::class).collect();
    coordinator.lanes(&classes, 0);
    for number in 0..60 {
        coordinator.job(&drive::job(number), 1);
    }
    let text = registry.text().unwrap();
    let all = scrape::series(&text);
    assert_eq!(scrape::of(&all, "kernelopt_job_best_speedup_ratio").len(), MOST_JOBS);
    let named = scrape::of(&all, "kernelopt_queue_oldest_age_seconds");
    assert_eq!(named.len(), MOST_CLASSES + 1);
    let waiting: f64 = classes.len() as f64 * 40.0;
    let outstanding = scrape::of(&all, "kernelopt_tasks_outstanding");
    let said: f64 = outstanding.iter().filter(|(series, _)| series.contains("waiting")).map(|(_, value)| value).sum();
    assert_eq!(said, waiting);

    coordinator.own.quarantined(&[drive::agent(299, 0)]);
    coordinator.own.jobs.ended(&drive::job(0));
    coordinator.job(&drive::job(59), 1);
    let text = registry.text().unwrap();
    let all = scrape::series(&text);
    let quarantined: Vec<_> = scrape::of(&all, "kernelopt_agents_quarantined").into_keys().collect();
    assert_eq!(quarantined, ["kernelopt_agents_quarantined{host=\"gpu299\"}"]);
    assert!(hosts.len() > MOST_HOSTS);
    let shown = scrape::of(&all, "kernelopt_job_best_speedup_ratio");
    let has = |job: u64| shown.keys().any(|series| series.contains(drive::job(job).as_str()));
    assert!(shown.len() == MOST_JOBS && !has(0) && has(59), "an ended job's place is taken by another");
}

/// `docs/metrics.md` is this table. KERNELOPT_WRITE_DOCS=1 writes it.
#[test]
fn the_documentation_lists_every_metric() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let found = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- metrics: begin -->\n", "<!-- metrics: end -->\n");
    let (head, rest) = found.split_once(begin).unwrap();
    let (_, tail) = rest.split_once(end).unwrap();
    let wanted = format!("{head}{begin}{}{end}{tail}", table());
    if std::env::var_os("KERNELOPT_WRITE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    } else {
        assert!(
            found == wanted,
            "docs/metrics.md is not up to date: KERNELOPT_WRITE_DOCS=1 cargo test -p kernelopt-shared --test telemetry"
        );
    }
}

fn table() -> String {
    let processes = ["coordinator", "agent", "gateway"]
        .into_iter()
        .zip(driven().map(|(registry, _)| registry.declared().iter().map(|metric| metric.name).collect::<BTreeSet<_>>()));
    let processes: Vec<_> = processes.collect();
    let rows = declared().into_iter().map(|Declared { name, kind, labels, help, .. }| {
        let says = processes.iter().filter(|(_, names)| names.contains(name)).map(|(process, _)| *process).collect::<Vec<_>>();
        let says = if says.len() == processes.len() { "all".to_owned() } else { says.join(", ") };
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        format!("| `{name}` | {} | {says} | {labels} | {help} |\n", format!("{kind:?}").to_lowercase())
    });
    let head = "| name | kind | process | labels | meaning |\n|---|---|---|---|---|\n";
    std::iter::once(head.to_owned()).chain(rows).collect()
}
