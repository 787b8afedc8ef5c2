//! `kernelopt bench gateway`: what the gateway adds to a call, against the same upstream asked directly in the same run.
//!
//! The upstream is in this process and answers at once, so that what is measured is the gateway and not a model. The gateway is a process of
//! its own, as in service. Each quantile is taken of both and the difference is what was added.

mod figures;
mod load;
mod process;
mod upstream;

use std::time::Duration;

use kernelopt_shared::exit::ExitCode;

use crate::args::bench::Gateway as Options;
use crate::failure::Failure;
use figures::{Figures, Host, Measured, Reference};
use load::Target;
use process::Gateway;
use upstream::Upstream;

/// Requests before anything is measured: connections are made, code is warm.
const WARM_UP: Duration = Duration::from_millis(500);

/// Runs the command.
pub async fn run(options: &Options) -> crate::CommandResult {
    let failed = |error: std::io::Error| {
        Failure::new(ExitCode::Environment, format!("measuring: {error}"), "Look at the limits of the process (ulimit -n).")
    };
    crate::commands::permit_connections();
    let host = Host::now();
    let upstream = Upstream::start(options.upstream_port).map_err(failed)?;
    let direct = Target::upstream(upstream.address);
    let gateway = Gateway::start(upstream.address)?;
    let rival = match &options.against {
        Some(url) => Some(Target::parse(url, options.against_key.as_deref()).ok_or_else(|| {
            Failure::new(ExitCode::Usage, format!("{url:?} is no http://HOST:PORT"), "Give an address without TLS, on this host.")
        })?),
        None => None,
    };
    let reference = Reference {
        throughput: load::throughput(&direct, WARM_UP, options.seconds).await.map_err(failed)?,
        first_events: load::streams(&direct, options.streams).await.map_err(failed)?,
    };
    let ours = measure(&direct, &gateway.target, options, &reference).await.map_err(failed)?;
    let theirs = match &rival {
        Some(rival) => Some(measure(&direct, rival, options, &reference).await.map_err(failed)?),
        None => None,
    };
    let figures = Figures::of(ours, theirs, &reference, options, host);
    figures.print(options.json)?;
    Ok(ExitCode::Success)
}

async fn measure(direct: &Target, through: &Target, options: &Options, reference: &Reference) -> std::io::Result<Measured> {
    let latency = load::side_by_side([direct, through], WARM_UP, options.rate, options.seconds).await?;
    let throughput = load::throughput(through, WARM_UP, options.seconds).await?;
    let streams = load::streams(through, options.streams).await?;
    Ok(Measured::of(&latency, throughput, &streams, reference))
}
