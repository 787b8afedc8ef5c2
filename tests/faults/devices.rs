//! Row 17: two agents on one device.

use std::time::{Duration, Instant};

use kernelopt_gpu_agent::lock::DeviceLock;
use serde_json::Value;

use crate::fleet::{Fleet, LONG, agents, running};

/// While somebody has the device, neither begins; then they take turns, and the time that they work adds up to no more than has passed. One
/// that is killed holding it leaves it to the other.
pub fn two_agents_never_measure_at_once() {
    let fleet = Fleet::start();
    let mut first = fleet.agent("host1");
    let _second = fleet.agent("host2");
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
    let (holder, _) = fleet.until_running(&job);
    if holder.starts_with("host1") {
        first.kill9();
    }
    let mut shares = Vec::new();
    fleet.rig.until(&fleet.address, &["job", &job], LONG, |job| job["phase"] == "finished");
    let page = fleet.rig.json(&fleet.address, &["agents"]);
    shares.extend(agents(&page).iter().filter_map(|agent| agent["busy"].as_f64()));
    assert!(shares.iter().sum::<f64>() < 1.1, "{shares:?}");
    fleet.search_ends_well(&job);
}
