//! A coordinator of a fleet: the loop, the HTTP API before it, and what both are counted with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use kernelopt_shared::blobs::Blobs;
use kernelopt_shared::broker::link::CoordinatorEnd;
use kernelopt_shared::broker::{Broker, Counted};
use kernelopt_shared::frontier::Frontier;
use kernelopt_shared::language_model::LanguageModel;
use kernelopt_shared::message::JobId;
use kernelopt_shared::telemetry::{HttpMetrics, ProcessMetrics, Registry};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::desk::CoordinatorDesk;
use super::library::Library;
use super::tally::{Metrics, Tally};
use super::{Audience, Ended, Outputs, Parts, ServiceError, courier, gauges, start};
use crate::fleet::Policy;
use crate::http::{self, Limits, Server, Tokens};
use crate::job::Job;
use crate::journal::Entry;
use crate::search::plan::Step;

/// What a coordinator of a fleet is made of.
pub struct Cluster {
    /// Where the API listens.
    pub listen: SocketAddr,
    /// Folder of the journal, of outputs and unpacked bundles.
    pub data: PathBuf,
    /// Who may do what.
    pub tokens: Option<Tokens>,
    /// How patient it is.
    pub policy: Policy,
    /// How messages travel.
    pub broker: Arc<dyn Broker>,
    /// The store.
    pub blobs: Blobs,
    /// The best known candidates.
    pub frontier: Arc<dyn Frontier>,
    /// Whom the proposer `llm` asks; none where there is no gateway.
    pub model: Option<Arc<dyn LanguageModel>>,
}

impl Cluster {
    /// Waits for its turn, then leads until `stop`; `ready` is told where it listens.
    ///
    /// # Errors
    /// The journal, the broker, a bundle or the address cannot be used; or another coordinator has taken over.
    pub async fn run(self, ready: impl FnOnce(SocketAddr), stop: CancellationToken) -> Result<(), ServiceError> {
        let Self { listen, data, tokens, policy, broker, blobs, frontier, model } = self;
        std::fs::create_dir_all(&data).map_err(|source| ServiceError::Data { path: data.clone(), source })?;
        let registry = Registry::new();
        let process = ProcessMetrics::new(&registry, "coordinator")?;
        let (counted, requests) = (Metrics::new(&registry)?, HttpMetrics::new(&registry)?);
        let broker: Arc<dyn Broker> = Arc::new(Counted::new(broker, counted.broker.clone()));
        let (health, tally) = (counted.health.clone(), Tally::of(Arc::new(counted)));
        let (changes, changed) = watch::channel(0);
        let outputs = data.join("jobs");
        let library = Library::new(blobs.clone(), data.join("bundles"), Some(frontier.clone()), model.is_some());
        let parts = Parts {
            data: data.clone(),
            outputs: Outputs::Under(outputs.clone()),
            policy,
            broker: broker.clone(),
            blobs: blobs.clone(),
            frontier: Some(frontier.clone()),
            model: model.clone(),
            audience: Box::new(Changes(changes)),
            tally: tally.clone(),
        };
        let opening = library.clone();
        let running = start(parts, async move |entries| Ok(opening.jobs(entries).await?), stop.clone()).await?;
        let end = CoordinatorEnd::new(broker.clone(), courier::on_unread(&tally));
        tokio::spawn(gauges::run(running.handle.clone(), end, tally.clone(), stop.clone()));
        let desk = CoordinatorDesk {
            handle: running.handle,
            library,
            blobs,
            frontier,
            data: data.clone(),
            outputs,
            changed,
            broker: broker.state(),
            tally,
        };
        let options = http::Options { listen, tokens, spool: data.join("spool"), limits: Limits::default(), counted: Some(requests) };
        let text = move || {
            process.ready(health.is_ready());
            registry.text().unwrap_or_default()
        };
        let server = Server::bind(options, Arc::new(desk), Arc::new(text)).await?;
        ready(server.address());
        let serving = stop.child_token();
        let served = tokio::spawn(server.run(serving.clone()));
        let ended = running.ended.await;
        serving.cancel();
        // What the API says on its way out changes nothing.
        let _ = served.await;
        match ended {
            Ok(Err(error)) => Err(error),
            Ok(Ok(Ended::Stopped | Ended::Finished(_) | Ended::Paused)) | Err(_) => Ok(()),
        }
    }
}

/// Tells whoever waits for events that there are new ones.
struct Changes(watch::Sender<i64>);

impl Audience for Changes {
    fn step(&mut self, _job: &JobId, _step: &Step) {}

    fn event(&mut self, entry: &Entry, _job: Option<&Job>) {
        // Nobody may be waiting.
        self.0.send_replace(entry.seq);
    }
}
