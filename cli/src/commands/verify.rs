//! `kernelopt verify`: is what an output folder claims still true here? Fresh processes, fresh seeds.

use std::time::{SystemTime, UNIX_EPOCH};

use kernelopt_coordinator::tune::claim::Claim;
use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::exit::ExitCode;

use super::device::agent_for;
use crate::{args, interrupt};

/// Runs the command.
pub fn run(options: &args::Verify) -> crate::CommandResult {
    let stop = interrupt::stop_on_signal()?;
    let claim = Claim::read(&options.out, options.bundle.as_deref())?;
    let mut agent = agent_for(&Bundle::open(claim.bundle())?.manifest, options.device, &stop)?;
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |t| t.as_nanos() as u64);
    let seed = options.seed.unwrap_or_else(clock);
    let findings = claim.verify(agent.as_mut(), seed, &mut |line| eprintln!("{line}"))?;
    for finding in &findings {
        println!("{} {}", if finding.holds { "holds:" } else { "FAILS:" }, finding.text);
    }
    Ok(if findings.iter().all(|f| f.holds) { ExitCode::Success } else { ExitCode::ClaimFailed })
}
