//! The C++ compiler: the one that torch's inductor takes, and whether what it builds runs.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::check::Check;
use super::command::{self, Done};

/// A cold compiler on a slow disk takes seconds.
const LIMIT: Duration = Duration::from_secs(60);
const INSTALL: &str = "Install it (Debian, Ubuntu: apt-get install g++), or name another compiler in CXX.";

/// Uses what generated kernels use: OpenMP, and arithmetic that keeps denormals. Prints `threads denormals_kept`.
const PROGRAM: &str = r#"
#include <cstdio>
#include <limits>
#include <omp.h>
int main() {
    int threads = 0;
    #pragma omp parallel reduction(+ : threads)
    threads += 1;
    volatile float least = std::numeric_limits<float>::min();
    std::printf("%d %d\n", threads, least / 2 > 0 ? 1 : 0);
}
"#;

/// Is there a compiler, and does what it builds run?
pub(super) fn checks() -> Vec<Check> {
    let compiler = std::env::var("CXX").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "g++".into());
    let version = match command::run(Command::new(&compiler).arg("--version"), LIMIT) {
        Ok(done) if done.status.success() => done.stdout.lines().next().unwrap_or_default().to_owned(),
        Ok(done) => return vec![Check::missing("compiler", format!("{compiler} --version ended with {}", done.status), INSTALL)],
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return vec![Check::missing("compiler", format!("{compiler} was not found"), INSTALL)];
        }
        Err(error) => return vec![Check::missing("compiler", format!("{compiler}: {error}"), INSTALL)],
    };
    vec![Check::ok("compiler", version), openmp(&compiler)]
}

fn openmp(compiler: &str) -> Check {
    let built = tempfile::tempdir().and_then(|folder| build_and_run(compiler, folder.path()));
    let remedy = "Install the compiler's OpenMP library and the headers of the C library (Debian, Ubuntu: apt-get install g++).";
    match built {
        Ok(done) if done.status.success() => judge(&done.stdout),
        Ok(done) => Check::missing("openmp", format!("a small program failed: {}", first_line(&done.stderr)), remedy),
        Err(error) => Check::missing("openmp", format!("a small program could not be built: {error}"), remedy),
    }
}

fn build_and_run(compiler: &str, folder: &Path) -> io::Result<Done> {
    let (source, program) = (folder.join("check.cpp"), folder.join("check"));
    std::fs::write(&source, PROGRAM)?;
    let built = command::run(Command::new(compiler).args(["-O2", "-std=c++17", "-fopenmp"]).arg(&source).arg("-o").arg(&program), LIMIT)?;
    if built.status.success() { command::run(&mut Command::new(&program), LIMIT) } else { Ok(built) }
}

fn judge(answer: &str) -> Check {
    let mut words = answer.split_whitespace();
    let (threads, kept) = (words.next().and_then(|n| n.parse::<u32>().ok()), words.next());
    match (threads, kept) {
        (Some(threads), Some("1")) => Check::ok("openmp", format!("compiles, links and runs with {}", threads_in_words(threads))),
        (Some(_), Some("0")) => Check::warn(
            "openmp",
            "what the compiler builds flushes denormals to zero by itself",
            "Take -ffast-math and -Ofast out of the compiler's settings (CXX, CXXFLAGS, spec files).",
        ),
        _ => Check::missing("openmp", format!("a small program answered {:?}", first_line(answer)), "Try another compiler: set CXX."),
    }
}

fn threads_in_words(threads: u32) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads") }
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim()
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn answers_of_the_small_program() {
        assert_eq!(judge("2 1\n").status, Status::Ok);
        assert_eq!(judge("1 1\n").detail, "compiles, links and runs with 1 thread");
        assert_eq!(judge("2 0\n").status, Status::Warn);
        assert_eq!(judge("").status, Status::Missing);
    }

    #[test]
    fn a_program_that_is_no_compiler_is_found_out() {
        assert_eq!(openmp("false").status, Status::Missing);
        assert_eq!(openmp("/nonexistent/g++").status, Status::Missing);
    }
}
