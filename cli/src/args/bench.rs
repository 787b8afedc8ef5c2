//! Arguments of `bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Tasks that do nothing, through broker, journal and frontier: how many a second, how long until one begins, what the coordinator costs.
    Queue(Queue),
    /// What `kernelopt gateway` adds to a call, against its upstream asked directly in the same run.
    Gateway(Gateway),
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

/// Arguments of `bench gateway`. Upstream and callers are in this process, the gateway is one of its own; all share this host's processors.
#[derive(Debug, Args)]
pub struct Gateway {
    /// Requests a second, of each, while added time is measured.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rate: u32,
    /// Seconds of each part.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Streams at a time.
    #[arg(long, default_value_t = 512, value_parser = parse_streams)]
    pub streams: usize,
    /// Another gateway to measure in the same run, at http://HOST:PORT; its model `bench` is at the upstream.
    #[arg(long, value_name = "URL")]
    pub against: Option<String>,
    /// The other gateway's key.
    #[arg(long, value_name = "KEY", env = "KERNELOPT_BENCH_AGAINST_KEY", hide_env_values = true)]
    pub against_key: Option<String>,
    /// Port of the upstream, for the other gateway to know; 0 chooses one.
    #[arg(long, default_value_t = 0)]
    pub upstream_port: u16,
    /// As JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

fn parse_streams(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=4096).contains(count));
    count.ok_or_else(|| "write a number from 1 to 4096".into())
}
