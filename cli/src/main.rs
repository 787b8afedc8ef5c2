//! `kernelopt`: reads arguments, composes the parts, prints. Data goes to stdout, all else to stderr.

mod args;
mod client;
mod commands;
mod config_file;
mod doctor;
mod failure;
mod interrupt;
mod language_model;
mod local_fetch;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};
use crate::commands::remote;
use crate::failure::Failure;

/// Word that makes this program a runner's process: for its own use, and so not on the command line that people see.
const RUNNER: &str = "runner";

fn main() -> ExitCode {
    // Before anything starts a thread: the runner forks.
    if std::env::args_os().nth(1).is_some_and(|word| word == RUNNER) {
        return kernelopt_gpu_agent::cpu::child::child_main(std::env::args_os().skip(2));
    }
    let arguments = Arguments::parse();
    start_logging(arguments.verbose, matches!(arguments.command, Command::Agent(_) | Command::Gateway(_)));
    let done = match arguments.command {
        Command::Inspect(options) => commands::inspect::run(&options),
        Command::Tune(options) => commands::tune::run(&options),
        Command::Verify(options) => commands::verify::run(&options),
        Command::Report(options) => commands::report::run(&options),
        Command::Coordinator(options) => commands::coordinator::run(&options),
        Command::Agent(options) => commands::agent::run(&options),
        Command::Gateway(options) => commands::gateway::run(&options),
        Command::Submit(options) => remote::submit(&options),
        Command::Drill(options) => remote::drill(&options),
        Command::Jobs(options) => remote::jobs(&options),
        Command::Job(options) => remote::job(&options),
        Command::Cancel(options) => remote::cancel(&options),
        Command::Explain(options) => remote::explain(&options),
        Command::Agents(options) => remote::agents(&options),
        Command::Drain(options) => remote::order(&options, "drain", None),
        Command::Quarantine(options) => remote::order(&options.host, "quarantine", Some(options.reason)),
        Command::Readmit(options) => remote::order(&options, "readmit", None),
        Command::Frontier(options) => remote::frontier(&options),
        Command::Bench(options) => commands::bench::run(&options),
        Command::Doctor { json } => commands::doctor(json),
    };
    match done {
        Ok(code) => ExitCode::from(code as u8),
        Err(failure) => failure.tell(),
    }
}

/// Logs to stderr, a service more than a command; `RUST_LOG` overrides.
fn start_logging(verbose: bool, service: bool) {
    let level = match (verbose, service) {
        (true, _) => {
            "warn,kernelopt=debug,kernelopt_coordinator=debug,kernelopt_gpu_agent=debug,kernelopt_llm_gateway=debug,kernelopt_shared=debug"
        }
        (false, true) => "info",
        (false, false) => "warn",
    };
    let level = format!("{level},{}", kernelopt_shared::broker::rabbit::QUIET);
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| level.into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// How every command ends: with an exit code, or with an error that says what to do.
type CommandResult = Result<kernelopt_shared::exit::ExitCode, Failure>;
