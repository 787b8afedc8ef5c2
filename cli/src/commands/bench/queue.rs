//! `kernelopt bench queue`: what the queue costs.

use std::time::Duration;

use kernelopt_shared::exit::ExitCode;
use kernelopt_shared::task::AgentError;

use super::figures::{Figures, Host, OneSecond, Versions};
use super::host;
use super::setup::Setup;
use super::stage::Stage;
use crate::args::bench::Queue;
use crate::failure::Failure;
use crate::interrupt;

/// Tasks before those that count, for each agent: connections, channels and queues are there then.
const WARM_UP: u64 = 50;
/// Length of the long tasks.
const SECOND: Duration = Duration::from_secs(1);

/// Runs the command.
pub async fn run(options: &Queue) -> crate::CommandResult {
    host::on_disk(&options.data)?;
    let stop = interrupt::shutdown("stopping, and clearing away; once more ends at once")?;
    let stage = if options.embedded { Stage::memory() } else { Stage::servers().await? };
    let measured = tokio::select! {
        measured = measure(options, &stage) => measured,
        () = stop.cancelled() => Err(AgentError::Stopped.into()),
    };
    stage.clear().await;
    measured?.print(options.json)?;
    Ok(ExitCode::Success)
}

async fn measure(options: &Queue, stage: &Stage) -> Result<Figures, Failure> {
    let unwritable = |e| Failure::new(ExitCode::Output, format!("{}: {e}", options.data.display()), "Name another folder with --data.");
    let folder = tempfile::Builder::new().prefix("kernelopt-bench-").tempdir_in(&options.data).map_err(unwritable)?;
    let host = Host {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        load_before: host::load(),
        flush_ms: host::flush_time(folder.path()).map_err(unwritable)?.as_secs_f64() * 1e3,
    };
    let (agents, tasks) = (u64::from(options.agents), options.tasks);
    let long = agents * options.seconds;
    let mut setup = Setup::open(stage, folder.path(), options.agents, tasks.max(long).max(agents * WARM_UP)).await?;
    setup.drill("warm-up", agents * WARM_UP, Duration::ZERO).await?;
    let nothing = setup.drill("nothing", tasks, Duration::ZERO).await?;
    let seconds = if long > 0 { Some(setup.drill("seconds", long, SECOND).await?) } else { None };
    setup.close().await;
    let apart = matches!(stage, Stage::Servers { .. });
    let seconds = seconds.map(|course| OneSecond::of(&course, long, SECOND * u32::try_from(options.seconds).unwrap_or(u32::MAX), apart));
    Ok(Figures::of(&nothing, options.agents, seconds, host, Versions::of(stage), apart))
}
