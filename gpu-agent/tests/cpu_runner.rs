//! Real compiled candidates in the real sandbox: each misbehaving one gives exactly the fault that it must, leaves nothing behind and
//! does not touch the next; honest ones are right again and again.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cpu_bench;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cpu_bench::*;
use kernelopt_gpu_agent::cpu::arena::{Arena, Side};
use kernelopt_gpu_agent::cpu::runner::{ArgumentPlan, Fault, Plan, Runner};
use kernelopt_shared::meaning::Role;

fn forbidden(syscall: &str) -> Fault {
    Fault::Forbidden { syscall: syscall.into() }
}

fn crashed(signal: i32) -> Fault {
    Fault::Crashed { signal, said: String::new() }
}

/// Runs every named candidate on one zygote; after each, an honest one must still be right and nothing be left over.
fn all(expected: &[(&str, Fault)]) {
    let zygote = zygote(2);
    let honest = plan(library("honest_parallel"));
    for (name, fault) in expected {
        assert_eq!(&fault_of(&zygote, name, PATIENCE), fault, "{name}");
        let arena = arena(1);
        let mut runner = Runner::start(&zygote, &honest, &arena).unwrap();
        runner.run(&[0], PATIENCE).unwrap();
        assert!(error(&arena, 0) < TOLERANCE, "after {name}");
        drop(runner);
        assert_eq!(descendants().len(), 1, "after {name} only the zygote is left: {:?}", descendants());
    }
    drop(zygote);
    assert_eq!(descendants(), Vec::<String>::new());
}

#[test]
fn system_calls_are_refused_by_name() {
    let _alone = alone();
    all(&[
        ("fork_bomb", forbidden("clone")),
        ("vfork", forbidden(if cfg!(target_arch = "x86_64") { "vfork" } else { "clone" })),
        ("execute", forbidden("execve")),
        ("network", forbidden("socket")),
        ("read_file", forbidden("openat")),
        ("write_file", forbidden("openat")),
        ("close_control", forbidden("close")),
        ("duplicate_control", forbidden("dup")),
        ("signal_handler", forbidden("rt_sigaction")),
        ("blocked_call", forbidden("unknown")),
        ("kill_parent", forbidden("getppid")),
        ("kill_group", forbidden("kill")),
        ("trace", forbidden("ptrace")),
        ("executable_memory", forbidden("mmap")),
        ("affinity", forbidden("sched_setaffinity")),
        ("foreign_abi", forbidden("number 1073741865")),
    ]);
    assert!(!Path::new("/tmp/kernelopt-was-here").exists());
}

#[test]
fn deaths_are_told_apart() {
    let _alone = alone();
    all(&[
        ("null_write", crashed(libc::SIGSEGV)),
        ("stack_overflow", crashed(libc::SIGSEGV)),
        ("abort", crashed(libc::SIGABRT)),
        ("exit_zero", Fault::Exited { status: 0, said: String::new() }),
        ("exit_at_once", Fault::Exited { status: 7, said: String::new() }),
        ("memory_bomb", Fault::OutOfMemory { limit_bytes: limits().memory_bytes }),
        ("address_bomb", crashed(libc::SIGSEGV)),
    ]);
}

#[test]
fn answers_cannot_be_forged() {
    let _alone = alone();
    let out_of_turn = || Fault::Forged { detail: "an answer out of turn, or with a wrong nonce".into() };
    all(&[
        ("forge_answer", out_of_turn()),
        ("forge_noise", Fault::Forged { detail: "a message of 4 bytes".into() }),
        ("load_forge", out_of_turn()),
        // Blaming the sandbox does not make it nobody's fault.
        ("blame", Fault::Disturbed { detail: String::new() }),
        ("load_blame", Fault::Disturbed { detail: String::new() }),
    ]);
}

#[test]
fn misbehaviour_while_loading_is_behind_the_wall_too() {
    let _alone = alone();
    all(&[
        ("load_network", forbidden("socket")),
        ("load_fork", forbidden("clone")),
        ("load_write", forbidden("openat")),
        ("load_exit", Fault::Exited { status: 0, said: String::new() }),
    ]);
    assert!(!Path::new("/tmp/kernelopt-was-here").exists());
}

