//! A private RabbitMQ node.
//!
//! It consists of two processes: the node and epmd, which tells `rabbitmqctl` the node's port. Left to itself a node starts an epmd that
//! outlives it and listens on all interfaces; here epmd is a child of ours, on loopback, and ends with the node.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::account::Account;
use crate::process::{self, Process};
use crate::{ServerError, ports};

const PACKAGE: &str = "rabbitmq-server";
/// Where Debian has the scripts that take the environment as it is; those in `/usr/sbin` insist on the system's own folders.
const SCRIPTS: &str = "/usr/lib/rabbitmq/bin";
const START: Duration = Duration::from_secs(90);
const STOP: Duration = Duration::from_secs(20);
/// Draws of ports before it is given up.
const DRAWS: usize = 3;
/// What the node's log says when all is up.
const UP: &str = "Server startup complete";

#[derive(Clone, Copy)]
struct Ports {
    amqp: u16,
    distribution: u16,
    epmd: u16,
}

impl Ports {
    fn draw() -> Self {
        Self { amqp: ports::free(), distribution: ports::free(), epmd: ports::free() }
    }
}

/// A private RabbitMQ node. Dropped, it is killed, its epmd too, and its folder removed.
pub struct RabbitMq {
    node: Option<Process>,
    epmd: Option<Process>,
    ports: Ports,
    name: String,
    password: String,
    programs: Programs,
    account: Account,
    folder: TempDir,
}

struct Programs {
    server: PathBuf,
    ctl: PathBuf,
    epmd: PathBuf,
}

impl RabbitMq {
    /// Starts a node without plugins and waits until it takes connections.
    ///
    /// # Errors
    /// It is not installed, or did not start.
    pub fn start() -> Result<Self, ServerError> {
        Self::start_with("")
    }

    /// The same with further lines of `rabbitmq.conf`, as `consumer_timeout = 10000`.
    ///
    /// # Errors
    /// It is not installed, or did not start.
    pub fn start_with(config: &str) -> Result<Self, ServerError> {
        let find = |program, package| process::find(program, package, &[&format!("{SCRIPTS}/{program}")]);
        let programs =
            Programs { server: find("rabbitmq-server", PACKAGE)?, ctl: find("rabbitmqctl", PACKAGE)?, epmd: find("epmd", "erlang-base")? };
        let account = Account::of("rabbitmq", "rabbitmq-server", PACKAGE)?;
        let folder = tempfile::Builder::new().prefix("kernelopt-rabbitmq-").tempdir().map_err(ServerError::io("a temporary folder"))?;
        account.own(folder.path())?;
        let token = ports::token();
        let name = format!("kernelopt-{token}@localhost");
        let mut rabbit = Self { node: None, epmd: None, ports: Ports::draw(), name, password: ports::token(), programs, account, folder };
        rabbit.secret(".erlang.cookie", &ports::token())?;
        rabbit.file("enabled_plugins", "[].\n")?;
        for draw in 1.. {
            rabbit.configure(config)?;
            match rabbit.launch() {
                Err(ServerError::Ended { words, .. }) if draw < DRAWS && words.contains("eaddrinuse") => {
                    rabbit.kill9();
                    rabbit.epmd = None;
                    rabbit.ports = Ports::draw();
                }
                done => return done.map(|()| rabbit),
            }
        }
        unreachable!("the last draw returns")
    }

