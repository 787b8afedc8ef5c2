//! The coordinator as its HTTP API sees it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use kernelopt_shared::api::{
    AgentList, DrillSpec, EventView, Explanation, FrontierPage, FrontierRow, JobPage, JobRow, JobSpec, JobView, Readiness, ReadinessCheck,
};
use kernelopt_shared::blobs::{BlobError, Blobs};
use kernelopt_shared::broker::BrokerState;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::exit::UserError as _;
use kernelopt_shared::frontier::Frontier;
use kernelopt_shared::message::{Control, HostName, JobId};
use rand::RngExt as _;
use tempfile::TempPath;
use tokio::sync::watch;

use super::handle::{Gone, Handle};
use super::library::{Library, LibraryError};
use super::tally::Tally;
use super::views;
use crate::http::{AgentOrder, BlobContent, Desk, DeskError, EventPage, FrontierFilter, JobFilter, Submitted};
use crate::job::{Drill, Job, Plan, Terms};
use crate::journal::{Entry, Event, Journal, JournalError, Reader};
use crate::search::state::Ended;

/// Longest that the loop may take to turn, for the probe of life.
const TURN: Duration = Duration::from_secs(5);

/// Answers the API.
pub struct CoordinatorDesk {
    /// The loop.
    pub handle: Handle,
    /// Opens bundles.
    pub library: Library,
    /// The store.
    pub blobs: Blobs,
    /// The best known candidates.
    pub frontier: Arc<dyn Frontier>,
    /// Folder of the journal.
    pub data: PathBuf,
    /// Folder of the jobs' outputs.
    pub outputs: PathBuf,
    /// Rises with every event that is journaled.
    pub changed: watch::Receiver<i64>,
    /// Whether the broker can be reached.
    pub broker: watch::Receiver<BrokerState>,
    /// Whether the journal can be written.
    pub tally: Tally,
}

impl From<Gone> for DeskError {
    fn from(gone: Gone) -> Self {
        Self::Unavailable(gone.to_string())
    }
}

impl From<JournalError> for DeskError {
    fn from(error: JournalError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<BlobError> for DeskError {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Missing(blob) => Self::NotFound(format!("there is no blob {blob}")),
            BlobError::Io { source, path } if source.kind() == std::io::ErrorKind::StorageFull => {
                Self::StorageFull(format!("{}: {source}", path.display()))
            }
            other => Self::Unavailable(other.to_string()),
        }
    }
}

impl From<LibraryError> for DeskError {
    fn from(error: LibraryError) -> Self {
        match error {
            LibraryError::Blob(BlobError::Missing(blob)) => {
                Self::Refused { what: format!("there is no blob {blob}"), remedy: "Store the bundle first: PUT /v1/blobs/{digest}.".into() }
            }
            LibraryError::Blob(error) => error.into(),
            LibraryError::Io { .. } | LibraryError::Thread(_) => Self::Unavailable(error.to_string()),
            other => Self::Refused { remedy: other.remedy().unwrap_or_default(), what: other.to_string() },
        }
    }
}

fn unwritable(reason: String) -> DeskError {
    DeskError::StorageFull(format!("the journal cannot be written: {reason}"))
}

fn unknown(id: &JobId) -> DeskError {
    DeskError::NotFound(format!("there is no job {id}"))
}

impl CoordinatorDesk {
    /// Reads the journal beside its writer.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reader) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, DeskError> {
        let data = self.data.clone();
        let done = tokio::task::spawn_blocking(move || read(&Journal::reader(&data)?)).await;
        Ok(done.map_err(|e| DeskError::Unavailable(e.to_string()))??)
    }

    /// A job at work, as the loop has it; one that is over, as the journal has it.
    async fn view(&self, id: &JobId) -> Result<JobView, DeskError> {
        let wanted = id.clone();
        let at_work = self.handle.look(move |fleet, now| fleet.jobs().get(&wanted).and_then(|job| views::job(fleet, job, now))).await?;
        if let Some(mut view) = at_work {
            let job = id.clone();
            view.last_event = self.read(move |reader| reader.last(&job)).await?;
            return Ok(view);
        }
        let job = id.clone();
        let entries = self.read(move |reader| reader.of_job(&job)).await?;
        views::of_journal(id, &entries).ok_or_else(|| unknown(id))
    }

    /// Takes nothing in while it could not be journaled.
    fn refuse_unwritable(&self) -> Result<(), DeskError> {
        self.tally.unwritable().map_or(Ok(()), |reason| Err(unwritable(reason)))
    }

    /// Takes a job in: it is journaled when this returns. False where a job of that name is at work.
    async fn open(&self, id: &JobId, terms: Terms, plan: Box<dyn Plan>) -> Result<bool, DeskError> {
        let mut drafts = Vec::new();
        let job = Job::open(id.clone(), terms, plan, &mut drafts);
        self.handle.admit(job, drafts).await?.map_err(unwritable)
    }

    /// The job that a submission with this key made.
    async fn submitted_before(&self, id: &JobId, key: Option<&str>, spec: &JobSpec, terms: &Terms) -> Result<Option<JobView>, DeskError> {
        let Some(key) = key else { return Ok(None) };
        let job = id.clone();
        let first = self.read(move |reader| reader.after(&job, 0, 1)).await?;
        match first.first().map(|entry| &entry.event) {
            None => Ok(None),
            Some(Event::Opened { blob: Some(blob), terms: found, .. }) if *blob == spec.bundle && found == terms => {
                self.view(id).await.map(Some)
            }
            Some(_) => Err(DeskError::Conflict(format!("the key {key:?} is that of job {id}, which was submitted otherwise"))),
        }
    }

    async fn page(&self, id: &JobId, after: u64, most: usize) -> Result<EventPage, DeskError> {
        let job = id.clone();
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let entries: Vec<Entry> = self.read(move |reader| reader.after(&job, after, most)).await?;
        let view = self.view(id).await?;
        Ok(EventPage { events: entries.iter().filter_map(event_view).collect(), job: JobRow::from(&view) })
    }
}

