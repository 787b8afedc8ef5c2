//! Arguments of `coordinator`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// Arguments of `coordinator`. What is given here goes before the file. Secrets come from the environment: KERNELOPT_BROKER_URL and
/// KERNELOPT_REDIS_URL, or from files that the same names with `_FILE` hold.
#[derive(Debug, Args)]
pub struct Coordinator {
    /// A file of settings, see deploy/config/coordinator.toml.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the HTTP API, /metrics, /healthz and /readyz are.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Folder of the journal, and of blobs unless the file says otherwise.
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// File of tokens and roles; without one only this host is served.
    #[arg(long, value_name = "FILE")]
    pub tokens_file: Option<PathBuf>,
}
