//! `kernelopt gateway` as a process: settings, probes, SIGHUP, SIGTERM.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SECRETS: [(&str, &str); 3] = [
    ("OPENAI_API_KEY", "sk-openai-canary-0123456789"),
    ("ANTHROPIC_API_KEY", "sk-anthropic-canary-0123456789"),
    ("KERNELOPT_GATEWAY_KEY", "caller-canary-0123456789abcdef"),
];

fn gateway(settings: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelopt"));
    command.args(["gateway", "--config"]).arg(settings).envs(SECRETS).env_remove("RUST_LOG");
    command
}

fn check(text: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, text).unwrap();
    gateway(&path).arg("--check").output().unwrap()
}

fn shipped() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/config/gateway.toml")).unwrap()
}

#[test]
fn the_file_that_is_shipped_can_be_used_and_so_can_all_that_it_shows() {
    let output = check(&shipped());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 models, 2 ways to them, 1 keys"));
    // Every line that is commented out is one that could be written.
    let text = shipped();
    let settings = text.lines().map(|line| match line.trim_start().strip_prefix("# ") {
        Some(rest) if rest.starts_with(['[', '{']) || rest.split_once(" = ").is_some_and(|(name, _)| !name.contains(' ')) => {
            rest.to_owned()
        }
        _ => line.to_owned(),
    });
    let text = settings.collect::<Vec<_>>().join("\n").replace("/run/secrets/openai-second", "/dev/stdin");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, text).unwrap();
    let mut command = gateway(&path);
    command.arg("--check").env("KERNELOPT_REDIS_URL", "redis://h").env("KERNELOPT_GATEWAY_OPERATOR_KEY", "operator-0123456789abcdef");
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(b"sk-second-0123456789").unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_without_a_secret() {
    for (from, to, said) in [
        ("listen =", "lisen =", "line 7: unknown field `lisen`"),
        ("env = \"OPENAI_API_KEY\"", "env = \"NOT_SET_ANYWHERE\"", "NOT_SET_ANYWHERE"),
        ("limits = { concurrent = 64, budget_usd = 50 }", "", "limit"),
        ("upstream = \"anthropic\"", "upstream = \"nobody\"", "nobody"),
    ] {
        let output = check(&shipped().replace(from, to));
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(said) && !text.contains("canary"), "{text}");
    }
}

#[test]
fn it_serves_until_it_is_told_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, shipped().replace("127.0.0.1:7119", "127.0.0.1:0")).unwrap();
    let mut process = gateway(&path).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut until = |what: &str| lines.find(|line| line.contains(what)).unwrap_or_else(|| panic!("it never said {what:?}"));
    let line = until("listening at http://");
    let address = line.split_once("http://").unwrap().1.to_owned();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert!(get("/healthz").starts_with("HTTP/1.1 200") && get("/readyz").starts_with("HTTP/1.1 200"));
    assert!(get("/metrics").contains("kernelopt_build_info{process=\"gateway\""));
    assert!(get("/v1/models").starts_with("HTTP/1.1 401"));
    let pid = Pid::from_raw(i32::try_from(process.id()).unwrap());
    std::fs::write(&path, "nonsense").unwrap();
    kill(pid, Signal::SIGHUP).unwrap();
    until("the old settings stay in force");
    assert!(get("/healthz").starts_with("HTTP/1.1 200"));
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
}
