//! Sources that want something else than to be compiled. The screen stops most; the walls must stop the rest, so a worker is also
//! fed what the screen would refuse, by way of a package that its Python finds first.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use kernelopt_gpu_agent::cuda::build::{BuildError, BuildLimits, Builder};

use crate::bench::*;

fn short() -> BuildLimits {
    BuildLimits { wall: Duration::from_secs(8), cpu_seconds: 20, ..BuildLimits::default() }
}

#[test]
fn what_no_kernel_needs_is_refused_with_its_line() {
    let Some((_folder, builder)) = builder(1, BuildLimits::default()) else { return };
    let launch = launch("copy", &[("BLOCK", 256)]);
    let body = |statement: &str| COPY.replace("    value =", &format!("    {statement}\n    value ="));
    for (source, line) in [
        (format!("from os import system\n{COPY}"), 1),
        (format!("import torch\n{COPY}"), 1),
        (format!("while True: pass\n{COPY}"), 1),
        (format!("print('hello')\n{COPY}"), 1),
        (format!("x = open('/etc/passwd').read()\n{COPY}"), 1),
        (format!("x = [i for i in range(9)]\n{COPY}"), 1),
        (format!("def f(x=open('/etc/passwd')): return x\n{COPY}"), 1),
        (format!("class A: pass\n{COPY}"), 1),
        (body("tl.core.os"), 8),
        (body("triton.runtime.driver"), 8),
        (body("tl.load.__globals__"), 8),
        (body("open('/etc/passwd')"), 8),
        (body("getattr(tl, 'core')"), 8),
        (body("import os"), 8),
    ] {
        let error = builder.build(&triton(&source, COPIES, &launch)).unwrap_err();
        assert!(matches!(&error, BuildError::Refused { line: Some(found), .. } if *found == line), "{source}: {error}");
    }
}

#[test]
fn a_source_that_never_ends_or_takes_everything_is_stopped() {
    let Some((_folder, builder)) = builder(1, short()) else { return };
    let launch = launch("copy", &[("BLOCK", 256)]);
    builder.build(&triton(COPY, COPIES, &launch)).unwrap();
    let forever = format!("x = 9 ** 9 ** 9 ** 9\n{COPY}");
    let began = Instant::now();
    let error = builder.build(&triton(&forever, COPIES, &launch)).unwrap_err();
    assert!(matches!(&error, BuildError::Stopped(_)), "{error}");
    assert!(began.elapsed() < short().wall + Duration::from_secs(10));
    let big = format!("x = [0] * (1 << 40)\n{COPY}");
    assert!(matches!(builder.build(&triton(&big, COPIES, &launch)).unwrap_err(), BuildError::Stopped(_)));
    let next = crate::bench::launch("copy", &[("BLOCK", 64)]);
    assert!(!builder.build(&triton(COPY, COPIES, &next)).unwrap().cached);
}

/// Python that a compromised build would run, each line one attempt; what it managed is what it prints.
const ATTEMPTS: &str = r#"
import os, socket, subprocess, signal, ctypes
managed = []
def attempt(name, work):
    try:
        work()
        managed.append(name)
    except (OSError, subprocess.SubprocessError):
        pass
attempt("socket", lambda: socket.socket())
attempt("unix socket", lambda: socket.socketpair())
attempt("passwd", lambda: open("/etc/passwd"))
attempt("home", lambda: os.listdir("/root"))
attempt("secret", lambda: open(SECRET))
attempt("write beside", lambda: open(SECRET + ".new", "w"))
attempt("agent's environment", lambda: open(f"/proc/{AGENT}/environ"))
attempt("signal the agent", lambda: os.kill(AGENT, 0))
attempt("new session", os.setsid)
attempt("shell reads", lambda: subprocess.run(["/bin/sh", "-c", "cat /etc/passwd"], check=True, capture_output=True))
attempt("device", lambda: open("/dev/nvidiactl"))
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno())
attempt("unshare", lambda: call(272, 0x10000000))
attempt("ptrace", lambda: call(101, 0, 0, 0, 0))
raise RuntimeError("managed: " + ", ".join(managed))
"#;

