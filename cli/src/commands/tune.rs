//! `kernelopt tune`: coordinator, broker and agent in one process.

use std::sync::Arc;

use kernelopt_coordinator::job::{PRIORITY, Terms, WEIGHT};
use kernelopt_coordinator::llm::Batch;
use kernelopt_coordinator::search::language_of;
use kernelopt_coordinator::service::local;
use kernelopt_gpu_agent::service::{AgentService, Served, Settings, Telemetry};
use kernelopt_shared::blobs::{BlobOptions, Blobs};
use kernelopt_shared::broker::memory::MemoryBroker;
use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::exit::ExitCode;
use kernelopt_shared::result::TuneResult;
use tokio_util::sync::CancellationToken;

use super::device;
use crate::args;
use crate::failure::Failure;
use crate::interrupt;
use crate::language_model::{self, Sources};
use crate::local_fetch::LocalFetch;
use crate::progress::Progress;

/// Runs the command.
pub fn run(options: &args::Tune) -> crate::CommandResult {
    let stop = interrupt::stop_on_signal()?;
    let bundle = Bundle::open(&options.bundle)?;
    let terms = Terms {
        name: String::new(),
        class: None,
        budget_ms: options.budget.as_millis() as u64,
        max_candidates: options.max_candidates,
        seed: options.seed,
        proposers: options.proposer.clone(),
        priority: PRIORITY,
        weight: WEIGHT,
        model: options.language_model.model.as_ref().map(ToString::to_string).unwrap_or_default(),
        max_tokens: language_model::max_tokens(options),
        max_cost: options.language_model.max_cost.unwrap_or_default(),
    };
    let gateway = options.language_model.gateway.as_deref().map(language_model::gateway).transpose()?;
    let Sources { proposers, model, batch } = Sources::of(options, &terms, language_of(&bundle.manifest), gateway)?;
    let served = device::serving(&bundle.manifest, options.device)?;
    let progress = Progress::new(&terms.limits());
    let line = progress.line();
    let job = local::Options { bundle: options.bundle.clone(), out: options.out.clone(), terms, proposers, model, resume: options.resume };
    let done = super::runtime()?.block_on(tune(job, bundle, served, progress, interrupt::token(stop)));
    line.finish_and_clear();
    match done {
        Ok(result) => {
            print_result(&result, options)?;
            Ok(ExitCode::Success)
        }
        Err(failure) => Err(how_to_go_on(failure, options, batch.as_deref())),
    }
}

/// Both ends over a broker in memory, until the job is finished or either cannot go on.
async fn tune(
    job: local::Options,
    bundle: Bundle,
    served: Served,
    progress: Progress,
    stop: CancellationToken,
) -> Result<TuneResult, Failure> {
    let (broker, blobs) = (Arc::new(MemoryBroker::new()), Blobs::open(&BlobOptions::new("memory:"))?);
    let agent = AgentService { name: "local".into(), devices: vec![served], settings: Settings::local(), telemetry: Telemetry::default() };
    let leave = CancellationToken::new();
    let fetch = Arc::new(LocalFetch::new(bundle, blobs.clone()));
    let serving = agent.run(broker.clone(), fetch, leave.clone());
    let tuning = local::tune(job, broker, blobs, Box::new(progress), stop);
    tokio::pin!(serving);
    let done = tokio::select! {
        done = tuning => done.map_err(Failure::from),
        served = &mut serving => Err(served.err().map_or_else(|| Failure::new(ExitCode::Failure, "the agent left", "Report this."), Failure::from)),
    };
    leave.cancel();
    if done.is_ok() || done.as_ref().is_err_and(|failure| interrupt::is_stop(failure.code())) {
        // What it says on its way out changes nothing.
        let _ = serving.await;
    }
    done
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

fn how_to_go_on(failure: Failure, options: &args::Tune, batch: Option<&Batch>) -> Failure {
    let again = format!("kernelopt tune {} -o {} --resume", options.bundle.display(), options.out.display());
    match (failure.code(), batch.and_then(Batch::pending)) {
        (ExitCode::AwaitsAnswers, Some(pending)) => failure.with_remedy(format!(
            "Send the {} questions in {} to a batch API, put what comes back at {}, then run the same command with --resume.",
            pending.count,
            pending.requests.display(),
            pending.results.display()
        )),
        (code, _) if interrupt::is_stop(code) => failure.with_remedy(format!("To go on: {again}")),
        _ => failure,
    }
}
