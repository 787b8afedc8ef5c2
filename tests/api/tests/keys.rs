//! Keys of submissions, as the coordinator itself keeps them: they outlive the job's end and the coordinator.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::sync::Arc;

use kernelopt_coordinator::fleet::Policy;
use kernelopt_coordinator::http::{Desk, DeskError, Submitted};
use kernelopt_coordinator::job::Job;
use kernelopt_coordinator::journal::Entry;
use kernelopt_coordinator::search::plan::Step;
use kernelopt_coordinator::service::desk::CoordinatorDesk;
use kernelopt_coordinator::service::{Audience, Ended, Library, Outputs, Parts, ServiceError, Tally, start};
use kernelopt_shared::api::{JobSpec, Phase};
use kernelopt_shared::blobs::{BlobOptions, Blobs};
use kernelopt_shared::broker::Broker;
use kernelopt_shared::broker::memory::MemoryBroker;
use kernelopt_shared::frontier::MemoryFrontier;
use kernelopt_shared::message::JobId;
use kernelopt_test_api::bundle_tar;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

struct Nobody;

impl Audience for Nobody {
    fn step(&mut self, _job: &JobId, _step: &Step) {}

    fn event(&mut self, _entry: &Entry, _job: Option<&Job>) {}
}

struct Coordinator {
    desk: CoordinatorDesk,
    stop: CancellationToken,
    ended: oneshot::Receiver<Result<Ended, ServiceError>>,
}

impl Coordinator {
    async fn start(data: &Path, blobs: &Blobs) -> Self {
        let (broker, frontier) = (Arc::new(MemoryBroker::new()), Arc::new(MemoryFrontier::default()));
        let library = Library::new(blobs.clone(), data.join("bundles"), None, false);
        let parts = Parts {
            data: data.to_owned(),
            outputs: Outputs::Under(data.join("jobs")),
            policy: Policy::default(),
            broker: broker.clone(),
            blobs: blobs.clone(),
            frontier: None,
            audience: Box::new(Nobody),
            model: None,
            tally: Tally::default(),
        };
        let (stop, opening) = (CancellationToken::new(), library.clone());
        let running = start(parts, async move |entries| Ok(opening.jobs(entries).await?), stop.clone()).await.unwrap();
        let desk = CoordinatorDesk {
            handle: running.handle,
            library,
            blobs: blobs.clone(),
            frontier,
            data: data.to_owned(),
            outputs: data.join("jobs"),
            changed: watch::channel(0).1,
            broker: broker.state(),
            tally: Tally::default(),
        };
        Self { desk, stop, ended: running.ended }
    }

    async fn end(self) {
        self.stop.cancel();
        self.ended.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_one_job_whatever_became_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(&BlobOptions::new("memory:")).unwrap();
    let bundle = blobs.put(bundle_tar().0.into()).await.unwrap();
    let spec = |name: &str| JobSpec::deserialize(json!({"name": name, "bundle": bundle})).unwrap();
    let coordinator = Coordinator::start(folder.path(), &blobs).await;
    let submit = async |coordinator: &Coordinator, name: &str, key| coordinator.desk.submit(spec(name), key).await;

    // Both at once, as where a proxy repeats a request.
    let (one, other) = tokio::join!(submit(&coordinator, "a", Some("one")), submit(&coordinator, "a", Some("one")));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one.job.id, other.job.id);
    assert!(one.is_new != other.is_new);
    assert!(matches!(submit(&coordinator, "b", Some("one")).await, Err(DeskError::Conflict(_))));
    for _ in 0..2 {
        assert!(submit(&coordinator, "a", None).await.unwrap().is_new);
    }
    coordinator.desk.cancel(&one.job.id).await.unwrap();
    let Submitted { job, is_new } = submit(&coordinator, "a", Some("one")).await.unwrap();
    assert_eq!((job.id, job.phase, is_new), (one.job.id.clone(), Phase::Cancelled, false));
    coordinator.end().await;

    let next = Coordinator::start(folder.path(), &blobs).await;
    let Submitted { job, is_new } = submit(&next, "a", Some("one")).await.unwrap();
    assert_eq!((job.id, job.phase, is_new), (one.job.id, Phase::Cancelled, false));
    next.end().await;
}
