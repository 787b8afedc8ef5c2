//! A fleet of real processes over private servers: coordinators, agents, and what is said to them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kernelopt_test_servers::{RabbitMq, Redis, RedisOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{binary, command};

/// Longest that a process may take to say that it is ready.
const READY: Duration = Duration::from_secs(60);

/// A process of ours, ended with this.
pub struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    said: Vec<String>,
}

impl Running {
    /// Starts `command`, whose words on stderr are kept.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the process starts");
        let stderr = child.stderr.take().expect("stderr is a pipe");
        let (says, lines) = mpsc::channel();
        std::thread::spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| says.send(line)));
        Self { child, lines, said: Vec::new() }
    }

    /// The first line that has `words` in it, of those not yet waited for.
    pub fn wait_for(&mut self, words: &str, patience: Duration) -> String {
        let deadline = Instant::now() + patience;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if line.contains(words) {
                        return line;
                    }
                }
                Err(error) => panic!("{words:?} was not said ({error}); said was:\n{}", self.said.join("\n")),
            }
        }
    }

    /// Everything said until now.
    pub fn words(&mut self) -> String {
        self.said.extend(self.lines.try_iter());
        self.said.join("\n")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
    }

    /// Ends it as a power cut would.
    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Its exit code, if it ends within `patience`.
    pub fn exit_code(&mut self, patience: Duration) -> Option<i32> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Private servers, and the folder of a coordinator's data.
pub struct Rig {
    /// The broker.
    pub rabbit: RabbitMq,
    /// The frontier.
    pub redis: Redis,
    /// Where the coordinator keeps everything.
    pub data: tempfile::TempDir,
    /// Where agents keep theirs.
    pub cache: PathBuf,
}

impl Rig {
    /// Starts the servers.
    pub fn start() -> Self {
        let redis = Redis::start(RedisOptions::default().set("maxmemory-policy", "noeviction")).expect("Redis starts");
        let cache = binary().parent().expect("a folder").join("test-cache");
        Self { rabbit: RabbitMq::start().expect("RabbitMQ starts"), redis, data: tempfile::tempdir().expect("a folder"), cache }
    }

    fn command(&self) -> Command {
        let mut command = command(&binary());
        command.env("KERNELOPT_BROKER_URL", self.rabbit.url()).env("KERNELOPT_REDIS_URL", self.redis.url());
        command.env("XDG_CACHE_HOME", &self.cache).env("RUST_LOG", "info,lapin=off");
        command
    }

    /// Starts a coordinator; the address of its API once it leads.
    pub fn coordinator(&self) -> (Running, String) {
        let mut running = self.second_coordinator();
        let address = address_of(&running.wait_for("the API is at", READY));
        (running, address)
    }

    /// Starts a coordinator that may have to wait for its turn.
    pub fn second_coordinator(&self) -> Running {
        let mut command = self.command();
        command.args(["coordinator", "--listen", "127.0.0.1:0", "--data"]).arg(self.data.path());
        Running::start(&mut command)
    }

    /// Starts an agent on this host's processor; it serves once this returns.
    pub fn agent(&self, name: &str, address: &str) -> Running {
        let mut command = self.command();
        command.args(["agent", "--device", "cpu", "--name", name, "--blobs", &format!("{address}/v1/blobs")]);
        let mut running = Running::start(&mut command);
        running.wait_for("serving", READY);
        running
    }

    /// Runs a client command against the API at `address`.
    pub fn client(&self, address: &str, args: &[&str]) -> Output {
        let mut command = self.command();
        command.args(args).env("KERNELOPT_SERVER", address).env_remove("RUST_LOG");
        command.output().expect("the client starts")
    }

    /// A client command's JSON.
    pub fn json(&self, address: &str, args: &[&str]) -> serde_json::Value {
        let done = self.client(address, &[args, &["--json"]].concat());
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice(&done.stdout).expect("JSON on stdout")
    }

    /// Submits a bundle; the job's name.
    pub fn submit(&self, address: &str, bundle: &Path, more: &[&str]) -> String {
        let path = bundle.display().to_string();
        let job = self.json(address, &[&["submit", &path], more].concat());
        job["id"].as_str().expect("a job has an id").to_owned()
    }

    /// Waits until `done` holds of what a client command says.
    pub fn until(&self, address: &str, args: &[&str], patience: Duration, done: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let deadline = Instant::now() + patience;
        loop {
            let found = self.json(address, args);
            if done(&found) {
                return found;
            }
            assert!(Instant::now() < deadline, "{args:?} still says {found:#}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Of the line that says where the API is.
pub fn address_of(line: &str) -> String {
    let at = line.find("http://").expect("an address");
    line[at..].trim().to_owned()
}