fn event_view(entry: &Entry) -> Option<EventView> {
    Some(EventView {
        seq: entry.seq.unsigned_abs(),
        job: entry.job.clone()?,
        active_ms: entry.active.as_millis() as u64,
        kind: entry.event.kind().into(),
        body: serde_json::to_value(&entry.event).ok()?,
    })
}

#[async_trait]
impl Desk for CoordinatorDesk {
    async fn turn(&self) -> Result<(), DeskError> {
        let turned = tokio::time::timeout(TURN, self.handle.look(|_, _| ())).await;
        Ok(turned.map_err(|_| DeskError::Unavailable(format!("the loop has not turned for {} s", TURN.as_secs())))??)
    }

    async fn readiness(&self) -> Readiness {
        let unwritable = self.tally.unwritable();
        let journal = ReadinessCheck { what: "journal".into(), holds: unwritable.is_none(), detail: unwritable };
        let state = self.broker.borrow().clone();
        let detail = match &state {
            BrokerState::Up => None,
            BrokerState::Blocked { reason } | BrokerState::Down { reason } => Some(reason.clone()),
        };
        Readiness::of(vec![journal, ReadinessCheck { what: "broker".into(), holds: state == BrokerState::Up, detail }])
    }

    async fn submit(&self, spec: JobSpec, key: Option<&str>) -> Result<Submitted, DeskError> {
        self.refuse_unwritable()?;
        let terms = Terms::from(&spec);
        let id = key.map_or_else(new_id, id_of);
        if let Some(job) = self.submitted_before(&id, key, &spec, &terms).await? {
            return Ok(Submitted { job, is_new: false });
        }
        let search = self.library.search(spec.bundle, &terms, None).await?;
        // Opening takes its time: the same wish may have been here meanwhile, and even be over.
        if let Some(job) = self.submitted_before(&id, key, &spec, &terms).await? {
            return Ok(Submitted { job, is_new: false });
        }
        if self.open(&id, terms.clone(), Box::new(search)).await? {
            return Ok(Submitted { job: self.view(&id).await?, is_new: true });
        }
        let job = self.submitted_before(&id, key, &spec, &terms).await?.ok_or_else(|| unknown(&id))?;
        Ok(Submitted { job, is_new: false })
    }

    async fn drill(&self, spec: DrillSpec) -> Result<JobView, DeskError> {
        self.refuse_unwritable()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let id = new_id();
        self.open(&id, Terms::from(&spec), Box::new(Drill::of(&spec, now))).await?;
        self.view(&id).await
    }

    async fn jobs(&self, wanted: &JobFilter) -> Result<JobPage, DeskError> {
        let mut lines = self.read(Reader::jobs).await?;
        lines.reverse();
        let start = match &wanted.after {
            None => 0,
            Some(after) => lines.iter().position(|line| line.job == *after).ok_or_else(|| unknown(after))? + 1,
        };
        let (mut jobs, most) = (Vec::new(), wanted.limit.get() as usize);
        for line in &lines[start..] {
            // It may have gone meanwhile.
            let Ok(view) = self.view(&line.job).await else { continue };
            if wanted.phase.is_some_and(|phase| view.phase != phase) {
                continue;
            }
            if jobs.len() == most {
                let next = jobs.last().map(|row: &JobRow| row.id.clone());
                return Ok(JobPage { jobs, next });
            }
            jobs.push(JobRow::from(&view));
        }
        Ok(JobPage { jobs, next: None })
    }

    async fn job(&self, id: &JobId) -> Result<JobView, DeskError> {
        self.view(id).await
    }

    async fn cancel(&self, id: &JobId) -> Result<JobView, DeskError> {
        let wanted = id.clone();
        let ended = self.handle.ask(move |fleet, now| fleet.end(&wanted, Ended::Cancelled, now)).await?;
        let view = self.view(id).await?;
        if ended || view.phase == kernelopt_shared::api::Phase::Cancelled {
            Ok(view)
        } else {
            Err(DeskError::Conflict(format!("job {id} is {}", view.phase.words())))
        }
    }

