//! Commands that ask a coordinator over HTTP. Data goes to stdout, all else to stderr.

mod drill;
mod follow;
mod show;
mod submit;

use std::path::Path;

use kernelopt_coordinator::tune::table;
use kernelopt_shared::api::{JobView, Phase, QuarantineOrder, Reason};
use kernelopt_shared::exit::ExitCode;
use kernelopt_shared::message::JobId;
use kernelopt_shared::result::TuneResult;
use kernelopt_shared::secret;
use serde::Serialize;

use crate::CommandResult;
use crate::args::remote as args;
use crate::client::{Client, ClientError};
use crate::failure::Failure;

pub use drill::drill;
pub use submit::submit;

/// Environment variable with a token; with `_FILE` behind it, that of a file. There is no option for it: what stands on a command line is seen by everybody on the host.
const TOKEN: &str = "KERNELOPT_TOKEN";

fn client(options: &args::Remote) -> Result<Client, Failure> {
    let token = match &options.token_file {
        Some(path) => secret::from_file("--token-file", path),
        None => secret::from_env(TOKEN),
    };
    let token = token.map_err(|e| Failure::new(ExitCode::BadInput, e, "A token is one line of text."))?;
    let client = Client::new(&options.server, token)?;
    if client.shows_its_token() {
        eprintln!("note: the token goes to {} in clear text; use https where others can listen", client.server());
    }
    Ok(client)
}

/// Runs `work` to its end, or until Ctrl-C: temporary files go either way.
fn wait<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(ExitCode::Failure, format!("the runtime: {e}"), "Report this."))?;
    runtime.block_on(async {
        tokio::select! {
            biased;
            // First, since it may have its own words about Ctrl-C.
            done = work => done,
            _ = tokio::signal::ctrl_c() => Err(Failure::new(ExitCode::Interrupted, "stopped", "Give the same command again.")),
        }
    })
}

/// Asks once.
fn ask<T>(options: &args::Remote, question: impl AsyncFnOnce(&Client) -> Result<T, ClientError>) -> Result<T, Failure> {
    let client = client(options)?;
    wait(async { Ok(question(&client).await?) })
}

fn print(options: &args::Remote, answer: &impl Serialize, text: impl FnOnce() -> String) -> CommandResult {
    if options.json {
        let json = serde_json::to_string_pretty(answer).map_err(|e| Failure::new(ExitCode::Failure, e, "Report this."))?;
        println!("{json}");
    } else {
        print!("{}", text());
    }
    Ok(ExitCode::Success)
}

/// `kernelopt jobs`.
pub fn jobs(options: &args::Jobs) -> CommandResult {
    let page = ask(&options.remote, async |client| client.jobs(options.phase.as_deref(), options.limit.get()).await)?;
    print(&options.remote, &page, || show::jobs(&page, show::now_ms()))
}

/// `kernelopt job`.
pub fn job(options: &args::Job) -> CommandResult {
    let client = client(&options.remote)?;
    wait(async {
        if options.follow {
            follow::until_over(&client, &options.id).await?;
        }
        end(&client, &options.id, options.out.as_deref(), options.follow, &options.remote).await
    })
}

/// Shows a job, fetches its outputs where that is wished, and says by the exit code how it ended where it was waited for.
async fn end(client: &Client, id: &JobId, out: Option<&Path>, waited: bool, options: &args::Remote) -> CommandResult {
    let job = client.job(id).await?;
    let fetched = match out {
        // What became of a job that was waited for comes first.
        Some(out) if job.phase == Phase::Finished || !waited => Some(fetch(client, id, out).await?),
        _ => None,
    };
    match (&fetched, options.json) {
        (Some(result), false) => print!("{}", table(result)),
        _ => {
            print(options, &job, || show::job(&job))?;
        }
    }
    if let (Some(out), Some(_)) = (out, &fetched) {
        eprintln!("outputs: {}", out.display());
    }
    if waited { how_it_ended(&job) } else { Ok(ExitCode::Success) }
}

async fn fetch(client: &Client, id: &JobId, out: &Path) -> Result<TuneResult, Failure> {
    client.fetch_outputs(id, out).await?;
    let path = out.join("result.json");
    let unusable =
        |e: &dyn std::fmt::Display| Failure::new(ExitCode::BadInput, format!("{}: {e}", path.display()), "Look at the other files.");
    let text = std::fs::read(&path).map_err(|e| unusable(&e))?;
    serde_json::from_slice(&text).map_err(|e| unusable(&e))
}

fn how_it_ended(job: &JobView) -> CommandResult {
    let reason = job.reason.as_deref().unwrap_or("no reason was given");
    match job.phase {
        Phase::Failed => Err(Failure::new(
            ExitCode::JobFailed,
            format!("job {} failed: {}", job.id, show::plain(reason)),
            &format!("kernelopt explain {}", job.id),
        )),
        Phase::Cancelled => Err(Failure::new(ExitCode::JobCancelled, format!("job {} was cancelled", job.id), "Submit it again.")),
        _ => Ok(ExitCode::Success),
    }
}

/// `kernelopt cancel`.
pub fn cancel(options: &args::OneJob) -> CommandResult {
    let job = ask(&options.remote, async |client| client.cancel(&options.id).await)?;
    print(&options.remote, &job, || format!("job {} is {}\n", job.id, job.phase.words()))
}

/// `kernelopt explain`.
pub fn explain(options: &args::OneJob) -> CommandResult {
    let explanation = ask(&options.remote, async |client| client.explain(&options.id).await)?;
    print(&options.remote, &explanation, || show::explanation(&explanation))
}

/// `kernelopt agents`.
pub fn agents(options: &args::Remote) -> CommandResult {
    let agents = ask(options, async |client| client.agents().await)?;
    print(options, &agents, || show::agents(&agents))
}

/// `kernelopt drain`, `quarantine` and `readmit`.
pub fn order(options: &args::OneHost, order: &str, reason: Option<Reason>) -> CommandResult {
    let reason = reason.map(|reason| QuarantineOrder { reason });
    let agents = ask(&options.remote, async |client| client.order(&options.host, order, reason.as_ref()).await)?;
    print(&options.remote, &agents, || show::agents(&agents))
}

/// `kernelopt frontier`.
pub fn frontier(options: &args::Frontier) -> CommandResult {
    let class = options.class.as_ref().map(|class| class.as_str());
    let page = ask(&options.remote, async |client| client.frontier(class, options.limit.get()).await)?;
    print(&options.remote, &page, || show::frontier(&page))
}
