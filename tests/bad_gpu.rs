//! A GPU that is missing, hidden, full or another than the bundle's; a driver that is too old or broken; a Python that cannot build for it.
//!
//! None of this needs a GPU: where one must be found, there is a driver that finds it (`tests/fixtures/driver`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use kernelopt_coordinator::job::{PRIORITY, Terms, WEIGHT};
use kernelopt_coordinator::journal::{Draft, Event, Journal};
use kernelopt_coordinator::service::local_job;
use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::language_model::NanoUsd;
use kernelopt_tests::driver::{Settings, kernelopt_with_driver};
use kernelopt_tests::{bundle, kernelopt, python, root};

/// A bundle that was captured on an H200.
fn captured() -> PathBuf {
    root().join("tests/fixtures/bundles/softmax_cuda")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

/// Asserts exit code and words, that there is a remedy, and that nothing was written at `out`.
fn refused(done: &Output, code: i32, words: &[&str], out: &Path) {
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{stderr}");
    let mut lines = stderr.lines().skip_while(|line| !line.starts_with("error: "));
    assert!(lines.next().is_some() && lines.any(|line| line.starts_with("       ")), "{stderr}");
    assert!(!stderr.contains("panicked") && !stderr.contains("Traceback"), "{stderr}");
    words.iter().for_each(|word| assert!(stderr.contains(word), "{word:?} is not in: {stderr}"));
    assert!(!out.exists(), "{} was written", out.display());
}

/// `tune` of the captured bundle, with more arguments.
fn tune(mut kernelopt: Command, out: &Path, more: &[&str]) -> Output {
    kernelopt.args(["tune", text(&captured()), "-o", text(out)]).args(more).output().expect("kernelopt starts")
}

#[test]
fn drivers_and_gpus_that_cannot_be_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    type Case<'a> = (Settings<'a>, &'a [&'a str], i32, &'a [&'a str]);
    let cases: [Case<'_>; 8] = [
        (&[("STAND_IN_VERSION", "11080")], &[], 4, &["for CUDA 11.8", "550", "Update"]),
        (&[("STAND_IN_BROKEN", "1")], &[], 4, &["does not start: unknown error (CUDA_ERROR_UNKNOWN)", "nvidia-smi"]),
        (&[("STAND_IN_GPUS", "0")], &[], 4, &["the driver shows no GPU", "--gpus all"]),
        (&[("CUDA_VISIBLE_DEVICES", "")], &[], 4, &["CUDA_VISIBLE_DEVICES is \"\"", "Unset"]),
        (&[], &["--device", "cuda:7"], 4, &["no GPU cuda:7; cuda:0 is Stand-in GPU", "--device cuda:N"]),
        (&[("STAND_IN_CAPABILITY", "86")], &[], 3, &["NVIDIA H200 (sm_90)", "Stand-in GPU is sm_86", "Capture the model again"]),
        (&[("STAND_IN_GPUS", "2")], &["--device", "cpu"], 3, &["captured on cuda", "--device"]),
        (
            &[("STAND_IN_GPUS", "2")],
            &["--device", "cuda:1"],
            4,
            &["device: cuda:1, Stand-in GPU", "GPU-22222222\n", "out of memory", "doctor"],
        ),
    ];
    for (settings, more, code, words) in cases {
        let done = tune(kernelopt_with_driver(settings), &out, more);
        eprintln!("{settings:?} {more:?}: {}", String::from_utf8_lossy(&done.stderr));
        refused(&done, code, words, &out);
    }
}

#[test]
fn a_cpu_bundle_is_not_for_a_gpu() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let done = kernelopt(&["tune", text(&bundle("layer_norm")), "-o", text(&out), "--device", "cuda"]);
    refused(&done, 3, &["captured on cpu", "Leave --device out"], &out);
}

/// The same torch in a Python that sees nothing else of what lies beside it.
#[test]
fn a_python_without_triton_cannot_build() {
    let folder = tempfile::tempdir().expect("a folder");
    let (out, packages) = (folder.path().join("out"), folder.path().join("packages"));
    let ask =
        "import importlib.util, sys; print(sys._base_executable); print(importlib.util.find_spec('torch').submodule_search_locations[0])";
    let answer = Command::new(python()).args(["-c", ask]).output().expect("Python starts").stdout;
    let answer = String::from_utf8(answer).expect("utf-8");
    let (base, torch) = answer.trim().split_once('\n').expect("two lines");
    fs::create_dir(&packages).expect("a folder");
    std::os::unix::fs::symlink(torch, packages.join("torch")).expect("a link");
    let mut kernelopt = kernelopt_with_driver(&[("KERNELOPT_PYTHON", base)]);
    let path = std::env::join_paths([root().join("python"), packages]).expect("a path");
    kernelopt.env("PYTHONPATH", path);
    refused(&tune(kernelopt, &out, &[]), 4, &["has no triton", "pip install triton==3.6.0"], &out);
}

