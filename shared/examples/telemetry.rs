//! Serves the telemetry of a coordinator, an agent and, where there is a third address, a gateway in which everything happens once a second:
//! what dashboards and alerts are tried on where there is no fleet. Prints the addresses; port 0 is any that is free.
//!
//! `cargo run -p kernelopt-shared --example telemetry -- 127.0.0.1:7117 127.0.0.1:7118 127.0.0.1:7120`

#[path = "../tests/telemetry/drive.rs"]
mod drive;

use std::time::Duration;

use kernelopt_shared::telemetry::health::Health;
use kernelopt_shared::telemetry::server::{Telemetry, serve};
use kernelopt_shared::telemetry::{ProcessMetrics, Registry};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use drive::{Agent, Coordinator, Gateway};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut addresses = std::env::args().skip(1);
    let (Some(coordinator), Some(agent)) = (addresses.next(), addresses.next()) else {
        return Err("give two addresses: the coordinator's and the agent's".into());
    };
    let (registry, health) = start(&coordinator, "coordinator").await?;
    let (agents, agents_health) = start(&agent, "agent").await?;
    let (one, other) = (Coordinator::new(&registry)?, Agent::new(&agents)?);
    let third = match addresses.next() {
        Some(address) => Some(start(&address, "gateway").await?),
        None => None,
    };
    let gateway = third.as_ref().map(|(registry, _)| Gateway::new(registry)).transpose()?;
    for round in 1.. {
        one.drive(round);
        other.drive(round);
        gateway.iter().for_each(|gateway| gateway.drive(round));
        let healths = [Some(&health), Some(&agents_health), third.as_ref().map(|(_, health)| health)];
        healths.into_iter().flatten().for_each(Health::turned);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

async fn start(address: &str, process: &'static str) -> Result<(Registry, Health), Box<dyn std::error::Error>> {
    let registry = Registry::new();
    let health = Health::new(Duration::from_secs(30), ["broker"]);
    health.met("broker");
    let telemetry = Telemetry { registry: registry.clone(), process: ProcessMetrics::new(&registry, process)?, health: health.clone() };
    let listener = TcpListener::bind(address).await?;
    println!("{}", listener.local_addr()?);
    tokio::spawn(serve(listener, telemetry, CancellationToken::new()));
    Ok((registry, health))
}
