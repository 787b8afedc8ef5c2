//! OpenAI's batches: a file of requests goes in, each line is answered when there is room, files of answers and of errors come out.
//!
//! Everything is in a folder and survives a restart. Lines go through the same admission as every other request, at the lowest priority, so
//! that a batch takes what others leave. A line whose answer is in the file is not asked again; one that was under way when the process was
//! killed is.

mod document;
mod files;
mod input;
mod output;
mod run;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::dialect::{Fault, Problem};
use crate::gateway::Gateway;
use crate::names::{JobName, KeyName};

pub use document::{Batch, Counts, Status};
pub use files::{File, Files, Upload};

/// The only endpoint that batches have.
pub const ENDPOINT: &str = "/v1/chat/completions";
/// The only time that a batch is given.
const WINDOW: (&str, u64) = ("24h", 24 * 3600);
/// Most batches of one key that are kept.
const MOST_BATCHES: usize = 1000;

/// All batches of a gateway.
pub struct Batches {
    gateway: Arc<Gateway>,
    /// Their files.
    pub files: Files,
    folder: PathBuf,
    all: Mutex<BTreeMap<String, Batch>>,
    running: TaskTracker,
    /// Stops for each batch that runs.
    cancels: Mutex<BTreeMap<String, CancellationToken>>,
    stop: CancellationToken,
}

impl Batches {
    /// Those in a folder; such as were under way go on.
    ///
    /// # Errors
    /// The folder cannot be written or read.
    pub fn open(gateway: Arc<Gateway>, folder: &Path, stop: CancellationToken) -> io::Result<Arc<Self>> {
        let files = Files::open(&folder.join("files"))?;
        let folder = folder.join("batches");
        let all: BTreeMap<String, Batch> = read_whole::<Batch>(&folder)?.into_iter().map(|batch| (batch.id.clone(), batch)).collect();
        let unfinished: Vec<Batch> = all.values().filter(|batch| !batch.status.is_final()).cloned().collect();
        let batches =
            Arc::new(Self { gateway, files, folder, all: Mutex::new(all), running: TaskTracker::new(), cancels: Mutex::default(), stop });
        unfinished.into_iter().for_each(|batch| batches.start(batch));
        Ok(batches)
    }

    /// A new batch of the lines in a file of the same key.
    ///
    /// # Errors
    /// There is no such file, something is asked for that batches do not do, or the disk fails.
    pub fn create(self: &Arc<Self>, key: &KeyName, job: &JobName, asked: &Map<String, Value>) -> Result<Batch, Problem> {
        let text = |field: &str| asked.get(field).and_then(Value::as_str).unwrap_or_default();
        let only = |field: &'static str, wanted: &str| {
            let problem = Problem::new(Fault::Invalid, format!("{field} is {wanted} and nothing else")).about(field);
            (text(field) == wanted).then_some(()).ok_or(problem)
        };
        only("endpoint", ENDPOINT)?;
        only("completion_window", WINDOW.0)?;
        let file = self.files.get(key, text("input_file_id")).map_err(|problem| problem.about("input_file_id"))?;
        if file.purpose != "batch" {
            return Err(Problem::new(Fault::Invalid, "the file's purpose is not batch").about("input_file_id"));
        }
        let metadata = asked.get("metadata").and_then(Value::as_object).cloned();
        let batch = Batch::new(key, job, &file.id, WINDOW.1, metadata);
        {
            let mut all = self.lock();
            if all.values().filter(|batch| batch.key == *key).count() >= MOST_BATCHES {
                return Err(Problem::new(Fault::Invalid, format!("a key has at most {MOST_BATCHES} batches")));
            }
            batch.write(&self.folder).map_err(|error| disk(&error))?;
            all.insert(batch.id.clone(), batch.clone());
        }
        self.start(batch.clone());
        Ok(batch)
    }

    /// A batch of this key.
    ///
    /// # Errors
    /// There is none.
    pub fn get(&self, key: &KeyName, id: &str) -> Result<Batch, Problem> {
        let found = self.lock().get(id).filter(|batch| batch.key == *key).cloned();
        found.ok_or_else(|| Problem::new(Fault::NotFound, "there is no such batch"))
    }

    /// All batches of this key, the newest first.
    pub fn list(&self, key: &KeyName) -> Vec<Batch> {
        let mut batches: Vec<Batch> = self.lock().values().filter(|batch| batch.key == *key).cloned().collect();
        batches.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        batches
    }

    /// Begins no more lines of a batch. Those under way are paid for, and so may end.
    ///
    /// # Errors
    /// There is no such batch, or it has ended.
    pub fn cancel(&self, key: &KeyName, id: &str) -> Result<Batch, Problem> {
        let batch = self.get(key, id)?;
        if batch.status.is_final() {
            return Err(Problem::new(Fault::Invalid, format!("the batch is {}", batch.status.name())));
        }
        let batch = self
            .update(id, |batch| batch.enter(Status::Cancelling))
            .ok_or_else(|| Problem::new(Fault::NotFound, "there is no such batch"))?;
        if let Some(cancel) = self.cancels.lock().unwrap_or_else(PoisonError::into_inner).get(id) {
            cancel.cancel();
        }
        Ok(batch)
    }

    /// Whether a file is being read or written for some batch.
    pub fn uses(&self, file: &str) -> bool {
        self.lock().values().any(|batch| !batch.status.is_final() && batch.files().any(|used| used == file))
    }

    /// Waits for the lines that are under way; none begin once `stop` was cancelled.
    pub async fn ended(&self) {
        self.running.close();
        self.running.wait().await;
    }

    fn start(self: &Arc<Self>, batch: Batch) {
        let (id, cancel) = (batch.id.clone(), CancellationToken::new());
        if batch.status == Status::Cancelling {
            cancel.cancel();
        }
        self.cancels.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), cancel.clone());
        let batches = self.clone();
        self.running.spawn(async move {
            if let Err(error) = run::run(&batches, batch, &cancel).await {
                // It stays as it is in its folder, and goes on with the next start.
                tracing::error!(batch = id, %error, "a batch stopped");
            }
            batches.cancels.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        });
    }

    /// Changes a batch, in memory and on disk.
    fn update(&self, id: &str, change: impl FnOnce(&mut Batch)) -> Option<Batch> {
        let mut all = self.lock();
        let batch = all.get_mut(id)?;
        change(batch);
        if let Err(error) = batch.write(&self.folder) {
            tracing::error!(batch = id, %error, "a batch's state was not written");
        }
        Some(batch.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Batch>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a caller hears of the gateway's own disk.
pub fn disk(error: &io::Error) -> Problem {
    tracing::error!(%error, "disk");
    Problem::new(Fault::Internal, format!("the gateway's disk failed: {}", error.kind()))
}

/// A name that nothing else has.
fn new_id(prefix: &str) -> String {
    format!("{prefix}{:024x}", rand::random::<u128>() >> 32)
}

/// Writes a small file so that it is there as a whole or not at all.
fn write_whole(path: &Path, value: &impl serde::Serialize) -> io::Result<()> {
    use std::io::Write as _;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, value)?;
    file.flush()?;
    file.as_file().sync_data()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Everything that was so written in a folder, which is made where there is none. What cannot be read is left there and said.
fn read_whole<T: serde::de::DeserializeOwned>(folder: &Path) -> io::Result<Vec<T>> {
    std::fs::create_dir_all(folder)?;
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        match serde_json::from_slice(&std::fs::read(&path)?) {
            Ok(value) => all.push(value),
            Err(error) => tracing::error!(path = %path.display(), %error, "what a former gateway wrote cannot be read"),
        }
    }
    Ok(all)
}
