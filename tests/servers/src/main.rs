//! Private servers for a script.
//!
//! `kernelopt-test-servers` starts RabbitMQ and Redis, prints the settings by which the program finds them, and ends when its input does.
//! `kernelopt-test-servers COMMAND [WORD...]` runs a command with these settings and ends with it, with its exit code.

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode};

use kernelopt_test_servers::{RabbitMq, Redis, RedisOptions};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (rabbit, redis) = (RabbitMq::start()?, Redis::start(RedisOptions::default())?);
    let settings = [("KERNELOPT_BROKER_URL", rabbit.url()), ("KERNELOPT_REDIS_URL", redis.url())];
    match words.split_first() {
        None => {
            settings.iter().for_each(|(name, value)| println!("{name}={value}"));
            // Whatever ends it, it ends.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            Ok(ExitCode::SUCCESS)
        }
        Some((program, words)) => {
            let done = Command::new(program).args(words).envs(settings).status()?;
            // One that a signal ended has no code.
            Ok(done.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
        }
    }
}
