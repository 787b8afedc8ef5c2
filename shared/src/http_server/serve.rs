//! Listening, and ending in good order.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::patience::Patient;

/// Pause after a connection could not be accepted, most often for want of file descriptors.
const AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(100);

/// How many are served, and how patiently.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Open connections; further ones wait to be accepted.
    pub connections: usize,
    /// Time for the head of a request to come.
    pub head_within: Duration,
    /// Longest time in which a client takes nothing of what it is given.
    pub silence: Duration,
    /// Time for requests to end when the server does.
    pub drain_within: Duration,
}

/// Serves `app` until `stop`. Then nothing more is accepted and `ending` is cancelled, so that streams can end; requests may last for
/// [`Terms::drain_within`], and what lasts longer is cut off. Nagle's algorithm is off: with it every event of a stream would wait for an
/// acknowledgement.
pub async fn serve(listener: TcpListener, app: Router, terms: Terms, stop: CancellationToken, ending: CancellationToken) {
    let (connections, cut) = (TaskTracker::new(), CancellationToken::new());
    let places = Arc::new(Semaphore::new(terms.connections));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, place)) => {
                let served = serve_one(stream, app.clone(), terms.clone(), ending.clone());
                let cut = cut.clone();
                connections.spawn(async move {
                    tokio::select! {
                        () = served => {}
                        () = cut.cancelled() => {}
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
            }
        }
    }
    drop(listener);
    ending.cancel();
    connections.close();
    if tokio::time::timeout(terms.drain_within, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "cut off");
        cut.cancel();
        connections.wait().await;
    }
}

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, place))
}

async fn serve_one(stream: TcpStream, app: Router, terms: Terms, ending: CancellationToken) {
    let io = TokioIo::new(Patient::new(stream, terms.silence));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(terms.head_within);
    let mut connection = std::pin::pin!(http.serve_connection(io, TowerToHyperService::new(app)));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection");
    }
}
