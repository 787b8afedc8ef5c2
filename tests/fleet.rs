//! A fleet end to end: the same job as in one process, over RabbitMQ, Redis and HTTP, with real processes.

use std::time::Duration;

use kernelopt_tests::rig::Rig;
use kernelopt_tests::{bundle, kernelopt, result};

const LONG: Duration = Duration::from_secs(300);

#[test]
fn the_same_job_ends_alike_in_one_process_and_over_the_fleet() {
    let bundle = bundle("layer_norm_one_thread");
    let folder = tempfile::tempdir().expect("a folder");
    let (local, remote) = (folder.path().join("local"), folder.path().join("remote"));
    let path = |path: &std::path::Path| path.display().to_string();
    let (bundle_path, remote_path) = (path(&bundle), path(&remote));
    let options = ["--budget", "60s", "--max-candidates", "12"];
    let done = kernelopt(&[&["tune", &path(&bundle), "-o", &path(&local)], &options[..]].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    let rig = Rig::start();
    let (_coordinator, address) = rig.coordinator();
    let _agent = rig.agent("host1", &address);
    let submit = [&["submit", &bundle_path, "--wait", "-o", &remote_path], &options[..]].concat();
    let done = rig.client(&address, &submit);
    assert!(done.status.success(), "{}\n{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));

    let (local, remote) = (result(&local), result(&remote));
    assert_eq!(local["model"]["verdict"], remote["model"]["verdict"], "{local:#}\n{remote:#}");
    assert_eq!(local["targets"][0]["fingerprint"], remote["targets"][0]["fingerprint"]);
    let found = |result: &serde_json::Value| result["targets"][0]["winner"].is_object();
    assert_eq!(found(&local), found(&remote));
    let out = folder.path().join("remote");
    for name in ["report.html", "journal.db", "optimized/output_code_0.py"] {
        assert!(out.join(name).exists(), "{name} is missing");
    }
    // What was found is known now: a job that names the class confirms it and searches no more, and so does one that has yet to be placed.
    let known = rig.json(&address, &["frontier"]);
    assert_eq!(known["rows"].as_array().map(Vec::len), Some(usize::from(found(&remote))), "{known:#}");
    let class = rig.json(&address, &["agents"])["agents"][0]["class"].as_str().expect("a class").to_owned();
    for named in [&["--class", &class][..], &[]] {
        let again = rig.submit(&address, &bundle, &[&["--budget", "60s", "--seed", "7"], named].concat());
        let job = rig.until(&address, &["job", &again], LONG, |job| job["phase"] == "finished");
        if found(&remote) {
            assert!(job["judged"].as_u64().expect("a number") <= 3, "{job:#}");
        }
    }
}
