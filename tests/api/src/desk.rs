//! A coordinator's desk in memory.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::StreamExt;
use kernelopt_coordinator::http::{AgentOrder, BlobContent, Desk, DeskError, EventPage, FrontierFilter, JobFilter, Submitted};
use kernelopt_coordinator::journal::Event;
use kernelopt_shared::api::{
    AgentAvailability, AgentList, AgentView, DrillSpec, Explanation, FrontierPage, JobPage, JobRow, JobSpec, JobView, Readiness,
    ReadinessCheck,
};
use kernelopt_shared::bundle;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{AgentMode, Beat, HostName, JobId};
use kernelopt_shared::target::Target;
use tempfile::TempPath;
use tokio::sync::watch;
use tokio_util::io::ReaderStream;

use crate::job::Job;

/// Most bytes of an unpacked bundle.
const MOST_BUNDLE_BYTES: u64 = 64 << 20;

/// The desk.
pub struct MemoryDesk {
    root: PathBuf,
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
    /// Whether the loop turns and the journal can be written: tests take it away.
    works: AtomicBool,
    /// How long the disk takes to keep a blob.
    disk_takes_ms: AtomicU64,
}

#[derive(Default)]
struct Inner {
    /// In order of submission.
    jobs: Vec<Job>,
    /// Jobs by the keys of their submissions.
    keys: BTreeMap<String, JobId>,
    agents: BTreeMap<String, (Beat, Instant)>,
}

