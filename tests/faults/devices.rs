//! Row 17: two agents on one device.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kernelopt_gpu_agent::lock::DeviceLock;
use serde_json::Value;

use crate::fleet::{Fleet, LONG, agents, running};

/// While somebody has the device, neither begins; then they take turns. One that is killed while it has it leaves it to the other.
pub fn two_agents_never_measure_at_once() {
    let fleet = Fleet::start();
    let mut first = fleet.agent("host1");
    let mut second = fleet.agent("host2");
    let page = fleet.rig.json(&fleet.address, &["agents"]);
    let uuid = agents(&page)[0]["device"]["uuid"].as_str().expect("a device has an identity").to_owned();
    assert_eq!(agents(&page)[1]["device"]["uuid"], uuid);
    let held = DeviceLock::acquire(&uuid, Duration::from_secs(60)).expect("nobody measures");
    let job = fleet.submit();
    let holds = |page: &Value| agents(page).iter().any(|agent| agent["holds"].as_array().is_some_and(|tasks| !tasks.is_empty()));
    fleet.rig.until(&fleet.address, &["agents"], LONG, holds);
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        let page = fleet.rig.json(&fleet.address, &["agents"]);
        assert!(running(&page).is_empty(), "it works on a device that another holds: {page:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(held);
    fleet.until_running(&job);
    // A report takes longer to arrive than the word that the other begins: both at work in two looks would be both at work.
    let (until, mut both) = (Instant::now() + Duration::from_secs(12), BTreeSet::new());
    while Instant::now() < until {
        let page = fleet.rig.json(&fleet.address, &["agents"]);
        let now: BTreeSet<String> = running(&page).into_iter().map(|(_, task)| task["task"].to_string()).collect();
        assert!(now.len() < 2 || now != both, "two tasks run on one device: {page:#}");
        both = now;
        std::thread::sleep(Duration::from_millis(300));
    }
    let (holder, _) = fleet.until_running(&job);
    let (victim, other) = if holder.starts_with("host1") { (&mut first, "host2/cpu") } else { (&mut second, "host1/cpu") };
    victim.kill9();
    fleet.until_at_work(&job, |agent, _| agent == other);
    fleet.search_goes_on(&job);
}
