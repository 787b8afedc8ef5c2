//! The sandbox's own check of itself.

mod cpu_bench;

use cpu_bench::reexec;
use kernelopt_gpu_agent::cpu::child::Reexec;
use kernelopt_gpu_agent::cpu::sandbox::self_check;

#[test]
fn every_wall_is_tried_and_said() {
    let found = self_check(&reexec()).expect("the probe runs");
    assert!(found.walls.len() >= 8);
    for wall in &found.walls {
        // Reading while a library is loaded is landlock's part; an old kernel has none, and then it must say so.
        let landlock_only = wall.attempt == "read a file while loading";
        assert_eq!(wall.holds, !landlock_only || found.landlock_version.is_some(), "{wall:?}");
        assert!(!wall.detail.is_empty());
    }
    assert_eq!(found.complete(), found.landlock_version.is_some());
}

#[test]
fn a_program_that_is_not_ours_is_an_error() {
    for program in ["/bin/true", "/no/such/program"] {
        let error = self_check(&Reexec { program: program.into(), words: Vec::new() }).expect_err("no answer");
        assert!(error.to_string().starts_with(program), "{error}");
    }
}
