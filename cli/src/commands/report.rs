//! `kernelopt report`: the page again, from the journal and the result.

use kernelopt_coordinator::tune::rewrite_report;
use kernelopt_shared::exit::ExitCode;

use crate::args;

/// Runs the command.
pub fn run(options: &args::Report) -> crate::CommandResult {
    let path = rewrite_report(&options.out)?;
    println!("{}", path.display());
    Ok(ExitCode::Success)
}
