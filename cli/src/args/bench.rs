//! Arguments of `bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Tasks that do nothing, through broker, journal and frontier: how many a second, how long until one begins, what the coordinator costs.
    Queue(Queue),
    /// An agent of `bench queue`, which starts it: it leaves when its stdin ends.
    #[command(hide = true)]
    Hand(Hand),
}

/// Arguments of `bench queue`. It sets up a coordinator and agents of its own on the broker that KERNELOPT_BROKER_URL names and the Redis
/// that KERNELOPT_REDIS_URL names, under names of their own, and takes everything away again; a fleet on the same servers only feels the load.
#[derive(Debug, Args)]
pub struct Queue {
    /// Agents, each a process.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub agents: u16,
    /// Tasks that do nothing.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub tasks: u64,
    /// Tasks of one second for each agent; 0 leaves that part out.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub seconds: u64,
    /// Folder in which the journal is made and removed; it must be on a disk.
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    pub data: PathBuf,
    /// All in one process, over a broker and a frontier in memory, as in `tune`; the journal is on the disk all the same.
    #[arg(long)]
    pub embedded: bool,
    /// As JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench hand`.
#[derive(Debug, Args)]
pub struct Hand {
    /// Its name.
    #[arg(long)]
    pub name: String,
    /// The names' prefix on the broker.
    #[arg(long)]
    pub prefix: String,
}
