//! A fleet of real processes over private servers: coordinators, agents, and what is said to them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
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

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True where a process of this name descends from it now.
    pub fn has_child(&self, name: &str) -> bool {
        let mut parents = vec![self.pid()];
        while let Some(parent) = parents.pop() {
            for child in children(parent) {
                if std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|found| found.trim() == name) {
                    return true;
                }
                parents.push(child);
            }
        }
        false
    }

    /// True while it has not ended.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
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

    /// The program with what it needs to find the servers.
    pub fn command(&self) -> Command {
        let mut command = command(&binary());
        command.env("KERNELOPT_BROKER_URL", self.rabbit.url()).env("KERNELOPT_REDIS_URL", self.redis.url());
        command.env("XDG_CACHE_HOME", &self.cache).env("RUST_LOG", "info,lapin=off");
        command
    }

    /// Starts a coordinator; the address of its API once it leads.
    pub fn coordinator(&self) -> (Running, String) {
        lead(&mut self.coordinator_command("127.0.0.1:0"))
    }

    /// A coordinator that will listen at `listen`; it may have to wait for its turn.
    pub fn coordinator_command(&self, listen: &str) -> Command {
        let mut command = self.command();
        command.args(["coordinator", "--listen", listen, "--data"]).arg(self.data.path());
        command
    }

    /// Starts an agent on this host's processor; it serves once this returns.
    pub fn agent(&self, name: &str, address: &str) -> Running {
        serve(&mut self.agent_command(name, address))
    }

    /// An agent on this host's processor, with blobs from the coordinator at `address`.
    pub fn agent_command(&self, name: &str, address: &str) -> Command {
        let mut command = self.command();
        command.args(["agent", "--device", "cpu", "--name", name, "--blobs", &format!("{address}/v1/blobs")]);
        command
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

/// Starts a coordinator and waits until it leads: where its API is.
pub fn lead(command: &mut Command) -> (Running, String) {
    let mut running = Running::start(command);
    let address = address_of(&running.wait_for("the API is at", READY));
    (running, address)
}

/// Starts an agent and waits until it serves.
pub fn serve(command: &mut Command) -> Running {
    let mut running = Running::start(command);
    running.wait_for("serving", READY);
    running
}

/// An address on loopback that nobody listens on, for a coordinator that is started again at the same place.
pub fn free_address() -> String {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    port.to_string()
}

/// Of the line that says where the API is.
pub fn address_of(line: &str) -> String {
    let at = line.find("http://").expect("an address");
    line[at..].trim().to_owned()
}

/// What a `GET` of `path` at `http://HOST:PORT` answers: status and body.
pub fn get(address: &str, path: &str) -> (u16, String) {
    let host = address.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(host).expect("somebody listens");
    stream.set_read_timeout(Some(READY)).expect("a socket has a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").expect("a request can be sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

/// Processes that a process's threads started and that have not ended (proc(5)).
fn children(parent: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let of_thread = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    threads.map(of_thread).flat_map(|words| words.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()).collect()
}
