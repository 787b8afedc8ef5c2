//! Arguments of `agent`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use kernelopt_gpu_agent::service::discover::Choice;
use kernelopt_shared::secret::SecretString;

/// Arguments of `agent`. What is given here goes before the environment, and that before the file.
#[derive(Debug, Args)]
pub struct Agent {
    /// The broker, `amqp://USER:PASSWORD@HOST:PORT/VHOST` or `amqps://...`. Better in KERNELOPT_BROKER_URL, or in a file that
    /// KERNELOPT_BROKER_URL_FILE names: a command line is seen by everybody on the host.
    #[arg(long, value_parser = secret)]
    pub broker: Option<SecretString>,
    /// Where bundles are: a folder, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, or the coordinator's `http://HOST:PORT/v1/blobs`, whose
    /// token KERNELOPT_TOKEN or KERNELOPT_TOKEN_FILE holds.
    #[arg(long)]
    pub blobs: Option<String>,
    /// Name of this process in the fleet, unique; the host's name by default.
    #[arg(long)]
    pub name: Option<String>,
    /// Devices that serve: `auto` (all GPUs, the processor where there is none), `cpu`, `cuda` (all GPUs) or `cuda:N`.
    #[arg(long, value_parser = parse_choice)]
    pub device: Option<Choice>,
    /// Serve also on GPUs that others use, or that are a part of one (MIG) or shared through a server (MPS). Figures will be worth little.
    #[arg(long)]
    pub permit_shared_gpu: bool,
    /// Serve /metrics, /healthz and /readyz here, `0.0.0.0:7118`.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// A file with the same settings, see deploy/config/agent.toml.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

fn secret(text: &str) -> Result<SecretString, Infallible> {
    Ok(text.into())
}

/// Reads `auto`, `cpu`, `cuda` or `cuda:N`.
pub fn parse_choice(text: &str) -> Result<Choice, String> {
    match text.split_once(':') {
        None if text == "auto" => Ok(Choice::Auto),
        None if text == "cpu" => Ok(Choice::Cpu),
        None if text == "cuda" => Ok(Choice::Gpus),
        Some(("cuda", n)) => n.parse().map(Choice::Gpu).map_err(|_| format!("{n:?} is no number of a GPU")),
        _ => Err("write auto, cpu, cuda or cuda:N".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_chosen_by_name() {
        assert_eq!(parse_choice("auto"), Ok(Choice::Auto));
        assert_eq!(parse_choice("cuda"), Ok(Choice::Gpus));
        assert_eq!(parse_choice("cuda:3"), Ok(Choice::Gpu(3)));
        assert!(parse_choice("cuda:x").is_err() && parse_choice("gpu").is_err() && parse_choice("cpu:1").is_err());
    }
}
