//! The command line.

pub mod agent;
pub mod bench;
pub mod coordinator;
pub mod gateway;
pub mod remote;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use kernelopt_shared::api::ModelName;
use kernelopt_shared::language_model::NanoUsd;

/// Makes compiled PyTorch models faster, verifies every change, and keeps the compiler's code unless the whole model is
/// right and faster.
#[derive(Debug, Parser)]
#[command(name = "kernelopt", version, propagate_version = true)]
pub struct Arguments {
    /// Say more about what happens, on stderr.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what a compiled model is made of.
    Inspect(Inspect),
    /// Search faster kernels for a captured model and write a verified one.
    Tune(Tune),
    /// Check in fresh processes whether what an output folder claims is true here.
    Verify(Verify),
    /// Write report.html of an output folder again.
    Report(Report),
    /// Lead a fleet: take jobs over HTTP, and have them done by agents.
    Coordinator(coordinator::Coordinator),
    /// Serve a fleet with this host's devices until told to stop.
    Agent(agent::Agent),
    /// Meter the calls of language models: limits, budgets, a queue that is fair between jobs.
    Gateway(gateway::Gateway),
    /// Hand a captured model to a coordinator, which has it tuned by its agents.
    Submit(remote::Submit),
    /// Have the fleet do tasks that do nothing, to see that it works; needs no model and no compiler.
    Drill(remote::Drill),
    /// List a coordinator's jobs.
    Jobs(remote::Jobs),
    /// Show a job, follow it, or fetch what it found.
    Job(remote::Job),
    /// End a job; what it found until then stays in the coordinator's journal.
    Cancel(remote::OneJob),
    /// Say why a job is where it is, or why nothing happens.
    Explain(remote::OneJob),
    /// List a coordinator's agents.
    Agents(remote::Remote),
    /// Have a host's agents end what they have and leave.
    Drain(remote::OneHost),
    /// Keep a host's agents from taking tasks until they are readmitted.
    Quarantine(remote::Quarantine),
    /// Have a host's agents test themselves and take tasks again.
    Readmit(remote::OneHost),
    /// List the best kernels known for each class of devices.
    Frontier(remote::Frontier),
    /// Measure what a fleet itself costs.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Check this machine and say what is missing.
    Doctor {
        /// As JSON on stdout.
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// A bundle, or one output_code.py.
    pub input: PathBuf,
    /// As JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `tune`.
#[derive(Debug, Args)]
pub struct Tune {
    /// A bundle made by `python -m kernelopt capture`.
    pub bundle: PathBuf,
    /// Output folder.
    #[arg(short, long)]
    pub out: PathBuf,
    /// Device to tune for: `auto` (the one that the bundle was captured on), `cpu`, `cuda` or `cuda:N`.
    #[arg(long, default_value = "auto", value_parser = parse_device)]
    pub device: Device,
    /// Time to spend: `90s`, `10m`, `2h`.
    #[arg(long, default_value = "10m", value_parser = parse_duration)]
    pub budget: Duration,
    /// Candidates to judge at most.
    #[arg(long, default_value_t = 1000)]
    pub max_candidates: u64,
    /// Where candidates come from, in order: `schedule`, `llm` (a gateway), `batch` (questions and answers as files), `replay=FILE` (a
    /// .json list of candidates, or a .jsonl file of recorded answers).
    #[arg(long, value_delimiter = ',', default_value = "schedule")]
    pub proposer: Vec<String>,
    #[command(flatten)]
    pub language_model: LanguageModel,
    /// Seed of every draw.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Go on with the job in the output folder; begins one where there is none.
    #[arg(long)]
    pub resume: bool,
    /// Print result.json on stdout instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Which language model is asked, and how much.
#[derive(Debug, Args)]
pub struct LanguageModel {
    /// The language model to ask, by the name that the gateway or the provider knows it by.
    #[arg(long, value_name = "NAME")]
    pub model: Option<ModelName>,
    /// The gateway that `llm` asks, with the key of KERNELOPT_GATEWAY_TOKEN, or of the file KERNELOPT_GATEWAY_TOKEN_FILE.
    #[arg(long, value_name = "URL")]
    pub gateway: Option<String>,
    /// Tokens that it may take, prompts and answers; 500000 where a proposer asks one and nothing is said.
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<u64>,
    /// Money that it may cost, in US dollars: `5`, `0.25`; by default what its tokens cost.
    #[arg(long, value_name = "USD", value_parser = parse_dollars)]
    pub max_cost: Option<NanoUsd>,
}

/// A device to tune for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The one that the bundle was captured on.
    Auto,
    /// This host's processor.
    Cpu,
    /// The GPU of this number, among those that CUDA shows.
    Cuda(usize),
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// Output folder of `tune`.
    pub out: PathBuf,
    /// The bundle, where it is no longer where it was tuned from.
    #[arg(long)]
    pub bundle: Option<PathBuf>,
    /// Device to check on: `auto`, `cpu`, `cuda` or `cuda:N`.
    #[arg(long, default_value = "auto", value_parser = parse_device)]
    pub device: Device,
    /// Seed of the fresh draws; by default the clock's.
    #[arg(long)]
    pub seed: Option<u64>,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct Report {
    /// Output folder of `tune`.
    pub out: PathBuf,
}

fn parse_device(text: &str) -> Result<Device, String> {
    let ordinal = |n: &str| n.parse().map(Device::Cuda).map_err(|_| format!("{n:?} is no number of a GPU"));
    match text.split_once(':') {
        None if text == "auto" => Ok(Device::Auto),
        None if text == "cpu" => Ok(Device::Cpu),
        None if text == "cuda" => Ok(Device::Cuda(0)),
        Some(("cuda", n)) => ordinal(n),
        _ => Err("write auto, cpu, cuda or cuda:N".into()),
    }
}

/// Dollars with at most nine decimals, exactly.
fn parse_dollars(text: &str) -> Result<NanoUsd, String> {
    let wrong = || format!("{text:?} is no amount of dollars; write 5 or 0.25");
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 9 {
        return Err(wrong());
    }
    let nanos: u64 = format!("{part:0<9}").parse().map_err(|_| wrong())?;
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let amount = whole.checked_mul(1_000_000_000).and_then(|all| all.checked_add(nanos)).ok_or_else(wrong)?;
    if amount == 0 { Err("nothing can be asked for nothing; leave --max-cost out for no limit".into()) } else { Ok(NanoUsd(amount)) }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let count: u64 = digits.parse().map_err(|_| format!("{text:?} is no time; write 90s, 10m or 2h"))?;
    let seconds = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        unit => return Err(format!("unknown unit {unit:?}; write s, m or h")),
    };
    count.checked_mul(seconds).map(Duration::from_secs).ok_or_else(|| format!("{text} is too long"))
}

/// The same, and milliseconds: `200ms`.
fn parse_short_duration(text: &str) -> Result<Duration, String> {
    let ms = text.strip_suffix("ms").and_then(|digits| digits.parse().ok()).map(Duration::from_millis);
    ms.map_or_else(|| parse_duration(text), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn devices_have_numbers() {
        assert_eq!(parse_device("auto"), Ok(Device::Auto));
        assert_eq!(parse_device("cuda"), Ok(Device::Cuda(0)));
        assert_eq!(parse_device("cuda:3"), Ok(Device::Cuda(3)));
        assert!(parse_device("cuda:x").is_err() && parse_device("gpu").is_err() && parse_device("cpu:1").is_err());
    }

    #[test]
    fn dollars_are_exact() {
        assert_eq!(
            ["5", "0.25", "0.000000001"].map(|text| parse_dollars(text).map(|usd| usd.0)),
            [Ok(5_000_000_000), Ok(250_000_000), Ok(1)]
        );
        for bad in ["", ".", "5.", ".5", "-1", "1e3", "0", "0.0", "1.0000000001", "99999999999", "5 USD"] {
            assert!(parse_dollars(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse_short_duration("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(parse_short_duration("2s"), Ok(Duration::from_secs(2)));
        assert!(parse_short_duration("ms").is_err() && parse_duration("200ms").is_err());
        assert!(parse_duration("ten").is_err() && parse_duration("3d").is_err() && parse_duration("99999999999999999h").is_err());
    }
}
