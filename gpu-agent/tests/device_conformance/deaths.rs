//! What costs a process: faults, hangs, crashes. Each runs in a child, which is this test's own program.

use std::io;
use std::time::{Duration, Instant};

use kernelopt_gpu_agent::cpu::child::Reexec;
use kernelopt_gpu_agent::cuda::device::{DeviceError, Run, Value};
use kernelopt_gpu_agent::cuda::process::{Death, Process, Progress, serve};
use serde::{Deserialize, Serialize};

use crate::kernel_suite::Loaded;
use crate::subjects;

/// What a child is asked to do.
#[derive(Debug, Serialize, Deserialize)]
enum Deed {
    Echo(String),
    /// On a real GPU or a simulated one.
    Fault {
        gpu: bool,
    },
    Hang {
        gpu: bool,
    },
    Sleep(Duration),
    Exit(i32),
    Abort,
    /// Says something that is no answer.
    Mumble,
}

/// The child's side; ignored, since it is no test.
#[test]
#[ignore = "the child of other tests"]
fn child() {
    let handler = |deed: Deed, progress: &mut Progress<'_>| match deed {
        Deed::Echo(text) => Ok(text),
        Deed::Fault { gpu } => fault(gpu),
        Deed::Hang { gpu } => hang(gpu, progress),
        Deed::Sleep(time) => {
            progress.note("sleeping");
            std::thread::sleep(time);
            Ok(String::new())
        }
        Deed::Exit(status) => std::process::exit(status),
        Deed::Abort => std::process::abort(),
        Deed::Mumble => Err("not a number".into()),
    };
    // Started by hand there is no parent to talk to.
    let _: io::Result<()> = serve::<Deed, Result<String, String>>(handler);
}

fn subject(gpu: bool) -> subjects::Subject {
    if gpu { subjects::gpu().unwrap() } else { subjects::simulated() }
}

/// Writes where nobody has memory, then tries to go on.
fn fault(gpu: bool) -> Result<String, String> {
    let mut subject = subject(gpu);
    let loaded = Loaded::new(&mut *subject.device, &subject.kernels.saxpy);
    let mut run: Run = loaded.run();
    run.arguments[2] = Value::Pointer(0x10);
    let first = subject.device.launch(&run).expect_err("nobody has that address");
    let then = subject.device.launch(&loaded.run()).expect_err("the context is lost");
    match (&first, &then) {
        (DeviceError::Fault(_), DeviceError::Fault(_)) => Ok(first.to_string()),
        other => Err(format!("{other:?}")),
    }
}

fn hang(gpu: bool, progress: &mut Progress<'_>) -> Result<String, String> {
    let mut subject = subject(gpu);
    let loaded = Loaded::new(&mut *subject.device, &subject.kernels.spin);
    progress.note("spinning");
    subject.device.launch(&loaded.run()).map(|()| String::new()).map_err(|error| error.to_string())
}

fn start() -> Process {
    let words = ["--exact", "deaths::child", "--ignored", "--nocapture", "--quiet"].map(String::from);
    Process::start(&Reexec { program: std::env::current_exe().unwrap(), words: words.into() }, &[]).unwrap()
}

fn ask(process: &mut Process, deed: &Deed, patience: Duration) -> Result<Result<String, String>, Death> {
    process.call(deed, patience)
}

const LONG: Duration = Duration::from_secs(60);

fn gpu_is_tested() -> bool {
    std::env::var_os("KERNELOPT_GPU_TESTS").is_some_and(|value| value == "1")
}

fn alive(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn answers_come_back() {
    let mut process = start();
    let text = "x".repeat(3 << 20);
    for text in ["a", "", &text] {
        assert_eq!(ask(&mut process, &Deed::Echo(text.into()), LONG), Ok(Ok(text.into())));
    }
    let pid = process.pid();
    assert!(alive(pid));
    drop(process);
    assert!(!alive(pid), "a dropped process is gone");
}

#[test]
fn a_fault_is_told_from_other_errors() {
    for gpu in [false, true].into_iter().filter(|gpu| !gpu || gpu_is_tested()) {
        let said = ask(&mut start(), &Deed::Fault { gpu }, LONG).unwrap().unwrap();
        assert!(said.contains("illegal memory access"), "{said}");
    }
}

#[test]
fn a_hang_ends_with_the_process_and_names_its_phase() {
    for gpu in [false, true].into_iter().filter(|gpu| !gpu || gpu_is_tested()) {
        let mut process = start();
        let pid = process.pid();
        let patience = Duration::from_secs(if gpu { 15 } else { 2 });
        let death = ask(&mut process, &Deed::Hang { gpu }, patience).unwrap_err();
        assert_eq!(death, Death::Hung { waited: patience, phase: "spinning".into() });
        assert!(!alive(pid) && process.death() == Some(&death));
        assert_eq!(ask(&mut process, &Deed::Echo("a".into()), LONG), Err(death), "the dead stay dead");
        // The next one is not disturbed.
        if gpu {
            assert!(ask(&mut start(), &Deed::Fault { gpu }, LONG).unwrap().is_ok());
        }
    }
}

#[test]
fn crashes_are_named() {
    let exited = ask(&mut start(), &Deed::Exit(7), LONG).unwrap_err();
    assert_eq!(exited.to_string(), "died while starting: exit status 7");
    let mut process = start();
    assert_eq!(ask(&mut process, &Deed::Sleep(Duration::ZERO), LONG), Ok(Ok(String::new())));
    let aborted = ask(&mut process, &Deed::Abort, LONG).unwrap_err();
    assert!(aborted.to_string().contains("SIGABRT"), "{aborted}");
}

#[test]
fn an_answer_of_another_type_is_no_answer() {
    let mut process = start();
    let death = process.call::<_, u32>(&Deed::Mumble, LONG).unwrap_err();
    assert!(matches!(&death, Death::Protocol { detail, .. } if detail.contains("invalid type")), "{death}");
    assert!(!alive(process.pid()));
}

#[test]
fn notes_are_heard_while_the_answer_is_awaited() {
    let mut notes = Vec::new();
    let deed = Deed::Sleep(Duration::from_millis(1));
    start().call_with::<_, Result<String, String>>(&deed, LONG, |note| notes.push(note.to_owned())).unwrap().unwrap();
    assert_eq!(notes, ["sleeping"]);
}

/// A process that only starts a child, says its number, and dies.
#[test]
#[ignore = "the child of other tests"]
fn parent_that_dies() {
    let mut process = start();
    println!("pid {}", process.pid());
    let _ = ask(&mut process, &Deed::Echo("up".into()), LONG);
    std::thread::spawn(move || ask(&mut process, &Deed::Sleep(Duration::from_secs(600)), LONG));
    std::thread::sleep(Duration::from_millis(200));
    std::process::abort();
}

#[test]
fn a_child_does_not_outlive_its_parent() {
    let words = ["--exact", "deaths::parent_that_dies", "--ignored", "--nocapture", "--quiet"];
    let output = std::process::Command::new(std::env::current_exe().unwrap()).args(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let pid: u32 = text.split("pid ").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok()).expect("it said");
    let deadline = Instant::now() + Duration::from_secs(10);
    // A zombie that init has not collected is gone for our purposes.
    let gone = || std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "));
    while !gone() {
        assert!(Instant::now() < deadline, "process {pid} is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}