#[test]
fn files_cannot_be_read_while_loading() {
    let _alone = alone();
    let arena = arena(1);
    let mut runner = Runner::start(&zygote(2), &plan(library("load_read")), &arena).unwrap();
    runner.run(&[0], PATIENCE).unwrap();
    assert!(error(&arena, 0) < TOLERANCE, "its constructor opened /etc/passwd");
}

#[test]
fn what_takes_for_ever_is_ended() {
    let _alone = alone();
    let zygote = zygote(2);
    for name in ["endless_loop", "sleep_forever", "block_signals", "steal_commands", "load_loop"] {
        let mut plan = plan(library(name));
        plan.limits.start = Duration::from_secs(1);
        let arena = arena(1);
        let began = Instant::now();
        let fault = Runner::start(&zygote, &plan, &arena).and_then(|mut runner| runner.run(&[0], Duration::from_millis(300))).unwrap_err();
        assert!(matches!(fault, Fault::Hung { waited } if waited >= Duration::from_millis(300)), "{name}: {fault:?}");
        assert!(began.elapsed() < Duration::from_secs(10), "{name}: {:?}", began.elapsed());
        assert_eq!(descendants().len(), 1, "{name}: {:?}", descendants());
    }
}

#[test]
fn output_is_bounded() {
    let _alone = alone();
    let fault = fault_of(&zygote(2), "output_flood", PATIENCE);
    assert_eq!(fault, Fault::OutputFlood { seen_bytes: limits().output_bytes });
}

#[test]
fn a_loader_error_is_quoted() {
    let _alone = alone();
    let fault = fault_of(&zygote(2), "missing_symbol", PATIENCE);
    assert!(matches!(&fault, Fault::LoadFailed { detail } if detail.contains("no_such_function")), "{fault:?}");
}

#[test]
fn the_process_must_be_left_as_it_was() {
    let _alone = alone();
    all(&[
        ("float_mode", Fault::Disturbed { detail: "the floating-point mode".into() }),
        ("openmp_threads", Fault::Disturbed { detail: "OpenMP's number of threads".into() }),
        ("many_threads", Fault::TooManyThreads { found: 5, allowed: 2 }),
    ]);
    let bomb = fault_of(&zygote(2), "thread_bomb", PATIENCE);
    assert!(matches!(bomb, Fault::TooManyThreads { found, allowed: 2 } if found > 2), "{bomb:?}");
}

#[test]
fn writing_past_a_storage_is_seen_in_the_arena() {
    let _alone = alone();
    let zygote = zygote(2);
    for (name, storage, side, distance_bytes) in [("past_the_end", 3, Side::After, 1), ("before_the_start", 1, Side::Before, 4)] {
        let arena = arena(3);
        let mut runner = Runner::start(&zygote, &plan(library(name)), &arena).unwrap();
        runner.run(&[1], PATIENCE).unwrap();
        let trespass = arena.check_guards(0..3).unwrap_err();
        assert_eq!((trespass.slot, trespass.storage, trespass.side), (1, storage, side), "{name}");
        // Of the four bytes, the nearest that differs from the pattern.
        assert!((1..=4).contains(&trespass.distance_bytes) && trespass.distance_bytes >= distance_bytes.min(1), "{name}: {trespass:?}");
        assert!(error(&arena, 1) < TOLERANCE);
    }
}

#[test]
fn work_that_is_put_off_is_not_there_when_the_answer_is() {
    let _alone = alone();
    let arena = arena(1);
    let mut runner = Runner::start(&zygote(2), &plan(library("late_work")), &arena).unwrap();
    runner.run(&[0], PATIENCE).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(error(&arena, 0), f64::INFINITY, "the process was stopped, yet its work was done");
}

#[test]
fn an_answer_before_the_work_is_an_answer_without_it() {
    let _alone = alone();
    let arena = arena(1);
    let mut runner = Runner::start(&zygote(2), &plan(library("early_answer")), &arena).unwrap();
    // The nonce is in its memory, and it found it: the answer counts. So the outputs must be looked at, and are not there.
    runner.run(&[0], PATIENCE).unwrap();
    assert_eq!(error(&arena, 0), f64::INFINITY);
    // It goes on working when it is next let run, and then answers a second time.
    assert_eq!(runner.run(&[0], PATIENCE), Err(Fault::Forged { detail: "an answer out of turn, or with a wrong nonce".into() }));
}

