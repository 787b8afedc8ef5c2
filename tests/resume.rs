//! The same job killed at random moments and resumed: the same frontier, nothing measured twice, and a clean stop.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use kernelopt_coordinator::journal::{Event, Journal};
use kernelopt_coordinator::search::state::JobState;
use kernelopt_shared::digest::Digest;
use kernelopt_tests::{binary, bundle, command, root};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Kills over all jobs.
const KILLS: u32 = 20;
/// Kills of one job before it may end.
const KILLS_PER_JOB: u32 = 5;

fn start(bundle: &Path, out: &Path) -> Child {
    let list = root().join("tests/fixtures/replay/layer_norm.json");
    command(&binary())
        .args(["tune", "--resume", "--budget", "10m", "--proposer", &format!("replay={}", list.display()), "-o"])
        .arg(out)
        .arg(bundle)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("kernelopt starts")
}

/// Splitmix64 (Steele, Lea, Flood 2014): random moments that a failing run can repeat.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Digest of the frontier, after checking that no look was judged twice.
fn frontier(out: &Path) -> Digest {
    let entries = Journal::read_only(out).expect("the journal opens");
    let mut looks = BTreeSet::new();
    for entry in &entries {
        if let Event::Judged { target, depth, outcome, .. } = &entry.event {
            assert!(looks.insert((target.clone(), outcome.candidate, *depth)), "event {} judges a look again", entry.seq);
        }
    }
    let state = JobState::replay(&entries);
    assert_eq!(state.finished, Some(state.frontier_digest()), "the journal's frontier is the fold of its events");
    state.frontier_digest()
}

#[test]
fn killed_at_random_moments_the_frontier_is_the_same() {
    let bundle = bundle("layer_norm_one_thread");
    let mut random = 2026;
    let mut frontiers = BTreeSet::new();
    for job in 0..KILLS / KILLS_PER_JOB {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        for _ in 0..KILLS_PER_JOB {
            let mut child = start(&bundle, &out);
            std::thread::sleep(Duration::from_millis(200 + next_random(&mut random) % 6000));
            child.kill().expect("kill -9");
            child.wait().expect("it is gone");
        }
        assert!(start(&bundle, &out).wait().expect("it ends").success());
        frontiers.insert(frontier(&out));
        assert!(frontiers.len() == 1, "job {job}: {frontiers:?}");
    }
    assert_ne!(frontiers.first(), Some(&Digest::of([])), "something won");
}

#[test]
fn an_interrupt_stops_within_five_seconds_and_says_how_to_go_on() {
    let bundle = bundle("layer_norm");
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let stderr = folder.path().join("stderr");
    for wait_ms in [300, 4000, 9000] {
        let mut child = command(&binary())
            .args(["tune", "--resume", "--budget", "10m", "-o"])
            .arg(&out)
            .arg(&bundle)
            .stdout(Stdio::null())
            .stderr(fs::File::create(&stderr).expect("a file"))
            .spawn()
            .expect("kernelopt starts");
        std::thread::sleep(Duration::from_millis(wait_ms));
        let asked = Instant::now();
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("the signal is sent");
        let status = child.wait().expect("it ends");
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?} after {wait_ms} ms", asked.elapsed());
        assert_eq!(status.code(), Some(130), "after {wait_ms} ms");
        assert!(fs::read_to_string(&stderr).expect("its words").contains("--resume"), "after {wait_ms} ms");
    }
}