/// What was tuned on a GPU is not judged without one: it is neither true nor false here.
#[test]
fn a_claim_about_a_gpu_cannot_be_verified_without_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(folder.path()).expect("a journal");
    let bundle = Bundle::open(&captured()).expect("the bundle").digest;
    let (bundle_path, model) = (captured().display().to_string(), "examples/h200_suite.py:softmax".into());
    let terms = Terms {
        name: String::new(),
        class: None,
        budget_ms: 1000,
        max_candidates: 1,
        seed: 0,
        proposers: Vec::new(),
        priority: PRIORITY,
        weight: WEIGHT,
        model: String::new(),
        max_tokens: 0,
        max_cost: NanoUsd::ZERO,
    };
    let (program_version, fingerprints) = ("0.1.0".into(), BTreeMap::new());
    let event = Event::Opened { bundle, bundle_path, blob: None, model, program_version, opened_unix_ms: 0, terms, fingerprints };
    journal.append(&[Draft { job: Some(local_job()), active: Duration::ZERO, event }]).expect("an entry");
    drop(journal);
    let model = serde_json::json!({
        "verdict": "kept", "reason": "no candidate won", "baseline_us": 1.0, "optimized_us": 1.0, "speedup": 1.0, "ci95": [1.0, 1.0],
        "inputs_checked": 0, "max_error": 0.0, "baseline_max_error": 0.0, "parts": [],
    });
    let result = serde_json::json!({
        "schema_version": 1, "bundle": bundle, "device": "NVIDIA H200", "versions": {}, "model": model, "targets": [], "untouched": [],
        "budget": {"seconds": 0.0, "candidates": 0, "tokens": 0, "cost_usd": 0.0, "share": {}}, "rejected": {},
    });
    fs::write(folder.path().join("result.json"), result.to_string()).expect("a result");
    let verify = |settings: Settings<'_>| {
        let mut kernelopt = kernelopt_with_driver(settings);
        kernelopt.args(["verify", text(folder.path())]).output().expect("kernelopt starts")
    };
    let nowhere = folder.path().join("optimized");
    refused(&verify(&[("STAND_IN_GPUS", "0")]), 4, &["no GPU can be used", "nvidia-smi"], &nowhere);
    refused(&verify(&[("STAND_IN_CAPABILITY", "100")]), 3, &["Stand-in GPU is sm_100", "Capture the model again"], &nowhere);
}

#[test]
fn the_doctor_names_what_is_wrong_with_a_gpu_and_is_calm_without_one() {
    let look = |settings: Settings<'_>| {
        let mut kernelopt = kernelopt_with_driver(settings);
        // A Python that cannot be started is soon done with.
        let done = kernelopt.env("KERNELOPT_PYTHON", "/nonexistent/python").args(["doctor", "--json"]).output().expect("kernelopt starts");
        let checks: Vec<serde_json::Value> = serde_json::from_slice(&done.stdout).expect("JSON");
        let of = |name: &str| checks.iter().find(|check| check["name"] == name).cloned().unwrap_or_default();
        (of("driver"), of("gpu"), of("builder"))
    };
    let (driver, gpu, builder) = look(&[]);
    assert_eq!([&driver["status"], &gpu["status"], &builder["status"]], ["ok", "ok", "missing"]);
    assert_eq!(gpu["detail"], "cuda:0 Stand-in GPU, 16.0 GiB, sm_90, GPU-11111111-1111-1111-1111-111111111111");
    let (driver, gpu, _) = look(&[("STAND_IN_VERSION", "11080")]);
    assert_eq!((&driver["status"], gpu.is_null()), (&"missing".into(), true));
    assert!(driver["remedy"].as_str().is_some_and(|remedy| remedy.contains("Update")), "{driver}");
    let (driver, gpu, builder) = look(&[("CUDA_VISIBLE_DEVICES", "")]);
    assert_eq!((driver.is_null(), &gpu["status"], builder.is_null()), (true, &"ok".into(), true));
    assert!(gpu["detail"].as_str().is_some_and(|detail| detail.ends_with("Triton bundles can be inspected, not tuned here")), "{gpu}");
}
