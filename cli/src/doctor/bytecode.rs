//! Python's byte code of torch: without it, every process compiles two thousand modules before it starts.

use serde::Deserialize;

use super::check::Check;

/// Seconds that importing torch takes where its byte code is on disk.
const USUAL_SECONDS: f64 = 3.0;

/// Why torch's byte code is not on disk, and will not be.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Lack {
    /// In words.
    why: String,
    /// This user may put it there.
    writable: bool,
    /// Folders of torch and of what it imports.
    folders: Vec<String>,
    /// Time that importing torch took, in seconds.
    seconds: Option<f64>,
}

/// What is to be said of it; nothing where all is well.
pub(super) fn check(python: &str, lack: &Lack) -> Check {
    let Lack { why, writable, folders, seconds } = lack;
    let took =
        seconds.map(|seconds| seconds.max(USUAL_SECONDS)).map_or_else(|| "half a minute".into(), |seconds| format!("{seconds:.0} s"));
    let detail =
        format!("torch has none on disk, and gets none ({why}): importing it takes {took} instead of {USUAL_SECONDS:.0}, in every process");
    let who = if *writable { "Run" } else { "As a user who may write there, run" };
    Check::warn("bytecode", detail, format!("{who}: {python} -m compileall -q -j 0 {}", folders.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn it_works_and_says_what_to_run() {
        let lack =
            Lack { why: "X is set".into(), writable: true, folders: vec!["/p/torch".into(), "/p/sympy".into()], seconds: Some(31.4) };
        let found = check("python3", &lack);
        assert_eq!(found.status, Status::Warn);
        assert!(found.detail.contains("(X is set): importing it takes 31 s instead of 3"), "{}", found.detail);
        assert_eq!(found.remedy.as_deref(), Some("Run: python3 -m compileall -q -j 0 /p/torch /p/sympy"));
        let theirs = check("python3", &Lack { writable: false, seconds: None, ..lack });
        assert!(theirs.remedy.is_some_and(|remedy| remedy.starts_with("As a user")) && theirs.detail.contains("half a minute"));
    }
}
