//! A gateway as a process, on settings of the measurement's own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use kernelopt_shared::exit::ExitCode;

use super::load::Target;
use crate::failure::Failure;

/// What its process says once it listens.
const LISTENING: &str = "listening at http://";
/// Where its key is.
const KEY: &str = "KERNELOPT_BENCH_KEY";

/// Killed when dropped.
pub struct Gateway {
    pub target: Target,
    process: Child,
    _settings: tempfile::NamedTempFile,
}

impl Gateway {
    /// Starts it in front of this upstream, and waits until it listens.
    pub fn start(upstream: SocketAddr) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(ExitCode::Environment, format!("a gateway: {error}"), "Look at the limits of the process.")
        };
        let mut settings = tempfile::NamedTempFile::new().map_err(failed)?;
        // Limits that are never met, and are kept all the same: a gateway without them would measure nothing.
        let text = format!(
            "listen = '127.0.0.1:0'\n[[upstreams]]\nname = 'bench'\ndialect = 'openai'\nurl = 'http://{upstream}/v1'\nlimits = {{ tokens_per_minute = 9000000000 }}\n\
             [[models]]\nname = 'bench'\nat = [{{ upstream = 'bench', model = 'bench', price = {{ input = 0.000001, output = 0.000001 }} }}]\n\
             [[keys]]\nname = 'bench'\nenv = '{KEY}'\nlimits = {{ concurrent = 4096, requests_per_minute = 9000000000, budget_usd = 1000000 }}\n"
        );
        settings.write_all(text.as_bytes()).map_err(failed)?;
        let key = format!("{:032x}", u128::from(std::process::id()) << 64 | 0x6b65_726e);
        let program = std::env::current_exe().map_err(failed)?;
        let mut process = Command::new(program)
            .args(["gateway", "--config"])
            .arg(settings.path())
            .env(KEY, &key)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut lines = BufReader::new(process.stderr.take().ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?).lines();
        let address =
            lines.by_ref().map_while(Result::ok).find_map(|line| line.split_once(LISTENING).and_then(|(_, address)| address.parse().ok()));
        // What it says later is read, or it would wait for a reader.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let address: SocketAddr = match address {
            Some(address) => address,
            None => {
                let _ = process.kill();
                return Err(Failure::new(
                    ExitCode::Failure,
                    "the gateway did not start",
                    "Start `kernelopt gateway` by hand and see what it says.",
                ));
            }
        };
        Ok(Self { target: Target::at(address, &key), process, _settings: settings })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