    async fn events(&self, id: &JobId, after: u64, most: usize, wait: Duration) -> Result<EventPage, DeskError> {
        let mut changed = self.changed.clone();
        changed.mark_unchanged();
        let before = self.page(id, after, most).await?;
        if !before.events.is_empty() || before.job.phase.is_over() || wait.is_zero() {
            return Ok(before);
        }
        let something = async {
            while changed.changed().await.is_ok() {
                let page = self.page(id, after, most).await?;
                if !page.events.is_empty() || page.job.phase != before.job.phase || page.job.reason != before.job.reason {
                    return Ok(page);
                }
            }
            self.page(id, after, most).await
        };
        match tokio::time::timeout(wait, something).await {
            Ok(page) => page,
            Err(_) => self.page(id, after, most).await,
        }
    }

    async fn outputs(&self, id: &JobId) -> Result<PathBuf, DeskError> {
        let view = self.view(id).await?;
        let folder = self.outputs.join(id.as_str());
        if view.phase == kernelopt_shared::api::Phase::Finished && folder.join("result.json").exists() {
            Ok(folder)
        } else {
            Err(DeskError::Conflict(format!("job {id} is {}", view.phase.words())))
        }
    }

    async fn explain(&self, id: &JobId) -> Result<Explanation, DeskError> {
        let wanted = id.clone();
        let broker = self.broker.borrow().clone();
        let at_work =
            self.handle.look(move |fleet, now| fleet.jobs().get(&wanted).map(|job| views::explain(fleet, job, &broker, now))).await?;
        let sentences = match at_work {
            Some(sentences) => sentences,
            None => {
                let view = self.view(id).await?;
                let why = view.reason.map_or_else(String::new, |reason| format!(": {reason}"));
                vec![format!("The job is {}{why}.", view.phase.words())]
            }
        };
        Ok(Explanation { job: id.clone(), sentences })
    }

    async fn agents(&self) -> Result<AgentList, DeskError> {
        Ok(AgentList { agents: self.handle.look(|fleet, now| views::agents(fleet, None, now)).await? })
    }

    async fn order(&self, host: &HostName, order: AgentOrder) -> Result<AgentList, DeskError> {
        let control = match order {
            AgentOrder::Drain => Control::Drain,
            AgentOrder::Quarantine(reason) => Control::Quarantine { reason: reason.to_string() },
            AgentOrder::Readmit => Control::Readmit,
        };
        let wanted = host.as_str().to_owned();
        let told = move |fleet: &mut crate::fleet::Fleet, now: Instant| {
            fleet.tell_host(&wanted, &control);
            views::agents(fleet, Some(&wanted), now)
        };
        let agents = self.handle.ask(told).await?;
        if agents.is_empty() {
            Err(DeskError::NotFound(format!("no agent of host {host} was ever heard of")))
        } else {
            Ok(AgentList { agents })
        }
    }

    async fn frontier(&self, wanted: &FrontierFilter) -> Result<FrontierPage, DeskError> {
        let entries = self.frontier.all().await.map_err(|e| DeskError::Unavailable(e.to_string()))?;
        let fits = |row: &FrontierRow| {
            wanted.class.as_ref().is_none_or(|class| row.class == *class)
                && wanted.fingerprint.is_none_or(|kernel| row.fingerprint == kernel)
        };
        let mut rows: Vec<FrontierRow> = entries.into_iter().map(views::frontier).filter(fits).collect();
        rows.sort_by(|a, b| a.class.cmp(&b.class).then_with(|| a.fingerprint.cmp(&b.fingerprint)));
        let most = wanted.limit.get() as usize;
        let more = rows.len() > most;
        rows.truncate(most);
        Ok(FrontierPage { rows, more })
    }

    async fn blob_bytes(&self, blob: Digest) -> Result<Option<u64>, DeskError> {
        Ok(self.blobs.size(blob).await?)
    }

    async fn read_blob(&self, blob: Digest) -> Result<BlobContent, DeskError> {
        let (bytes, pieces) = self.blobs.stream(blob).await?;
        Ok(BlobContent { bytes, pieces: pieces.map(|piece| piece.map_err(std::io::Error::other)).boxed() })
    }

    async fn keep_blob(&self, blob: Digest, file: TempPath) -> Result<bool, DeskError> {
        let is_new = !self.blobs.exists(blob).await?;
        let kept = self.blobs.put_file(&file).await?;
        if kept == blob {
            Ok(is_new)
        } else {
            Err(DeskError::Refused { what: format!("the content is that of {kept}"), remedy: String::new() })
        }
    }
}

/// Sixteen digits, the same for a key whenever it comes. Those that are drawn have ten, so the two do not meet.
fn id_of(key: &str) -> JobId {
    let digest = Digest::of([b"job".as_slice(), key.as_bytes()]);
    #[expect(clippy::expect_used, reason = "hexadecimal digits are a name")]
    JobId::parse(&digest.to_string()[..16]).expect("a plain word")
}

/// Ten digits, drawn: short enough to type, and with no meaning.
fn new_id() -> JobId {
    let drawn: u64 = rand::rng().random();
    #[expect(clippy::expect_used, reason = "hexadecimal digits are a name")]
    JobId::parse(&format!("{drawn:016x}")[..10]).expect("a plain word")
}
