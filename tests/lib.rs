//! What crosses crates: helpers of the end-to-end tests.
//!
//! These tests run the real program and the real compiler. They need a Python with torch (`KERNELOPT_PYTHON`, set by
//! `make test`) and the built `kernelopt` binary.

pub mod driver;
pub mod rig;
pub mod targets;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The workspace's root folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests crate lies in the workspace").to_owned()
}

/// The `kernelopt` binary of the profile that this test was built with.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let profile = test.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "deps")).and_then(Path::parent);
    let path = profile.expect("a test lies in deps").join("kernelopt");
    assert!(path.exists(), "{} is missing: cargo build -p kernelopt-cli", path.display());
    path
}

/// The Python that has torch.
pub fn python() -> PathBuf {
    let named = std::env::var_os("KERNELOPT_PYTHON").map(PathBuf::from);
    named.unwrap_or_else(|| root().join(".venv/bin/python"))
}

/// A command with the Python package in reach.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("PYTHONPATH", root().join("python")).env("KERNELOPT_PYTHON", python()).current_dir(root());
    command
}

/// Runs `kernelopt` with `args`.
pub fn kernelopt(args: &[&str]) -> Output {
    command(&binary()).args(args).output().expect("kernelopt starts")
}

/// A bundle of `tests/fixtures/models.py:NAME`, captured once and kept in the target folder. Tests that run at the same time
/// wait for each other.
pub fn bundle(name: &str) -> PathBuf {
    let folder = binary().parent().expect("the binary lies in a folder").join("test-bundles");
    fs::create_dir_all(&folder).expect("the target folder can be written");
    let lock = File::create(folder.join(format!("{name}.lock"))).expect("a lock file");
    lock.lock().expect("the lock");
    let models = root().join("tests/fixtures/models.py");
    let bundle = folder.join(name);
    if is_older(&bundle.join("manifest.json"), &[models.clone(), root().join("python/kernelopt/capture.py")]) {
        let _ = fs::remove_dir_all(&bundle);
        let done = command(&python())
            .args(["-m", "kernelopt", "capture", &format!("{}:{name}", models.display()), "-o"])
            .arg(&bundle)
            .output()
            .expect("Python starts");
        assert!(done.status.success(), "capture of {name}: {}", String::from_utf8_lossy(&done.stderr));
    }
    bundle
}

fn is_older(made: &Path, sources: &[PathBuf]) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    let Some(made) = time(made) else { return true };
    sources.iter().filter_map(|path| time(path)).any(|source| source > made)
}

/// `result.json` of an output folder.
pub fn result(out: &Path) -> serde_json::Value {
    let text = fs::read(out.join("result.json")).expect("result.json");
    serde_json::from_slice(&text).expect("result.json is JSON")
}
