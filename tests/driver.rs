//! A CUDA driver for hosts without a GPU: `tests/fixtures/driver/libcuda.c`, found before the real one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{binary, command, root};

/// Environment variables that the driver reads; its file explains them.
pub type Settings<'a> = &'a [(&'a str, &'a str)];

/// `kernelopt` where that driver is, with `settings` for it and what CUDA would take from this test's own surroundings
/// left out.
pub fn kernelopt_with_driver(settings: Settings<'_>) -> Command {
    let mut kernelopt = command(&binary());
    kernelopt.env_remove("CUDA_VISIBLE_DEVICES").env("LD_LIBRARY_PATH", driver()).envs(settings.iter().copied());
    kernelopt
}

/// Folder of the driver, built once.
fn driver() -> PathBuf {
    let folder = binary().parent().expect("the binary lies in a folder").join("test-driver");
    fs::create_dir_all(&folder).expect("the target folder can be written");
    let lock = File::create(folder.join("lock")).expect("a lock file");
    lock.lock().expect("the lock");
    let source = root().join("tests/fixtures/driver/libcuda.c");
    let library = folder.join("libcuda.so");
    let time = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    if time(&library).is_none() || time(&library) < time(&source) {
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
        let done = Command::new(compiler).args(["-x", "c", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(done.expect("a compiler").success());
        // torch and triton ask for it by this name.
        let _ = fs::remove_file(folder.join("libcuda.so.1"));
        std::os::unix::fs::symlink("libcuda.so", folder.join("libcuda.so.1")).expect("a link");
    }
    folder
}
