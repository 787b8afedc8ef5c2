//! Arguments of `gateway`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `gateway`.
#[derive(Debug, Args)]
pub struct Gateway {
    /// A file of settings, see deploy/config/gateway.toml and docs/gateway.md. SIGHUP has it read again.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Only say whether the settings, and the secrets that they name, can be used.
    #[arg(long)]
    pub check: bool,
}
