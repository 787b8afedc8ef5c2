//! `kernelopt gateway`.

use std::sync::Arc;
use std::time::Duration;

use kernelopt_llm_gateway::gateway::Gateway;
use kernelopt_llm_gateway::http::Server;
use kernelopt_llm_gateway::queue::Admission;
use kernelopt_llm_gateway::settings::{Live, Settings};
use kernelopt_shared::exit::ExitCode;
use kernelopt_shared::telemetry::Registry;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::gateway::Gateway as Options;
use crate::failure::Failure;
use crate::interrupt;

/// Runs the command.
pub fn run(options: &Options) -> crate::CommandResult {
    if options.check {
        let settings = Settings::read(&options.config)?;
        let (models, keys) = (settings.models.len(), settings.keys.len());
        println!("{}: {models} models, {} ways to them, {keys} keys", options.config.display(), settings.deployments().count());
        return Ok(ExitCode::Success);
    }
    let live = Live::open(&options.config)?;
    super::permit_connections();
    super::runtime()?.block_on(serve(live))
}

/// Longest that the end waits for the shared limits to hear what was settled.
const LAST_WORDS: Duration = Duration::from_secs(5);

async fn serve(live: Live) -> crate::CommandResult {
    let stop = interrupt::shutdown("stopping: requests that are under way may end; once more ends at once")?;
    let registry = Registry::new();
    let admission = Admission::open(live.now())?;
    let gateway = Gateway::new(live, admission.clone(), &registry)?;
    reload_on_hangup(gateway.clone())?;
    let server = Server::bind(gateway, registry).await?;
    eprintln!("listening at http://{}", server.address());
    server.run(stop).await;
    if !admission.flush(LAST_WORDS).await {
        tracing::warn!("not everything that was settled is in the shared limits; what was reserved counts as spent");
    }
    Ok(ExitCode::Success)
}

/// SIGHUP reads the settings again, as is the custom of services.
fn reload_on_hangup(gateway: Arc<Gateway>) -> Result<(), Failure> {
    let error = |error| Failure::new(ExitCode::Environment, format!("watching for signals: {error}"), "Look at the limits of the process.");
    let mut hangup = signal(SignalKind::hangup()).map_err(error)?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            let gateway = gateway.clone();
            // What is wrong with them is in the log, and the old ones stay in force.
            let _ = tokio::task::spawn_blocking(move || gateway.reload()).await;
        }
    });
    Ok(())
}