#[test]
fn honest_kernels_are_right_again_and_again() {
    let _alone = alone();
    for threads in [1, 2] {
        let zygote = zygote(threads);
        let name = if threads == 1 { "honest_serial" } else { "honest_parallel" };
        let plan = plan(library(name));
        let (mut first, mut second) = (arena(4), arena(2));
        let mut a = Runner::start(&zygote, &plan, &first).unwrap();
        let mut b = Runner::start(&zygote, &plan, &second).unwrap();
        for _ in 0..10 {
            (0..4).for_each(|slot| refill(&mut first, slot));
            (0..2).for_each(|slot| refill(&mut second, slot));
            a.measure(&[3], &[0, 2, 0, 1], PATIENCE).unwrap();
            b.run(&[1], PATIENCE).unwrap();
            assert!((0..4).all(|slot| error(&first, slot) < TOLERANCE));
            assert!(error(&second, 1) < TOLERANCE);
            assert_eq!(error(&second, 0), f64::INFINITY, "a slot that was not launched");
            assert_eq!((first.check_guards(0..4), second.check_guards(0..2)), (Ok(()), Ok(())));
        }
        assert_eq!((a.fault(), b.fault()), (None, None));
        let states: Vec<bool> = descendants().iter().map(|stat| stat.contains(") T ")).collect();
        assert_eq!(states.iter().filter(|stopped| **stopped).count(), 2, "both are stopped, the zygote is not: {states:?}");
    }
}

#[test]
fn a_fault_is_final_and_a_killed_zygote_comes_back() {
    let _alone = alone();
    let zygote = zygote(2);
    let arena = arena(1);
    let mut runner = Runner::start(&zygote, &plan(library("exit_zero")), &arena).unwrap();
    let fault = runner.run(&[0], PATIENCE).unwrap_err();
    assert_eq!(runner.run(&[0], PATIENCE), Err(fault));

    let honest = plan(library("honest_serial"));
    let mut orphan = Runner::start(&zygote, &honest, &arena).unwrap();
    let helper: i32 = descendants()
        .iter()
        .find(|stat| stat.contains(&format!(" {} ", std::process::id())))
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(helper), nix::sys::signal::Signal::SIGKILL).unwrap();
    assert!(matches!(orphan.run(&[0], PATIENCE), Err(Fault::Sandbox { .. })), "a runner does not outlive its zygote");
    let mut next = Runner::start(&zygote, &honest, &arena).unwrap();
    next.run(&[0], PATIENCE).unwrap();
    assert!(error(&arena, 0) < TOLERANCE);
}

#[test]
fn plans_that_do_not_fit_are_refused() {
    let _alone = alone();
    let zygote = zygote(1);
    let arena = arena(1);
    let good = plan(library("honest_serial"));
    let beyond = vec![ArgumentPlan::Pointer { storage: 9, offset_bytes: 0 }];
    let past = vec![ArgumentPlan::Pointer { storage: 0, offset_bytes: STORAGES[0] + 1 }];
    for plan in [
        Plan { arguments: beyond, ..good.clone() },
        Plan { arguments: past, ..good.clone() },
        Plan { library: "relative.so".into(), ..good.clone() },
        Plan { library: "/no/such/library.so".into(), ..good.clone() },
    ] {
        assert!(matches!(Runner::start(&zygote, &plan, &arena), Err(Fault::Sandbox { .. })), "{plan:?}");
    }
    let mut runner = Runner::start(&zygote, &good, &arena).unwrap();
    assert!(matches!(runner.run(&[1], PATIENCE), Err(Fault::Sandbox { .. })));
    runner.run(&[0], PATIENCE).unwrap();
}

