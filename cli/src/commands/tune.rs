//! `kernelopt tune`: the embedded composition of coordinator and agent.

use std::path::Path;

use kernelopt_coordinator::schedule::ScheduleProposer;
use kernelopt_coordinator::search::plan::Limits;
use kernelopt_coordinator::search::proposer::Proposer;
use kernelopt_coordinator::search::replay::Replay;
use kernelopt_coordinator::tune::{Options, Tune};
use kernelopt_shared::bundle::{Bundle, Manifest};
use kernelopt_shared::exit::ExitCode;
use kernelopt_shared::result::TuneResult;
use kernelopt_shared::target::Language;

use super::device::agent_for;
use crate::args;
use crate::failure::Failure;
use crate::interrupt;
use crate::progress::Progress;

/// Runs the command.
pub fn run(options: &args::Tune) -> crate::CommandResult {
    let stop = interrupt::stop_on_signal()?;
    let manifest = Bundle::open(&options.bundle)?.manifest;
    let mut agent = agent_for(&manifest, options.device, &stop)?;
    let proposers = options.proposer.iter().map(|name| proposer(name, language_of(&manifest))).collect::<Result<Vec<_>, _>>()?;
    let limits = Limits { budget: options.budget, max_candidates: options.max_candidates };
    let mut progress = Progress::new(&limits);
    let job = Options { bundle: options.bundle.clone(), out: options.out.clone(), limits, seed: options.seed, resume: options.resume };
    let done = Tune::open(&job, agent.as_mut(), proposers, &mut progress, stop).and_then(Tune::run);
    progress.end();
    match done {
        Ok(result) => {
            print_result(&result, options)?;
            Ok(ExitCode::Success)
        }
        Err(error) => Err(how_to_go_on(error.into(), options)),
    }
}

/// Language of the kernels that the compiler generates for a device.
fn language_of(manifest: &Manifest) -> Language {
    if manifest.device.kind == "cuda" { Language::Triton } else { Language::Cpp }
}

fn proposer(name: &str, language: Language) -> Result<Box<dyn Proposer>, Failure> {
    match name.split_once('=') {
        None if name == "schedule" => Ok(Box::new(ScheduleProposer::new())),
        Some(("replay", file)) => Ok(Box::new(Replay::read(Path::new(file), language)?)),
        _ => Err(Failure::new(ExitCode::Usage, format!("unknown proposer {name:?}"), "There are `schedule` and `replay=FILE`.")),
    }
}

fn print_result(result: &TuneResult, options: &args::Tune) -> Result<(), Failure> {
    if options.json {
        let text = serde_json::to_string_pretty(result).map_err(|e| Failure::new(ExitCode::Failure, e, "Report this."))?;
        println!("{text}");
    } else {
        print!("{}", kernelopt_coordinator::tune::table(result));
        eprintln!("report: {}", options.out.join("report.html").display());
        eprintln!("model:  {}", options.out.join("optimized").display());
    }
    Ok(())
}

fn how_to_go_on(failure: Failure, options: &args::Tune) -> Failure {
    if !interrupt::is_stop(failure.code()) {
        return failure;
    }
    failure.with_remedy(format!("To go on: kernelopt tune {} -o {} --resume", options.bundle.display(), options.out.display()))
}