impl MemoryDesk {
    /// A desk whose blobs and outputs lie under `root`.
    pub fn new(root: PathBuf) -> io::Result<Self> {
        for folder in ["blobs", "bundles", "outputs"] {
            std::fs::create_dir_all(root.join(folder))?;
        }
        Ok(Self {
            root,
            inner: Mutex::default(),
            changed: watch::channel(0).0,
            works: AtomicBool::new(true),
            disk_takes_ms: AtomicU64::new(0),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blob(&self, blob: Digest) -> PathBuf {
        self.root.join("blobs").join(blob.to_string())
    }

    /// Changes a job and tells everybody who waits.
    fn change<T>(&self, id: &JobId, change: impl FnOnce(&mut Job) -> T) -> Result<T, DeskError> {
        let mut inner = self.inner();
        let job = inner.jobs.iter_mut().find(|job| job.id == *id).ok_or_else(|| unknown(id))?;
        let done = change(job);
        drop(inner);
        self.changed.send_modify(|n| *n += 1);
        Ok(done)
    }

    fn look<T>(&self, id: &JobId, look: impl FnOnce(&Job) -> T) -> Result<T, DeskError> {
        self.inner().jobs.iter().find(|job| job.id == *id).map(look).ok_or_else(|| unknown(id))
    }

    /// Something happened in a job. Its outputs are written when it finishes.
    pub fn append(&self, id: &JobId, event: Event) {
        let outputs = self.root.join("outputs").join(id.as_str());
        let ends = matches!(event, Event::Finished { .. });
        let done = self.change(id, |job| {
            job.append(event);
            if ends { job.write_outputs(outputs) } else { Ok(()) }
        });
        done.expect("a job of this desk").expect("outputs can be written");
    }

    /// A job cannot be done.
    pub fn fail(&self, id: &JobId, reason: &str) {
        self.change(id, |job| job.failed = Some(reason.into())).expect("a job of this desk");
    }

    /// Targets of a job.
    pub fn targets(&self, id: &JobId) -> Vec<Target> {
        self.look(id, |job| job.targets.clone()).expect("a job of this desk")
    }

    /// An agent is heard.
    pub fn beat(&self, beat: Beat) {
        self.inner().agents.insert(beat.agent.to_string(), (beat, Instant::now()));
    }

    /// Takes away, or gives back, what a coordinator needs.
    pub fn set_works(&self, works: bool) {
        self.works.store(works, Ordering::SeqCst);
    }

    /// Makes the disk slow.
    pub fn set_disk_takes(&self, time: Duration) {
        self.disk_takes_ms.store(time.as_millis() as u64, Ordering::SeqCst);
    }

    /// Names in the folder of blobs.
    pub fn blob_names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join("blobs")).expect("the folder of blobs");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    fn row_of((beat, heard): &(Beat, Instant)) -> AgentView {
        let reason = match &beat.mode {
            AgentMode::Quarantined { reason } => Some(reason.clone()),
            _ => None,
        };
        AgentView {
            id: beat.agent.clone(),
            class: beat.device.class(),
            device: beat.device.clone(),
            mode: AgentAvailability::from(&beat.mode),
            reason,
            holds: Vec::new(),
            busy: beat.busy,
            version: beat.version.clone(),
            last_beat_ms: heard.elapsed().as_millis() as u64,
            done: 0,
            failed: 0,
        }
    }

    fn page(&self, id: &JobId, after: u64, most: usize) -> Result<EventPage, DeskError> {
        self.look(id, |job| EventPage { events: job.events(after, most), job: JobRow::from(&job.view()) })
    }
}

fn unknown(id: &JobId) -> DeskError {
    DeskError::NotFound(format!("there is no job {id}"))
}

fn refused(what: impl Into<String>, remedy: &str) -> DeskError {
    DeskError::Refused { what: what.into(), remedy: remedy.into() }
}

#[async_trait]
impl Desk for MemoryDesk {
    async fn turn(&self) -> Result<(), DeskError> {
        if !self.works.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn readiness(&self) -> Readiness {
        let holds = self.works.load(Ordering::SeqCst);
        let check = ReadinessCheck { what: "journal".into(), holds, detail: (!holds).then(|| "it cannot be written".into()) };
        Readiness::of(vec![check])
    }

    async fn submit(&self, spec: JobSpec, key: Option<&str>) -> Result<Submitted, DeskError> {
        let tar = self.blob(spec.bundle);
        if !tar.exists() {
            return Err(refused(format!("there is no blob {}", spec.bundle), "Store the bundle first: PUT /v1/blobs/{digest}."));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_millis() as u64);
        let mut inner = self.inner();
        let before = key.and_then(|key| inner.keys.get(key)).and_then(|id| inner.jobs.iter().find(|job| job.id == *id));
        match before {
            Some(job) if job.spec == spec => return Ok(Submitted { job: job.view(), is_new: false }),
            Some(job) => return Err(DeskError::Conflict(format!("the key is that of job {}", job.id))),
            None => {}
        }
        let id = JobId::parse(&format!("j{:06}", inner.jobs.len() + 1)).map_err(|e| DeskError::Unavailable(e.to_string()))?;
        let folder = self.root.join("bundles").join(id.as_str());
        let unusable = |what: String| refused(what, "Capture the model again, and send a tar of the bundle's folder.");
        let bundle = bundle::unpack(&tar, &folder, MOST_BUNDLE_BYTES).map_err(|e| unusable(e.to_string()))?;
        let job = Job::open(id, spec, bundle, now).map_err(unusable)?;
        let view = job.view();
        inner.keys.extend(key.map(|key| (key.to_owned(), job.id.clone())));
        inner.jobs.push(job);
        Ok(Submitted { job: view, is_new: true })
    }

    async fn drill(&self, _spec: DrillSpec) -> Result<JobView, DeskError> {
        Err(refused("these devices are made up", "Hold a drill on a fleet."))
    }

    async fn jobs(&self, wanted: &JobFilter) -> Result<JobPage, DeskError> {
        let inner = self.inner();
        let start = match &wanted.after {
            None => inner.jobs.len(),
            Some(after) => inner.jobs.iter().position(|job| job.id == *after).ok_or_else(|| unknown(after))?,
        };
        let of_phase = |job: &&Job| wanted.phase.is_none_or(|phase| job.phase() == phase);
        let mut found = inner.jobs[..start].iter().rev().filter(of_phase);
        let jobs: Vec<JobRow> = found.by_ref().take(wanted.limit.get() as usize).map(|job| JobRow::from(&job.view())).collect();
        let next = found.next().and_then(|_| jobs.last().map(|row| row.id.clone()));
        Ok(JobPage { jobs, next })
    }

    async fn job(&self, id: &JobId) -> Result<JobView, DeskError> {
        self.look(id, Job::view)
    }

    async fn cancel(&self, id: &JobId) -> Result<JobView, DeskError> {
        self.change(id, |job| {
            if job.state.finished.is_some() || job.failed.is_some() {
                return Err(DeskError::Conflict(format!("job {id} is {}", job.phase().words())));
            }
            job.cancelled = true;
            Ok(job.view())
        })?
    }

    async fn events(&self, id: &JobId, after: u64, most: usize, wait: Duration) -> Result<EventPage, DeskError> {
        let mut changed = self.changed.subscribe();
        let before = self.page(id, after, most)?;
        if !before.events.is_empty() || before.job.phase.is_over() || wait.is_zero() {
            return Ok(before);
        }
        let something = async {
            while changed.changed().await.is_ok() {
                let page = self.page(id, after, most)?;
                if !page.events.is_empty() || page.job.phase != before.job.phase {
                    return Ok(page);
                }
            }
            self.page(id, after, most)
        };
        tokio::time::timeout(wait, something).await.unwrap_or_else(|_| self.page(id, after, most))
    }

    async fn outputs(&self, id: &JobId) -> Result<PathBuf, DeskError> {
        self.look(id, |job| job.outputs.clone().ok_or_else(|| DeskError::Conflict(format!("job {id} is {}", job.phase().words()))))?
    }

    async fn explain(&self, id: &JobId) -> Result<Explanation, DeskError> {
        let job = self.job(id).await?;
        let inner = self.inner();
        let class = job.class.ok_or_else(|| DeskError::NotFound("the desk places every job".into()))?;
        let of_class: Vec<_> = inner.agents.values().filter(|(beat, _)| beat.device.class() == class).collect();
        let working = of_class.iter().filter(|(beat, _)| beat.mode == AgentMode::Working).count();
        let mut sentences = vec![format!("The job is {}, {} candidates judged.", job.phase.words(), job.judged)];
        sentences.push(match (of_class.len(), working) {
            (0, _) => format!("No agent of class {class} was ever heard of."),
            (all, 0) => format!("None of the {all} agents of class {class} takes tasks."),
            (_, working) => format!("{working} agents of class {class} take tasks."),
        });
        Ok(Explanation { job: id.clone(), sentences })
    }

    async fn agents(&self) -> Result<AgentList, DeskError> {
        Ok(AgentList { agents: self.inner().agents.values().map(Self::row_of).collect() })
    }

    async fn order(&self, host: &HostName, order: AgentOrder) -> Result<AgentList, DeskError> {
        let mut inner = self.inner();
        let of_host = inner.agents.values_mut().filter(|(beat, _)| beat.agent.host() == host.as_str());
        let agents: Vec<AgentView> = of_host
            .map(|agent| {
                agent.0.mode = match &order {
                    AgentOrder::Drain => AgentMode::Draining,
                    AgentOrder::Quarantine(reason) => AgentMode::Quarantined { reason: reason.to_string() },
                    AgentOrder::Readmit => AgentMode::Working,
                };
                Self::row_of(agent)
            })
            .collect();
        if agents.is_empty() {
            Err(DeskError::NotFound(format!("no agent of host {host} was ever heard of")))
        } else {
            Ok(AgentList { agents })
        }
    }

    async fn frontier(&self, wanted: &FrontierFilter) -> Result<FrontierPage, DeskError> {
        let mut best = BTreeMap::new();
        for row in self.inner().jobs.iter().flat_map(Job::winners) {
            let kept = best.entry((row.class.clone(), row.fingerprint)).or_insert_with(|| row.clone());
            if row.best_us < kept.best_us {
                *kept = row;
            }
        }
        let of_class = |row: &kernelopt_shared::api::FrontierRow| wanted.class.as_ref().is_none_or(|class| row.class == *class);
        let of_kernel = |row: &kernelopt_shared::api::FrontierRow| wanted.fingerprint.is_none_or(|kernel| row.fingerprint == kernel);
        let mut rows = best.into_values().filter(|row| of_class(row) && of_kernel(row));
        let page = rows.by_ref().take(wanted.limit.get() as usize).collect();
        Ok(FrontierPage { rows: page, more: rows.next().is_some() })
    }

    async fn blob_bytes(&self, blob: Digest) -> Result<Option<u64>, DeskError> {
        Ok(tokio::fs::metadata(self.blob(blob)).await.ok().map(|facts| facts.len()))
    }

    async fn read_blob(&self, blob: Digest) -> Result<BlobContent, DeskError> {
        let file = tokio::fs::File::open(self.blob(blob)).await.map_err(|_| DeskError::NotFound(format!("there is no blob {blob}")))?;
        let bytes = file.metadata().await.map_err(|e| DeskError::Unavailable(e.to_string()))?.len();
        Ok(BlobContent { bytes, pieces: ReaderStream::new(file).boxed() })
    }

    async fn keep_blob(&self, blob: Digest, file: TempPath) -> Result<bool, DeskError> {
        tokio::time::sleep(Duration::from_millis(self.disk_takes_ms.load(Ordering::SeqCst))).await;
        let path = self.blob(blob);
        let is_new = !path.exists();
        file.persist(path).map_err(|e| DeskError::Unavailable(e.to_string()))?;
        Ok(is_new)
    }
}
