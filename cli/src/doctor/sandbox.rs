//! Do the walls around candidates hold here? Each is tried.

use kernelopt_gpu_agent::cpu::child::Reexec;
use kernelopt_gpu_agent::cpu::sandbox::self_check;

use super::Check;

/// Name of the check.
const NAME: &str = "sandbox";
/// What to do where a wall is missing.
const REMEDY: &str = "Run on Linux 5.13 or newer with seccomp and landlock enabled (CONFIG_SECURITY_LANDLOCK, lsm=landlock).";

/// Tries everything that a candidate must not be able to do.
pub fn check(reexec: &Reexec) -> Check {
    let found = match self_check(reexec) {
        Ok(found) => found,
        Err(error) => return Check::missing(NAME, error.to_string(), REMEDY),
    };
    let landlock = found.landlock_version.map_or_else(|| "no landlock".to_owned(), |version| format!("landlock {version}"));
    let open: Vec<String> =
        found.walls.iter().filter(|wall| !wall.holds).map(|wall| format!("{}: {}", wall.attempt, wall.detail)).collect();
    if open.is_empty() {
        Check::ok(NAME, format!("{} walls hold; {landlock}", found.walls.len()))
    } else {
        Check::missing(NAME, open.join("; "), REMEDY)
    }
}
