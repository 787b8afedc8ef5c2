//! Bad input gets a clear error that names the file, an exit code that is documented, and nothing half written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use kernelopt_tests::{binary, bundle, command, kernelopt};

fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

/// A copy of a real bundle that a test may spoil.
fn copy_of(name: &str, folder: &Path) -> PathBuf {
    let copy = folder.join("bundle");
    fs::create_dir(&copy).expect("a folder");
    for entry in fs::read_dir(bundle(name)).expect("the bundle") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, copy.join(path.file_name().expect("a name"))).expect("a copy");
    }
    copy
}

/// Asserts exit code and words, and that nothing was written at `out`.
fn refused(done: &Output, code: i32, words: &[&str], out: &Path) {
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{stderr}");
    assert!(stderr.lines().any(|line| line.starts_with("error: ")), "{stderr}");
    assert!(!stderr.contains("panicked") && !stderr.contains("Traceback"), "{stderr}");
    words.iter().for_each(|word| assert!(stderr.contains(word), "{word:?} is not in: {stderr}"));
    assert!(!out.join("result.json").exists() && !out.join("optimized").exists());
}

#[test]
fn bundles_that_cannot_be_used() {
    type Spoil = fn(&Path);
    let spoils: [(&str, Spoil, &[&str]); 7] = [
        ("no manifest", |b| fs::remove_file(b.join("manifest.json")).expect("gone"), &["no bundle at", "capture"]),
        ("torn manifest", |b| truncate(&b.join("manifest.json"), 100), &["manifest.json", "line"]),
        ("torn tensors", |b| truncate(&b.join("tensors.safetensors"), 50), &["tensors.safetensors", "torn"]),
        ("missing tensors", |b| fs::remove_file(b.join("tensors.safetensors")).expect("gone"), &["tensors.safetensors", "missing"]),
        ("tampered code", |b| replace(&b.join("output_code_0.py"), "256", "255"), &["output_code_0.py", "changed after the capture"]),
        ("wrong schema", |b| replace(&b.join("manifest.json"), "\"schema_version\": 1", "\"schema_version\": 7"), &["schema_version is 7"]),
        ("unknown torch", |b| replace(&b.join("manifest.json"), "\"torch\": \"2.11", "\"torch\": \"9.99"), &["versions.torch is 9.99"]),
    ];
    for (name, spoil, words) in spoils {
        let folder = tempfile::tempdir().expect("a folder");
        let spoiled = copy_of("layer_norm", folder.path());
        spoil(&spoiled);
        let out = folder.path().join("out");
        let done = kernelopt(&["tune", text(&spoiled), "-o", text(&out)]);
        eprintln!("{name}: {}", String::from_utf8_lossy(&done.stderr));
        refused(&done, 3, words, &out);
    }
}

fn truncate(path: &Path, bytes: u64) {
    fs::File::options().write(true).open(path).and_then(|f| f.set_len(bytes)).expect("it can be cut");
}

fn replace(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).expect("a text");
    assert!(text.contains(from), "{from} is not in {}", path.display());
    fs::write(path, text.replacen(from, to, 1)).expect("it can be written");
}

#[test]
fn output_folders_that_cannot_be_used() {
    let model = bundle("layer_norm");
    let folder = tempfile::tempdir().expect("a folder");

    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).expect("a folder");
    fs::write(foreign.join("thesis.tex"), "x").expect("a file");
    refused(&kernelopt(&["tune", text(&model), "-o", text(&foreign)]), 5, &["other files", "-o"], &foreign);

    let unwritable = Path::new("/proc/kernelopt");
    refused(&kernelopt(&["tune", text(&model), "-o", text(unwritable)]), 5, &["/proc/kernelopt"], unwritable);

    let other = folder.path().join("other");
    let done = kernelopt(&["tune", text(&bundle("matmul")), "-o", text(&other)]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let before = fs::read(other.join("result.json")).expect("its result");
    let done = kernelopt(&["tune", text(&model), "-o", text(&other), "--resume"]);
    assert_eq!(done.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&done.stderr).contains("another bundle"));
    assert_eq!(fs::read(other.join("result.json")).expect("still its result"), before);
}

#[test]
fn a_machine_that_lacks_something() {
    let model = bundle("layer_norm");
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let run = |variable: &str, value: &str| {
        command(&binary()).env(variable, value).args(["tune", text(&model), "-o", text(&out)]).output().expect("kernelopt starts")
    };
    refused(&run("PATH", "/nonexistent"), 4, &["g++"], &out);
    let _ = fs::remove_dir_all(&out);
    refused(&run("KERNELOPT_PYTHON", "/nonexistent/python"), 4, &["/nonexistent/python", "KERNELOPT_PYTHON"], &out);
}

#[test]
fn command_lines_that_mean_nothing() {
    let model = bundle("layer_norm");
    assert_eq!(kernelopt(&["tune"]).status.code(), Some(2));
    assert_eq!(kernelopt(&["tune", text(&model), "-o", "/tmp/x", "--budget", "soon"]).status.code(), Some(2));
    assert_eq!(kernelopt(&["tune", text(&model), "-o", "/tmp/x", "--proposer", "oracle"]).status.code(), Some(2));
    assert_eq!(kernelopt(&["verify", "/nonexistent"]).status.code(), Some(3));
    assert_eq!(kernelopt(&["inspect", "/nonexistent"]).status.code(), Some(3));
}

/// A disk that fills up in the middle of a job. Needs the right to mount; where there is none, there is nothing to test.
#[test]
fn a_full_disk_ends_the_job_and_leaves_it_resumable() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("a folder");
    let mounted = command(Path::new("mount")).args(["-t", "tmpfs", "-o", "size=96k", "tmpfs"]).arg(&disk).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no right to mount a small disk");
        return;
    }
    let out = disk.join("out");
    let done = kernelopt(&["tune", text(&bundle("layer_norm")), "-o", text(&out), "--max-candidates", "8"]);
    let unmounted = command(Path::new("umount")).arg("-l").arg(&disk).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("full"), "{stderr}");
}
