//! `kernelopt bench`: what a fleet and a gateway themselves cost.

mod crew;
mod figures;
mod gateway;
mod host;
mod queue;
mod setup;
mod stage;
mod watch;

use crate::args::bench::Bench;

/// Runs the command.
pub fn run(options: &Bench) -> crate::CommandResult {
    match options {
        Bench::Queue(options) => super::runtime()?.block_on(queue::run(options)),
        Bench::Gateway(options) => super::runtime()?.block_on(gateway::run(options)),
        Bench::Hand(options) => super::runtime()?.block_on(crew::serve(options)),
    }
}
