//! Row 29: metrics.

use std::collections::BTreeSet;
use std::time::Duration;

use kernelopt_tests::rig::{free_address, get};

use crate::fleet::{Fleet, LONG};

/// A hundred times as many tasks, jobs and series do not grow with them.
pub fn series_do_not_grow_with_candidates() {
    let fleet = Fleet::start();
    let (metrics, of_agent) = (free_address(), |address: &str| series(&format!("http://{address}")));
    let _agent = fleet.agent_with("host1", |command| {
        command.args(["--metrics", &metrics]);
    });
    let few = fleet.drill(20, 5, &[]);
    fleet.drill_ends_well(&few, 20, LONG);
    // The look itself is a request that is counted.
    let _ = series(&fleet.address);
    // Those of a job go with it, at the next look.
    std::thread::sleep(Duration::from_secs(3));
    let before = (series(&fleet.address), of_agent(&metrics));
    let many: Vec<String> = (0..20).map(|_| fleet.drill(100, 1, &[])).collect();
    many.iter().for_each(|job| fleet.drill_ends_well(job, 100, LONG));
    std::thread::sleep(Duration::from_secs(3));
    let after = (series(&fleet.address), of_agent(&metrics));
    assert!(before.0.len() > 50 && before.1.len() > 20, "{before:#?}");
    let new: Vec<&String> = after.0.difference(&before.0).chain(after.1.difference(&before.1)).collect();
    assert!(new.is_empty(), "{new:#?}");
}

/// Names with labels of everything that a process shows.
fn series(address: &str) -> BTreeSet<String> {
    let (status, text) = get(address, "/metrics");
    assert_eq!(status, 200);
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
}