#[test]
fn arguments_arrive_in_the_order_of_the_signature() {
    let _alone = alone();
    let signature = [
        argument("in_ptr0", "const float*", Role::In),
        argument("ks0", "const int64_t", Role::Size),
        argument("out_ptr0", "float*", Role::Out),
        argument("ks1", "int64_t", Role::Size),
    ];
    let source =
        "#include <cstdint>\nextern \"C\" void kernel(const float* a, const int64_t n, float* b, int64_t m) { b[0] = a[0] * n + m; }";
    let library = builder().build(source, &signature).unwrap().library;
    let mut arena = Arena::new(2, &[16, 16], 1 << 20).unwrap();
    arena.bytes_mut(1, 0)[8..12].copy_from_slice(&3.0f32.to_le_bytes());
    let arguments = vec![
        ArgumentPlan::Pointer { storage: 0, offset_bytes: 8 },
        ArgumentPlan::Int(7),
        ArgumentPlan::Pointer { storage: 1, offset_bytes: 4 },
        ArgumentPlan::Int(-1),
    ];
    let plan = Plan { library, arguments, flush_denormal: false, limits: limits() };
    Runner::start(&zygote(1), &plan, &arena).unwrap().run(&[1], PATIENCE).unwrap();
    assert_eq!(arena.bytes(1, 1)[4..8], 20.0f32.to_le_bytes());
    assert_eq!(arena.bytes(0, 1), [0; 16]);
}

#[test]
fn the_denormal_mode_is_that_of_every_thread() {
    let _alone = alone();
    let signature = [argument("in_ptr0", "const float*", Role::In), argument("out_ptr0", "float*", Role::Out)];
    let source = "extern \"C\" void kernel(const float* a, float* b) {\n#pragma omp parallel for num_threads(2) schedule(static, 1)\n\
                  for (int i = 0; i < 2; ++i) b[i] = a[i] * 0.5f;\n}";
    let library = builder().build(source, &signature).unwrap().library;
    let mut arena = Arena::new(1, &[8, 8], 1 << 20).unwrap();
    arena.bytes_mut(0, 0).copy_from_slice(&[f32::MIN_POSITIVE.to_le_bytes(), f32::MIN_POSITIVE.to_le_bytes()].concat());
    let zygote = zygote(2);
    for (flush_denormal, expected) in [(false, f32::MIN_POSITIVE * 0.5), (true, 0.0), (false, f32::MIN_POSITIVE * 0.5)] {
        let arguments = (0..2).map(|storage| ArgumentPlan::Pointer { storage, offset_bytes: 0 }).collect();
        let plan = Plan { library: library.clone(), arguments, flush_denormal, limits: limits() };
        let mut runner = Runner::start(&zygote, &plan, &arena).unwrap();
        for _ in 0..2 {
            runner.run(&[0], PATIENCE).unwrap();
            assert_eq!(arena.bytes(0, 1), [expected.to_le_bytes(), expected.to_le_bytes()].concat(), "flush {flush_denormal}");
        }
    }
}

/// Set in the process that is killed by [`nothing_survives_its_parent`].
const VICTIM: &str = "KERNELOPT_TEST_VICTIM";

#[test]
fn nothing_survives_its_parent() {
    let _alone = alone();
    if std::env::var_os(VICTIM).is_some() {
        let arena = arena(1);
        let mut runner = Runner::start(&zygote(2), &plan(library("endless_loop")), &arena).unwrap();
        panic!("an endless loop ended: {:?}", runner.run(&[0], Duration::from_secs(120)));
    }
    library("endless_loop");
    let itself = std::env::current_exe().unwrap();
    let mut victim =
        Command::new(itself).args(["--exact", "nothing_survives_its_parent"]).env(VICTIM, "1").stdout(Stdio::null()).spawn().unwrap();
    // The victim, its zygote, and a worker that is running.
    let deadline = Instant::now() + PATIENCE;
    while !(descendants().len() == 3 && descendants()[2].contains(") R ")) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let pids: Vec<String> = descendants().iter().skip(1).map(|stat| stat.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(pids.len(), 2);
    victim.kill().unwrap();
    victim.wait().unwrap();
    let alive = |pid: &String| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while pids.iter().any(alive) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!pids.iter().any(alive), "{pids:?}");
}
