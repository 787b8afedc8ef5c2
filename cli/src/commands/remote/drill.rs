//! `kernelopt drill`: a job whose tasks do nothing.

use std::time::Duration;

use kernelopt_shared::api::{BusyMs, DrillLimitMs, DrillSpec};
use kernelopt_shared::exit::ExitCode;

use super::{client, end, follow, print, wait};
use crate::CommandResult;
use crate::args::remote as args;
use crate::failure::Failure;

/// Runs the command.
pub fn drill(options: &args::Drill) -> CommandResult {
    let client = client(&options.remote)?;
    let spec = spec(options)?;
    wait(async {
        let job = client.drill(&spec).await?;
        eprintln!("job {} is {}", job.id, job.phase.words());
        if !options.wait {
            return print(&options.remote, &job, || format!("{}\n", job.id));
        }
        follow::until_over(&client, &job.id).await?;
        end(&client, &job.id, None, true, &options.remote).await
    })
}

fn spec(options: &args::Drill) -> Result<DrillSpec, Failure> {
    let usage = |e: kernelopt_shared::api::OutOfBounds| Failure::new(ExitCode::Usage, e, "kernelopt help drill");
    let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    Ok(DrillSpec {
        name: options.name.clone(),
        tasks: options.tasks,
        busy_ms: BusyMs::new(ms(options.busy)).map_err(usage)?,
        limit_ms: options.limit.map(ms).map(DrillLimitMs::new).transpose().map_err(usage)?,
        class: options.class.clone(),
        priority: options.priority,
        weight: options.weight,
    })
}
