//! `kernelopt agent` as a process: a real broker, a folder of blobs, a real processor, probes, SIGTERM.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernelopt_gpu_agent::service::{Canary, identity};
use kernelopt_shared::blobs::{BlobOptions, Blobs};
use kernelopt_shared::broker::link::CoordinatorEnd;
use kernelopt_shared::broker::rabbit::{RabbitBroker, RabbitOptions};
use kernelopt_shared::bundle::{self, MANIFEST, Manifest};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{Control, JobId, Lease, Pulse, Reply, Report, Task, Work};
use kernelopt_shared::task::Depth;
use kernelopt_test_servers::RabbitMq;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::timeout;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);

fn agent(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelopt"));
    command.arg("agent").env("XDG_CACHE_HOME", folder.join("cache")).env_remove("KERNELOPT_BROKER_URL").env_remove("KERNELOPT_TOKEN");
    command
}

/// Ended with the test, whatever happens.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn terminate(&mut self) -> (Option<i32>, Duration) {
        let told = Instant::now();
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM).unwrap();
        (self.0.wait().unwrap().code(), told.elapsed())
    }
}

/// The answer to a GET, status line first.
fn get(from: SocketAddr, path: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(from) else { return String::new() };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn until(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A bundle without a model: what an evaluation needs of one.
async fn put_bundle(blobs: &Blobs, folder: &Path) -> Digest {
    let manifest = Manifest { versions: [("torch".to_owned(), "2.11.0".to_owned())].into(), ..Canary::cpu().unwrap().manifest };
    let root = folder.join("bundle");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join(MANIFEST), serde_json::to_vec(&manifest).unwrap()).unwrap();
    bundle::pack(&root, &folder.join("bundle.tar")).unwrap();
    blobs.put_file(&folder.join("bundle.tar")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_serves_says_how_it_fares_and_leaves_in_good_order() {
    let rabbit = RabbitMq::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("blobs");
    let blobs = Blobs::open(&BlobOptions::new(store.to_str().unwrap())).unwrap();
    let canary = Canary::cpu().unwrap();
    let bundle = put_bundle(&blobs, folder.path()).await;
    let target = blobs.put(serde_json::to_vec(&canary.target).unwrap().into()).await.unwrap();

    let broker = RabbitBroker::start(RabbitOptions::new(rabbit.url().into())).unwrap();
    let desk = CoordinatorEnd::new(Arc::new(broker), Arc::new(|_| {}));
    let (mut reports, mut pulses) = (desk.reports().await.unwrap(), desk.pulses().await.unwrap());
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = folder.path().join("agent.toml");
    std::fs::write(&config, format!("name = 'host-1'\ndevice = 'cpu'\nmetrics = '{metrics}'\n[blobs]\nurl = '{}'\n", store.display()))
        .unwrap();
    let mut process = agent(folder.path());
    process.arg("--config").arg(&config).env("KERNELOPT_BROKER_URL", rabbit.url()).stderr(Stdio::null());
    let mut process = Process(process.spawn().unwrap());
    until("it is ready", || get(metrics, "/readyz").starts_with("HTTP/1.1 200"));
    assert!(get(metrics, "/healthz").starts_with("HTTP/1.1 200"));

    let class = identity::processor().class();
    let task = |serial, work| Task {
        id: Digest::of([[serial].as_slice()]),
        job: JobId::parse("job").unwrap(),
        lease: Lease { epoch: 1, serial: u64::from(serial) },
        epoch: 1,
        bundle,
        work,
        seed: 1,
        run_limit_ms: 120_000,
    };
    let evaluate = Work::Evaluate { target, candidate: canary.wrong.clone(), depth: Depth::Screen };
    let mut report = async |of: Lease| -> Report {
        loop {
            let received = timeout(PATIENCE, reports.next()).await.expect("it is reported").unwrap();
            let Report { task, lease, agent, .. } = received.message.clone();
            received.receipt.acknowledge().await;
            // One that has left needs no answer.
            let _ = desk.control(&agent, &Control::Accepted { task, lease }).await;
            if lease == of {
                return received.message;
            }
        }
    };
    let wrong = task(1, evaluate);
    desk.send_task(&class, &wrong).await.unwrap();
    let Reply::Judged(outcome) = report(wrong.lease).await.reply else { panic!("no verdict") };
    assert!(["wrong", "unstable"].contains(&outcome.verdict.kind()), "{:?}", outcome.verdict);
    let done = || get(metrics, "/metrics").lines().any(|line| line.starts_with("kernelopt_agent_tasks_done_total") && line.ends_with(" 1"));
    until("it is counted", done);

    // SIGTERM in the middle of something that takes longer than there is time.
    let long = task(2, Work::Nothing { busy_us: 60_000_000 });
    desk.send_task(&class, &long).await.unwrap();
    while !matches!(timeout(PATIENCE, pulses.next()).await.unwrap().unwrap().message, Pulse::Started { lease, .. } if lease == long.lease) {
    }
    let (code, took) = tokio::task::spawn_blocking(move || process.terminate()).await.unwrap();
    assert!(code == Some(0) && took < Duration::from_secs(20), "{code:?} after {took:?}");
    assert!(matches!(report(long.lease).await.reply, Reply::HandedBack { .. }));
    loop {
        if let Pulse::Leaving { agent } = timeout(PATIENCE, pulses.next()).await.unwrap().unwrap().message {
            assert_eq!(agent.as_str(), "host-1/cpu");
            break;
        }
    }
    assert_eq!(desk.lane_depth(&class).await.unwrap().unwrap().ready, 1, "for another agent");
}

#[test]
fn what_cannot_work_is_said_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("agent.toml");
    std::fs::write(&config, "[broker]\nprefx = 'x'\n").unwrap();
    let blobs = folder.path().join("blobs");
    let (config, blobs) = (config.to_str().unwrap(), blobs.to_str().unwrap());
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--device", "cpu", "--blobs", blobs], 2, "no broker is named"),
        (&["--device", "cpu", "--broker", "amqp://h"], 2, "no store of blobs is named"),
        (&["--config", config], 2, "unknown field `prefx`"),
        (&["--device", "cpu", "--broker", "http://user:hunter2@h", "--blobs", blobs], 2, "amqp"),
        (&["--device", "cpu", "--broker", "amqp://h", "--blobs", "ftp://h/x"], 2, "no store is reached by ftp"),
        (&["--device", "cpu", "--broker", "amqp://h", "--blobs", blobs, "--name", "a b"], 2, "is no agent"),
    ];
    for (arguments, code, words) in cases {
        let Output { status, stderr, .. } = agent(folder.path()).args(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(words) && stderr.contains("\n       ") && !stderr.contains("hunter2"), "{stderr}");
    }
}
