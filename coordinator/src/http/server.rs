//! Listening, and ending in good order.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::http_server::{RequestIds, Terms, serve};
use kernelopt_shared::telemetry::HttpMetrics;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::limits::{Limits, Rooms};
use super::tokens::Tokens;
use super::{Desk, House, Metrics, blobs, router};

/// Time after which an upload in the spool belongs to nobody.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// How to listen.
#[derive(Debug)]
pub struct Options {
    /// Where.
    pub listen: SocketAddr,
    /// Who may do what; without tokens everybody on this host may do everything.
    pub tokens: Option<Tokens>,
    /// Folder for uploads that are not whole yet, on the file system of the store.
    pub spool: PathBuf,
    /// How much at a time.
    pub limits: Limits,
    /// Who counts requests.
    pub counted: Option<HttpMetrics>,
}

/// Why a server does not listen.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum ServerError {
    #[error("{address} can be reached from other hosts, and there are no tokens")]
    OpenToAll { address: SocketAddr },
    #[error("listening on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("{}: {source}", path.display())]
    Spool { path: PathBuf, source: io::Error },
}

impl UserError for ServerError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::OpenToAll { .. } => ExitCode::Usage,
            Self::Listen { .. } => ExitCode::Environment,
            Self::Spool { .. } => ExitCode::Output,
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::OpenToAll { .. } => "Name a file of tokens, or listen on 127.0.0.1.".into(),
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                "Another process listens there: stop it, or choose another port.".into()
            }
            Self::Listen { .. } => "Choose an address of this host.".into(),
            Self::Spool { .. } => "Check that the folder can be written.".into(),
        })
    }
}

/// A server that listens and does not serve yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    house: Arc<House>,
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    /// The address cannot be had, is open to others without tokens, or the spool cannot be written.
    pub async fn bind(options: Options, desk: Arc<dyn Desk>, metrics: Metrics) -> Result<Self, ServerError> {
        let address = options.listen;
        if options.tokens.is_none() && !address.ip().is_loopback() {
            return Err(ServerError::OpenToAll { address });
        }
        clear_spool(&options.spool).map_err(|source| ServerError::Spool { path: options.spool.clone(), source })?;
        let error = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(error)?;
        let address = listener.local_addr().map_err(error)?;
        if options.tokens.is_none() {
            tracing::warn!(%address, "no tokens: only this host is served, and everybody on it may do everything");
        }
        let house = House {
            desk,
            metrics,
            tokens: options.tokens,
            rooms: Rooms::new(&options.limits),
            limits: options.limits,
            spool: options.spool,
            request_ids: RequestIds::default(),
            counted: options.counted,
            stop: CancellationToken::new(),
        };
        Ok(Self { listener, address, house: Arc::new(house) })
    }

    /// Where it listens, the port chosen where none was asked for.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`; then lets requests end, streams at once, and cuts off what lasts longer than [`Limits::drain_within`].
    pub async fn run(self, stop: CancellationToken) {
        let Self { listener, house, .. } = self;
        let Limits { connections, head_within, silence, drain_within, .. } = house.limits;
        let terms = Terms { connections, head_within, silence, drain_within };
        serve(listener, router(house.clone()), terms, stop, house.stop.clone()).await;
    }
}

/// Makes the spool, and takes away uploads of a process that was killed.
fn clear_spool(spool: &Path) -> io::Result<()> {
    std::fs::create_dir_all(spool)?;
    for entry in std::fs::read_dir(spool)? {
        let entry = entry?;
        let old = || entry.metadata().and_then(|m| m.modified()).ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        if entry.file_name().as_encoded_bytes().starts_with(blobs::UPLOAD.as_bytes()) && old().is_some_and(|age| age > ABANDONED) {
            std::fs::remove_file(entry.path())?;
        }
    }
    tempfile::tempfile_in(spool).map(drop)
}