    fn configure(&self, further: &str) -> Result<(), ServerError> {
        let text = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\ndefault_user = kernelopt\ndefault_pass = {}\nlog.console = true\nlog.file = false\n{further}\n",
            self.ports.amqp, self.password
        );
        self.file("rabbitmq.conf", &text)
    }

    fn launch(&mut self) -> Result<(), ServerError> {
        if self.epmd.is_none() {
            self.epmd = Some(self.launch_epmd()?);
        }
        let words = self.path("node.out");
        let before = fs::metadata(&words).map_or(0, |found| found.len() as usize);
        let mut node = Process::start("RabbitMQ", self.command(&self.programs.server), &words)?;
        let port = self.ports.amqp;
        node.wait_until(START, || fs::read(&words).is_ok_and(|text| contains(&text[before.min(text.len())..], UP)) && speaks_amqp(port))?;
        self.node = Some(node);
        Ok(())
    }

    fn launch_epmd(&self) -> Result<Process, ServerError> {
        let mut command = Command::new(&self.programs.epmd);
        command.args(["-port", &self.ports.epmd.to_string(), "-address", "127.0.0.1"]).current_dir(self.folder.path());
        self.account.enter(&mut command);
        let mut epmd = Process::start("epmd", command, &self.path("epmd.out"))?;
        epmd.wait_until(START, || connect(self.ports.epmd).is_some())?;
        Ok(epmd)
    }

    /// A script of the package in this node's world.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            // The cookie is looked for at home.
            .env("HOME", self.folder.path())
            .env("RABBITMQ_NODENAME", &self.name)
            .env("RABBITMQ_CONF_ENV_FILE", self.path("rabbitmq-env.conf"))
            .env("RABBITMQ_CONFIG_FILE", self.path("rabbitmq.conf"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", self.path("advanced.config"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", self.path("enabled_plugins"))
            .env("RABBITMQ_MNESIA_BASE", self.path("data"))
            .env("RABBITMQ_LOG_BASE", self.path("log"))
            .env("RABBITMQ_GENERATED_CONFIG_DIR", self.path("config"))
            .env("RABBITMQ_PID_FILE", self.path("node.pid"))
            .env("RABBITMQ_DIST_PORT", self.ports.distribution.to_string())
            .env("ERL_EPMD_PORT", self.ports.epmd.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_CRASH_DUMP_SECONDS", "0")
            // Without input it runs the node in place of the script, so that the child's id is the node's; a shell on no input would end it.
            .env("RABBITMQ_ALLOW_INPUT", "1")
            .env("RABBITMQ_SERVER_START_ARGS", "-noinput")
            // Of every Erlang that starts here: the node, the ones that it starts, `rabbitmqctl`.
            .env("ERL_FLAGS", "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false")
            .env("RABBITMQ_CTL_DIST_PORT_MIN", "15000")
            .env("RABBITMQ_CTL_DIST_PORT_MAX", "31999");
        self.account.enter(&mut command);
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> Result<(), ServerError> {
        process::write(&self.path(name), text)?;
        self.account.own(&self.path(name))
    }

    fn secret(&self, name: &str, text: &str) -> Result<(), ServerError> {
        self.file(name, text)?;
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o400)).map_err(ServerError::io(name))
    }

    /// `amqp://USER:PASSWORD@127.0.0.1:PORT/%2f`; the user may do anything.
    pub fn url(&self) -> String {
        self.url_at(self.ports.amqp)
    }

    /// The same by another port, a [`crate::Proxy`]'s.
    pub fn url_at(&self, port: u16) -> String {
        format!("amqp://kernelopt:{}@127.0.0.1:{port}/%2f", self.password)
    }

    /// Its AMQP port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.ports.amqp
    }

    /// Runs `rabbitmqctl`, about 2 s: what it printed.
    ///
    /// # Errors
    /// It failed; the error has its words.
    pub fn rabbitmqctl(&self, args: &[&str]) -> Result<String, ServerError> {
        let mut command = self.command(&self.programs.ctl);
        command.args(args);
        process::run(command)
    }

    /// Kills the node, as a lost machine would; what it confirmed is on its disk.
    pub fn kill9(&mut self) {
        if let Some(node) = self.node.take() {
            node.kill9();
        }
    }

    /// Ends the node in good order. True where it went by itself.
    pub fn stop(&mut self) -> bool {
        self.node.take().is_none_or(|node| node.terminate(STOP))
    }

    /// Starts the node again on the same ports with what is on its disk; ends it first where it runs.
    ///
    /// # Errors
    /// It did not start.
    pub fn restart(&mut self) -> Result<(), ServerError> {
        self.stop();
        self.launch()
    }

    /// Forgets everything, as a new disk would: the next [`Self::restart`] finds no queue. Ends the node where it runs.
    ///
    /// # Errors
    /// The folder cannot be removed.
    pub fn wipe(&mut self) -> Result<(), ServerError> {
        self.kill9();
        fs::remove_dir_all(self.path("data")).map_err(ServerError::io("the node's data"))
    }

    /// Stops the node's clock: connections stay and nothing answers.
    pub fn pause(&self) {
        self.node.iter().for_each(|node| node.signal(Signal::SIGSTOP));
    }

    /// Lets a paused node go on.
    pub fn resume(&self) {
        self.node.iter().for_each(|node| node.signal(Signal::SIGCONT));
    }
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        // Before the folder goes, and the node before its epmd.
        self.kill9();
        self.epmd = None;
    }
}

fn contains(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|window| window == word.as_bytes())
}

fn connect(port: u16) -> Option<TcpStream> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
}

/// True where the port answers a protocol header (AMQP 0-9-1, section 4.2.2) with a method frame.
fn speaks_amqp(port: u16) -> bool {
    let Some(mut stream) = connect(port) else { return false };
    let mut first = [0u8; 1];
    stream.set_read_timeout(Some(Duration::from_secs(2))).is_ok()
        && stream.write_all(b"AMQP\x00\x00\x09\x01").is_ok()
        && stream.read_exact(&mut first).is_ok()
        && first == [1]
}
