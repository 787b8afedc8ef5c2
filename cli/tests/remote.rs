//! The client commands, as people run them, against the real HTTP server over a desk in memory.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use kernelopt_coordinator::http::{Desk, JobFilter, Limits};
use kernelopt_shared::api::{AgentList, FrontierPage, JobPage, JobView, Phase};
use kernelopt_shared::message::JobId;
use kernelopt_test_api::{Running, bundle_folder, script, token};
use kernelopt_test_servers::Proxy;
use tokio::task::spawn_blocking;

async fn start() -> Running {
    let limits = Limits { heartbeat: Duration::from_millis(200), ..Limits::default() };
    Running::start(limits, true).await
}

/// Runs `kernelopt` as somebody with the token of `role`.
async fn kernelopt(server: String, role: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelopt"));
    command.args(args).env("KERNELOPT_SERVER", server).env_remove("KERNELOPT_TOKEN_FILE").env("KERNELOPT_TOKEN", token(role));
    spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The same, which must succeed: what it printed.
async fn says(running: &Running, args: &[&str]) -> String {
    let done = kernelopt(running.url(""), "operator", args).await;
    assert!(done.status.success(), "{args:?}: {}", text(&done.stderr));
    text(&done.stdout)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

async fn submit(running: &Running) -> JobId {
    JobId::parse(says(running, &["submit", bundle_folder().to_str().unwrap(), "--name", "softmax"]).await.trim()).unwrap()
}

/// Plays each job that is submitted, a little at a time.
fn devices(running: &Running) -> tokio::task::JoinHandle<()> {
    let desk = running.desk.clone();
    tokio::spawn(async move {
        loop {
            let waiting = JobFilter { phase: Some(Phase::Waiting), ..JobFilter::default() };
            for job in desk.jobs(&waiting).await.unwrap().jobs {
                for event in script::events(&desk.targets(&job.id)) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    desk.append(&job.id, event);
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_see() {
    let running = start().await;
    let mut seen = String::new();
    let mut show = async |args: &[&str]| {
        let said = says(&running, args).await;
        seen.push_str(&format!("$ kernelopt {}\n{said}\n", args.join(" ")));
    };
    show(&["jobs"]).await;
    show(&["agents"]).await;
    show(&["frontier"]).await;
    let (first, second) = (submit(&running).await, submit(&running).await);
    show(&["explain", first.as_str()]).await;
    show(&["job", first.as_str()]).await;
    ["gpu1/cuda0", "gpu1/cuda1", "gpu2/cuda0"].into_iter().for_each(|agent| running.desk.beat(script::beat(agent)));
    show(&["quarantine", "gpu1", "--reason", "XID 79 on both"]).await;
    show(&["agents"]).await;
    show(&["readmit", "gpu1"]).await;
    show(&["drain", "gpu2"]).await;
    show(&["explain", first.as_str()]).await;
    script::play(&running.desk, &first);
    show(&["job", first.as_str()]).await;
    show(&["cancel", second.as_str()]).await;
    let third = submit(&running).await;
    running.desk.fail(&third, "no agent of its class was heard for a day");
    show(&["jobs"]).await;
    show(&["jobs", "--phase", "finished"]).await;
    show(&["jobs", "--limit", "1"]).await;
    show(&["frontier"]).await;
    insta::assert_snapshot!(seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_get_json() {
    let running = start().await;
    running.desk.beat(script::beat("gpu1/cuda0"));
    let said =
        says(&running, &["submit", bundle_folder().to_str().unwrap(), "--json", "--budget", "2h", "--priority", "9", "--seed", "7"]).await;
    let job: JobView = serde_json::from_str(&said).unwrap();
    assert_eq!((job.name.as_str(), job.budget.seconds, job.priority), ("softmax_cuda", 7200, 9));
    script::play(&running.desk, &job.id);
    let shown: JobView = serde_json::from_str(&says(&running, &["job", job.id.as_str(), "--json"]).await).unwrap();
    assert_eq!(shown, running.desk.job(&job.id).await.unwrap());
    let jobs: JobPage = serde_json::from_str(&says(&running, &["jobs", "--json"]).await).unwrap();
    let agents: AgentList = serde_json::from_str(&says(&running, &["agents", "--json"]).await).unwrap();
    let frontier: FrontierPage = serde_json::from_str(&says(&running, &["frontier", "--json"]).await).unwrap();
    assert_eq!((jobs.jobs.len(), agents.agents.len(), frontier.rows.len()), (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_waited_for() {
    let running = start().await;
    let devices = devices(&running);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let bundle = bundle_folder();
    let args = ["submit", bundle.to_str().unwrap(), "--name", "softmax", "--wait", "-o", out.to_str().unwrap()];
    let done = kernelopt(running.url(""), "submitter", &args).await;
    devices.abort();
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(out.join("result.json").exists() && out.join("candidates").is_dir() && !out.join(".lock").exists());
    // The clock of the test decides how often the line of progress comes, and which phases are seen.
    let by_the_clock = |line: &&str| line.contains("/min") || ["waiting", "profiling", "checking the model"].contains(line);
    let progress: String = text(&done.stderr).lines().filter(|line| !by_the_clock(line)).map(|line| format!("{line}\n")).collect();
    let progress = progress.replace(out.to_str().unwrap(), "OUT");
    insta::assert_snapshot!(format!("{}\n--- stderr\n{progress}", text(&done.stdout)));

    let again = kernelopt(running.url(""), "viewer", &["job", "j000001", "-o", out.to_str().unwrap()]).await;
    assert_eq!(again.status.code(), Some(5), "a folder that is there is left alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_survives_a_broken_network() {
    let running = start().await;
    let job = submit(&running).await;
    let proxy = Proxy::to(running.address.port()).unwrap();
    let server = format!("http://127.0.0.1:{}", proxy.port());
    let following = tokio::spawn(async move { kernelopt(server, "viewer", &["job", "j000001", "--follow"]).await });
    let events = script::events(&running.desk.targets(&job));
    for (number, event) in events.into_iter().enumerate() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        running.desk.append(&job, event);
        if number % 3 == 1 {
            proxy.cut();
        }
    }
    let done = tokio::time::timeout(Duration::from_secs(60), following).await.unwrap().unwrap();
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    for once in ["measured 1.60x", "confirmed 1.60x", "whole model: right"] {
        assert_eq!(said.matches(once).count(), 1, "{once}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_say_what_went_wrong() {
    let running = start().await;
    let job = submit(&running).await;
    let (server, bundle) = (running.url(""), bundle_folder());
    let bundle = bundle.to_str().unwrap();
    let code = async |server: &str, role: &str, args: &[&str]| {
        let done = kernelopt(server.to_owned(), role, args).await;
        let said = text(&done.stderr);
        assert!(said.starts_with("error: ") || done.status.code() == Some(2) || said.contains("\nerror: "), "{args:?}: {said}");
        assert!(!said.contains(token(role)), "{args:?}: {said}");
        done.status.code()
    };
    let closed = { std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
    assert_eq!(code(&format!("http://{closed}"), "viewer", &["jobs"]).await, Some(7));
    assert_eq!(code("nowhere", "viewer", &["jobs"]).await, Some(2));
    assert_eq!(code(&server, "viewer", &["job", "unknown"]).await, Some(3));
    assert_eq!(code(&server, "viewer", &["job", "a b"]).await, Some(2));
    assert_eq!(code(&server, "viewer", &["cancel", job.as_str()]).await, Some(8));
    assert_eq!(code(&server, "viewer", &["drain", "gpu1"]).await, Some(8));
    assert_eq!(code(&server, "operator", &["drain", "gpu1"]).await, Some(3));
    assert_eq!(code(&server, "agent", &["jobs"]).await, Some(8));
    assert_eq!(code(&server, "viewer", &["submit", bundle, "--seed", "1"]).await, Some(8));
    assert_eq!(code(&server, "submitter", &["submit", "/nowhere"]).await, Some(3));
    assert_eq!(code(&server, "submitter", &["submit", bundle, "--budget", "9000h"]).await, Some(2));
    assert_eq!(code(&server, "submitter", &["submit", bundle, "--priority", "10"]).await, Some(2));
    assert_eq!(code(&server, "viewer", &["job", job.as_str(), "-o", "/tmp/never"]).await, Some(8), "it is not finished");
    running.desk.fail(&job, "the compiler's own code cannot be run");
    assert_eq!(code(&server, "viewer", &["job", job.as_str(), "--follow"]).await, Some(9));
    let other = submit(&running).await;
    says(&running, &["cancel", other.as_str()]).await;
    assert_eq!(code(&server, "viewer", &["job", other.as_str(), "-f"]).await, Some(10));
    assert!(!Path::new("/tmp/never").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_may_stand_in_a_file() {
    let running = start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{}\n", token("viewer"))).unwrap();
    let run = |args: Vec<String>, by_environment: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernelopt"));
        command.args(args).env("KERNELOPT_SERVER", running.url("")).env_remove("KERNELOPT_TOKEN");
        if by_environment {
            command.env("KERNELOPT_TOKEN_FILE", &file);
        }
        spawn_blocking(move || command.output().unwrap().status.code())
    };
    let option = ["jobs".into(), "--token-file".into(), file.display().to_string()];
    assert_eq!(run(option.into(), false).await.unwrap(), Some(0));
    assert_eq!(run(vec!["jobs".into()], true).await.unwrap(), Some(0));
    assert_eq!(run(vec!["jobs".into()], false).await.unwrap(), Some(8));
    assert_eq!(run(vec!["jobs".into(), "--token-file".into(), "/nowhere".into()], false).await.unwrap(), Some(3));
}
