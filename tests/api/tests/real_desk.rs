//! The coordinator's own desk, over a broker and a frontier in memory.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kernelopt_coordinator::fleet::Policy;
use kernelopt_coordinator::http::{Desk, DeskError, Submitted};
use kernelopt_coordinator::inspect;
use kernelopt_coordinator::job::Job;
use kernelopt_coordinator::journal::{Entry, Event};
use kernelopt_coordinator::search::plan::Step;
use kernelopt_coordinator::service::desk::CoordinatorDesk;
use kernelopt_coordinator::service::{Audience, Ended, Library, Outputs, Parts, ServiceError, Tally, start};
use kernelopt_shared::api::{AgentAvailability, JobSpec, Phase};
use kernelopt_shared::blobs::{BlobOptions, Blobs};
use kernelopt_shared::broker::Broker;
use kernelopt_shared::broker::link::{AgentEnd, Received};
use kernelopt_shared::broker::memory::MemoryBroker;
use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::frontier::{MemoryFrontier, Offer};
use kernelopt_shared::message::{JobId, Pulse, Reply, Report, Times, Work};
use kernelopt_test_api::{bundle_folder, bundle_tar, script};
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
    broker: Arc<MemoryBroker>,
    stop: CancellationToken,
    ended: oneshot::Receiver<Result<Ended, ServiceError>>,
}

impl Coordinator {
    async fn start(data: &Path, blobs: &Blobs) -> Self {
        let (broker, frontier) = (Arc::new(MemoryBroker::new()), Arc::new(MemoryFrontier::default()));
        let library = Library::new(blobs.clone(), data.join("bundles"), Some(frontier.clone()), false);
        let parts = Parts {
            data: data.to_owned(),
            outputs: Outputs::Under(data.join("jobs")),
            policy: Policy::default(),
            broker: broker.clone(),
            blobs: blobs.clone(),
            frontier: Some(frontier.clone()),
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
            frontier: frontier.clone(),
            data: data.to_owned(),
            outputs: data.join("jobs"),
            changed: watch::channel(0).1,
            broker: broker.state(),
            tally: Tally::default(),
        };
        Self { desk, broker, stop, ended: running.ended }
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

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_placed_by_itself_begins_with_what_is_known_there() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(&BlobOptions::new("memory:")).unwrap();
    let bundle = blobs.put(bundle_tar().0.into()).await.unwrap();
    let (targets, _) = inspect::targets(&Bundle::open(&bundle_folder()).unwrap()).unwrap();
    let coordinator = Coordinator::start(folder.path(), &blobs).await;
    let spec = JobSpec::deserialize(json!({"name": "a", "bundle": bundle})).unwrap();
    let job = coordinator.desk.submit(spec, None).await.unwrap().job;
    assert_eq!((job.class, job.phase), (None, Phase::Waiting));

    let beat = script::beat("gpu1/cuda0");
    let (agent, device) = (beat.agent.clone(), beat.device.clone());
    // The frontier's keeper first makes it what the journal says, which is nothing.
    while coordinator.desk.frontier.generation().await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut best = targets[0].baseline.clone();
    best.source.push_str("# better\n");
    let document = blobs.put(serde_json::to_vec(&best).unwrap().into()).await.unwrap();
    let (fingerprint, class, candidate) = (targets[0].fingerprint, device.class(), best.id());
    let offer = Offer { fingerprint, class, candidate, document, time_ns: 1, baseline_ns: 2, job: job.id.clone(), epoch: 1 };
    coordinator.desk.frontier.offer(&offer).await.unwrap();

    let end = AgentEnd::new(Arc::new(coordinator.broker.connect()), agent.clone(), Arc::new(|_| {}));
    let mut tasks = end.tasks(&device.class(), 2).await.unwrap();
    end.pulse(&Pulse::Beat(beat)).await.unwrap();
    let Received { message: task, receipt, .. } = tasks.next().await.unwrap();
    receipt.acknowledge().await;
    let profile = script::events(&targets).into_iter().find_map(|event| match event {
        Event::Profiled { profile } => Some(profile),
        _ => None,
    });
    let (reply, times) = (Reply::Profiled(profile.unwrap()), Times::default());
    end.report(&Report { task: task.id, job: task.job, lease: task.lease, agent: agent.clone(), device, reply, times }).await.unwrap();
    let work = tokio::time::timeout(Duration::from_secs(20), tasks.next()).await.unwrap().unwrap().message.work;
    assert!(matches!(&work, Work::Evaluate { candidate, .. } if candidate.id() == best.id()), "{work:?}");

    end.pulse(&Pulse::Leaving { agent }).await.unwrap();
    let left = async {
        while coordinator.desk.agents().await.unwrap().agents[0].mode != AgentAvailability::Left {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), left).await.unwrap();
    coordinator.end().await;
}