const OPENED: &str = "

def keep(tree):
    return [node for node in tree.body if not (isinstance(node, ast.ImportFrom) and _for_decorators(node))]
";

/// A builder whose `kernelopt.build.screen` lets everything pass, as if it had been led around.
fn without_screen(folder: &Path) -> Option<Builder> {
    let (_cache, builder) = builder(1, short())?;
    let package = folder.join("kernelopt");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/kernelopt");
    fs::create_dir_all(package.join("build")).unwrap();
    for (from, to) in [(from.clone(), package.clone()), (from.join("build"), package.join("build"))] {
        for file in fs::read_dir(from).unwrap().flatten().filter(|file| file.path().is_file()) {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
    let screen = package.join("build/screen.py");
    let text = fs::read_to_string(&screen).unwrap();
    fs::write(&screen, text + OPENED).unwrap();
    // An interpreter of its own name, which finds that package first.
    let python = folder.join("python");
    let named = builder.options().python.display().to_string();
    let script = format!("#!/bin/sh\nPYTHONPATH={}:$PYTHONPATH exec {named} \"$@\"\n", folder.display());
    fs::write(&python, script).unwrap();
    fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    Some(Builder::new(options(python, folder, 1, short())).unwrap())
}

#[test]
fn behind_the_screen_stand_walls() {
    let folder = tempfile::tempdir().unwrap();
    let Some(builder) = without_screen(folder.path()) else { return };
    let launch = launch("copy", &[("BLOCK", 256)]);
    let secrets = tempfile::tempdir().unwrap();
    let secret = secrets.path().join("secret");
    fs::write(&secret, "s").unwrap();
    let attempts =
        ATTEMPTS.replace("SECRET", &format!("{:?}", secret.display().to_string())).replace("AGENT", &std::process::id().to_string());
    let error = builder.build(&triton(&format!("{attempts}{COPY}"), COPIES, &launch)).unwrap_err();
    assert!(error.to_string().contains("RuntimeError: managed: ") && error.to_string().ends_with("managed: "), "{error}");

    let before = workers_in(folder.path());
    assert_eq!(before.len(), 1, "{before:?}");
    for (number, (head, what)) in (0..).zip([
        ("raise ValueError('no')", "ValueError: no"),
        ("import os; os._exit(0)", "ended"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("import sys\nwhile True: sys.stderr.write('x' * 100000)", "File too large"),
        ("while True: pass", "longer than"),
        ("import os\nif os.fork() == 0:\n    while True: pass\nraise ValueError('left one')", "left one"),
        ("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", "ended twice"),
    ]) {
        if head.contains("fork") {
            assert_eq!(workers_in(folder.path()), before, "one worker has served all");
        }
        let error = builder.build(&triton(&format!("{head}\n{COPY}"), COPIES, &launch)).unwrap_err();
        assert!(error.to_string().contains(what), "{head}: {error}");
        assert!(error.verdict().is_some(), "{head}: {error}");
        let next = crate::bench::launch("copy", &[("BLOCK", 32 << number)]);
        assert!(!builder.build(&triton(COPY, COPIES, &next)).unwrap().cached, "{head}");
    }
    let after = workers_in(folder.path());
    assert!(after.len() == 1 && after != before, "{after:?}");
    drop(builder);
    assert_eq!(workers_in(folder.path()), Vec::<String>::new(), "what builds have left is gone");
}

/// Numbers of the processes of a builder whose Python lies in `folder`.
fn workers_in(folder: &Path) -> Vec<String> {
    let name = folder.display().to_string();
    let of_builder = |entry: &fs::DirEntry| {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&name)
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().filter(of_builder);
    processes.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
