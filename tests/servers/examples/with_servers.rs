//! Runs a command with private servers: `with_servers COMMAND [WORD...]` sets `KERNELOPT_BROKER_URL` and `KERNELOPT_REDIS_URL` for it, and ends
//! the servers with it. Its exit code is the command's.

use std::process::{Command, ExitCode};

use kernelopt_test_servers::{RabbitMq, Redis, RedisOptions};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("usage: with_servers COMMAND [WORD...]");
        return ExitCode::from(2);
    };
    match run(Command::new(program).args(words)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(4)
        }
    }
}

fn run(command: &mut Command) -> Result<u8, Box<dyn std::error::Error>> {
    let (rabbit, redis) = (RabbitMq::start()?, Redis::start(RedisOptions::default())?);
    let done = command.env("KERNELOPT_BROKER_URL", rabbit.url()).env("KERNELOPT_REDIS_URL", redis.url()).status()?;
    // One that a signal ended has no code.
    Ok(done.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
