//! A private Redis.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::account::Account;
use crate::process::{self, Process};
use crate::{ServerError, ports};

const PROGRAM: &str = "redis-server";
const START: Duration = Duration::from_secs(20);
const STOP: Duration = Duration::from_secs(10);
/// Draws of a port before it is given up.
const DRAWS: usize = 5;

/// Settings of a private Redis: lines of its configuration. What is not said: no password, no eviction, every write on disk before it is
/// answered, so that a killed server comes back with all it has said yes to.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    lines: Vec<(String, String)>,
    password: Option<String>,
    tls: Option<(PathBuf, PathBuf)>,
}

impl RedisOptions {
    /// A line of the configuration: `set("maxmemory", "3mb")`.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.lines.push((name.into(), value.into()));
        self
    }

    /// The password of the default user.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self
    }

    /// TLS alone, with this certificate and key (PEM). Clients need no certificate.
    #[must_use]
    pub fn tls(mut self, certificate: &Path, key: &Path) -> Self {
        self.tls = Some((certificate.into(), key.into()));
        self
    }

    fn write(&self, folder: &Path, port: u16) -> String {
        let mut text = format!(
            "bind 127.0.0.1\nport {}\ndir {}\ndaemonize no\nsave \"\"\nappendonly yes\nappendfsync always\nmaxmemory-policy noeviction\n",
            if self.tls.is_some() { 0 } else { port },
            folder.display(),
        );
        if self.tls.is_some() {
            text += &format!(
                "tls-port {port}\ntls-auth-clients no\ntls-cert-file {dir}/server.pem\ntls-key-file {dir}/server.key\n",
                dir = folder.display()
            );
        }
        if let Some(password) = &self.password {
            text += &format!("requirepass {password}\n");
        }
        self.lines.iter().for_each(|(name, value)| text += &format!("{name} {value}\n"));
        text
    }
}

/// A private Redis. Dropped, it is killed and its folder removed.
pub struct Redis {
    process: Option<Process>,
    port: u16,
    program: PathBuf,
    account: Account,
    options: RedisOptions,
    folder: TempDir,
}

impl Redis {
    /// Starts one and waits until it answers.
    ///
    /// # Errors
    /// It is not installed, or did not start.
    pub fn start(options: RedisOptions) -> Result<Self, ServerError> {
        let program = process::find(PROGRAM, PROGRAM, &["/usr/bin/redis-server"])?;
        let account = Account::of("redis", PROGRAM, PROGRAM)?;
        let folder = tempfile::Builder::new().prefix("kernelopt-redis-").tempdir().map_err(ServerError::io("a temporary folder"))?;
        account.own(folder.path())?;
        if let Some((certificate, key)) = &options.tls {
            for (from, name) in [(certificate, "server.pem"), (key, "server.key")] {
                let to = folder.path().join(name);
                std::fs::copy(from, &to).map_err(ServerError::io(from.display().to_string()))?;
                account.own(&to)?;
            }
        }
        let mut redis = Self { process: None, port: ports::free(), program, account, options, folder };
        let mut draws = 1;
        loop {
            match redis.launch() {
                Err(ServerError::Ended { words, .. }) if draws < DRAWS && words.contains("Address already in use") => {
                    draws += 1;
                    redis.port = ports::free();
                }
                done => return done.map(|()| redis),
            }
        }
    }

    fn launch(&mut self) -> Result<(), ServerError> {
        let config = self.folder.path().join("redis.conf");
        process::write(&config, &self.options.write(self.folder.path(), self.port))?;
        self.account.own(&config)?;
        let mut command = Command::new(&self.program);
        command.arg(&config).current_dir(self.folder.path());
        self.account.enter(&mut command);
        let mut process = Process::start("Redis", command, &self.folder.path().join("redis.out"))?;
        let own = format!("process_id:{}\r", process.pid());
        process.wait_until(START, || {
            // Cheap first; and it must be this process that answers, loaded, not another test's on the same port.
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
                && self.command(&["INFO"]).is_ok_and(|info| info.contains(&own) && info.contains("loading:0"))
        })?;
        self.process = Some(process);
        Ok(())
    }

    /// `redis://127.0.0.1:PORT`, without the password; `rediss://localhost:PORT` with TLS.
    pub fn url(&self) -> String {
        if self.options.tls.is_some() { format!("rediss://localhost:{}", self.port) } else { format!("redis://127.0.0.1:{}", self.port) }
    }

    /// Its port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Runs a command by `redis-cli` and returns what it prints.
    ///
    /// # Errors
    /// The server cannot be reached or refuses it.
    pub fn command(&self, words: &[&str]) -> Result<String, ServerError> {
        let mut command = Command::new("redis-cli");
        command
            .args(["-e", "-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(self.options.tls.iter().flat_map(|_| ["--tls", "--insecure"]));
        if let Some(password) = &self.options.password {
            command.env("REDISCLI_AUTH", password);
        }
        command.args(words);
        process::run(command)
    }

    /// Kills it, as a lost machine would.
    pub fn kill9(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill9();
        }
    }

    /// Ends it in good order. True where it went by itself.
    pub fn stop(&mut self) -> bool {
        self.process.take().is_none_or(|process| process.terminate(STOP))
    }

    /// Starts it again on the same port with what is on its disk; ends it first where it runs.
    ///
    /// # Errors
    /// It did not start.
    pub fn restart(&mut self) -> Result<(), ServerError> {
        self.stop();
        self.launch()
    }

    /// Stops its clock: connections stay and nothing answers.
    pub fn pause(&self) {
        self.process.iter().for_each(|process| process.signal(Signal::SIGSTOP));
    }

    /// Lets a paused one go on.
    pub fn resume(&self) {
        self.process.iter().for_each(|process| process.signal(Signal::SIGCONT));
    }
}
