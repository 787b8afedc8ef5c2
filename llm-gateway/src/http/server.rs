//! A gateway that listens.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::http_server::{RequestIds, Terms, serve};
use kernelopt_shared::telemetry::health::Health;
use kernelopt_shared::telemetry::server::Telemetry;
use kernelopt_shared::telemetry::{HttpMetrics, ProcessMetrics, Registry, TelemetryError};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{House, router};
use crate::batch::Batches;
use crate::gateway::Gateway;

/// Open connections; further ones wait to be accepted.
const CONNECTIONS: usize = 16_384;
/// Time for the head of a request to come.
const HEAD_WITHIN: Duration = Duration::from_secs(15);
/// Longest time in which a caller takes nothing of what it is given.
const SILENCE: Duration = Duration::from_secs(60);

/// A loop that has not turned for so long is stuck.
const STUCK: Duration = Duration::from_secs(30);
/// Time between two turns.
const TURN: Duration = Duration::from_secs(1);
/// The condition of being ready: no caller should come to one that ends.
const SERVING: &str = "serving";

/// Why a gateway does not listen.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum ServerError {
    #[error("listening on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("{}: {source}", folder.display())]
    Data { folder: PathBuf, source: io::Error },
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
}

impl UserError for ServerError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Listen { .. } => ExitCode::Environment,
            Self::Data { .. } => ExitCode::Output,
            Self::Telemetry(_) => ExitCode::Failure,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("Another process listens there: stop it, or choose another port.".into())
            }
            Self::Listen { .. } => Some("Choose an address of this host.".into()),
            Self::Data { .. } => Some("Check that the folder can be written.".into()),
            Self::Telemetry(_) => None,
        }
    }
}

/// A gateway that listens and does not serve yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    house: Arc<House>,
    telemetry: Telemetry,
    drain: Duration,
}

impl Server {
    /// Listens where the settings say.
    ///
    /// # Errors
    /// The address cannot be had, or the folder of batches cannot be used.
    pub async fn bind(gateway: Arc<Gateway>, registry: Registry) -> Result<Self, ServerError> {
        let settings = gateway.settings();
        let address = settings.listen;
        let error = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(error)?;
        let address = listener.local_addr().map_err(error)?;
        let metrics = HttpMetrics::new(&registry)?;
        let process = ProcessMetrics::new(&registry, "gateway")?;
        let (stop, mut batches) = (CancellationToken::new(), None);
        if let Some(folder) = settings.data.clone() {
            let opened = Batches::open(gateway.clone(), &folder, stop.clone());
            batches = Some(opened.map_err(|source| ServerError::Data { folder, source })?);
        }
        let house = House { gateway, request_ids: RequestIds::default(), metrics, batches, stop };
        let telemetry = Telemetry { registry, process, health: Health::new(STUCK, [SERVING]) };
        Ok(Self { listener, address, house: Arc::new(house), telemetry, drain: settings.http.drain })
    }

    /// Where it listens, the port chosen where none was asked for.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`; then nothing more is accepted, and requests that are under way may end for as long as the settings say.
    pub async fn run(self, stop: CancellationToken) {
        let Self { listener, house, telemetry, drain, .. } = self;
        let (batches, gateway) = (house.batches.clone(), house.gateway.clone());
        let terms = Terms { connections: CONNECTIONS, head_within: HEAD_WITHIN, silence: SILENCE, drain_within: drain };
        let (ending, health) = (house.stop.clone(), telemetry.health.clone());
        health.met(SERVING);
        let turning = async {
            let mut turns = tokio::time::interval(TURN);
            loop {
                turns.tick().await;
                health.turned();
                gateway.show();
                if stop.is_cancelled() {
                    health.unmet(SERVING, "ending");
                }
            }
        };
        tokio::select! {
            () = serve(listener, router(house, telemetry), terms, stop.clone(), ending) => {}
            () = turning => {}
        }
        if let Some(batches) = batches {
            // Lines that are under way are paid for; those that take too long are asked again at the next start.
            let _ = tokio::time::timeout(drain, batches.ended()).await;
        }
    }
}
