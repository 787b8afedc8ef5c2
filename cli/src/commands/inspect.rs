//! `kernelopt inspect`: what a compiled model is made of.

use kernelopt_coordinator::inspect::Inspection;
use kernelopt_shared::exit::ExitCode;

use crate::args;
use crate::failure::Failure;

/// Runs the command.
pub fn run(options: &args::Inspect) -> crate::CommandResult {
    let inspection = Inspection::of(&options.input)?;
    if options.json {
        let text = serde_json::to_string_pretty(&inspection).map_err(|e| Failure::new(ExitCode::Failure, e, "Report this."))?;
        println!("{text}");
    } else {
        print!("{}", inspection.table());
    }
    Ok(ExitCode::Success)
}
