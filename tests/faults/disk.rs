//! Row 26: the coordinator's disk is full.

use std::fs;
use std::time::{Duration, Instant};

use kernelopt_coordinator::journal::Journal;
use kernelopt_tests::bundle;
use kernelopt_tests::rig::{Rig, free_address, get, lead};

use crate::fleet::{Fleet, LONG};
use crate::preload::full_while;

/// Exit code of a client whose coordinator cannot take anything now.
const UNAVAILABLE: i32 = 7;

/// Nothing under the coordinator's folder can be written, first while nothing happens, then in the middle of a drill.
pub fn a_full_one_refuses_and_corrupts_nothing() {
    let rig = Rig::start();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let full = elsewhere.path().join("full");
    let mut command = rig.coordinator_command(&free_address());
    full_while(&mut command, &rig.data.path().display().to_string(), &full);
    let (coordinator, address) = lead(&mut command);
    let fleet = Fleet { rig, coordinator, address };
    let _agent = fleet.agent("host1");
    assert_eq!(get(&fleet.address, "/readyz").0, 200);

    fs::write(&full, "").expect("a flag");
    let entries = Journal::read_only(fleet.rig.data.path()).expect("the journal can be read").len();
    refuses(&fleet);
    fs::remove_file(&full).expect("a flag");
    until_ready(&fleet);
    let job = fleet.drill(100, 50, &[]);

    fleet.until_done(&job, 10);
    fs::write(&full, "").expect("a flag");
    std::thread::sleep(Duration::from_secs(3));
    let done = fleet.kinds(&job).len();
    refuses(&fleet);
    assert_eq!(fleet.kinds(&job).len(), done, "nothing is written to a full disk");
    fs::remove_file(&full).expect("a flag");
    fleet.drill_ends_well(&job, 100, LONG);
    until_ready(&fleet);
    let all = Journal::read_only(fleet.rig.data.path()).expect("every record decodes");
    assert!(all.len() > entries && all.iter().map(|entry| entry.seq).is_sorted());
    assert!(fleet.charged(&job).is_empty(), "{:?}", fleet.charged(&job));
}

fn until_ready(fleet: &Fleet) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while get(&fleet.address, "/readyz").0 != 200 {
        assert!(Instant::now() < deadline, "there is space, and it is not ready: {:?}", get(&fleet.address, "/readyz"));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// It takes no job, says why, and is not ready; it is alive all the same.
fn refuses(fleet: &Fleet) {
    let path = bundle("layer_norm_one_thread").display().to_string();
    for request in [&["drill", "--tasks", "3"][..], &["submit", &path]] {
        let refused = fleet.rig.client(&fleet.address, request);
        let words = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(UNAVAILABLE), "{request:?}: {words}");
        assert!(words.contains("full") && !words.contains("reached"), "{request:?}: {words}");
    }
    let (status, body) = get(&fleet.address, "/readyz");
    assert!(status == 503 && body.contains("journal") && body.contains("full"), "{status} {body}");
    assert_eq!(get(&fleet.address, "/healthz").0, 200);
}
