//! The frontier, kept up with the journal: offers are repeated until they are taken, and whatever the store loses is rebuilt.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kernelopt_shared::blobs::Blobs;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::frontier::{Entry, Frontier, Generation, Key, Offer};
use kernelopt_shared::message::{DeviceClass, JobId};
use kernelopt_shared::stats::median;
use kernelopt_shared::task::Depth;
use kernelopt_shared::verdict::{Outcome, Verdict};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::tally::Tally;
use crate::fleet::Fleet;
use crate::journal::{Event, Journal};
use crate::search::known::Known;

/// Offers that wait; one that finds no room comes with the next rebuild.
const WAITING: usize = 1024;
/// Largest document of a candidate.
const MOST_CANDIDATE_BYTES: u64 = 4 << 20;
/// Time between two looks at the store, and two tries of what failed.
const LOOK: Duration = Duration::from_secs(5);

/// A confirmed winner, as it is to be offered.
#[derive(Clone, Debug)]
pub(super) struct Find {
    key: Key,
    candidate: Candidate,
    time_ns: u64,
    baseline_ns: u64,
    job: JobId,
}

impl Find {
    /// Of a confirmation; `None` where it was none, or rests on no samples.
    fn of(key: Key, candidate: &Candidate, confirmed: &Outcome, job: JobId) -> Option<Self> {
        let Verdict::Accepted { .. } = confirmed.verdict else { return None };
        let column = |pick: fn(&(f64, f64)) -> f64| median(&confirmed.evidence.pairs_ns.iter().map(pick).collect::<Vec<_>>());
        let (baseline_ns, time_ns) = (column(|pair| pair.0), column(|pair| pair.1));
        let sane = time_ns.is_finite() && time_ns >= 1.0;
        sane.then(|| Self { key, candidate: candidate.clone(), time_ns: time_ns as u64, baseline_ns: baseline_ns as u64, job })
    }
}

/// What a confirmation that was just taken has to offer.
pub(super) fn offer(fleet: &Fleet, job: &JobId, target: &str, candidate: Digest, class: DeviceClass) -> Option<Find> {
    let search = fleet.jobs().get(job)?.search()?;
    let fingerprint = search.targets().iter().find(|t| t.label() == target)?.fingerprint;
    let tried = search.state().targets.get(target)?.tried.iter().find(|t| t.id == candidate)?;
    Find::of(Key { fingerprint, class }, &tried.candidate, tried.outcomes.get(&Depth::Confirm)?, job.clone())
}

/// What a frontier knows of kernels on a class. What does not answer, or cannot be read, is done without.
pub(super) async fn recall(frontier: &dyn Frontier, blobs: &Blobs, class: &DeviceClass, kernels: &[Digest]) -> Known {
    let mut known = Known::default();
    for fingerprint in kernels {
        let candidate = async {
            let entry = frontier.best(*fingerprint, class).await.map_err(|e| e.to_string())?;
            let Some(entry) = entry else { return Ok(None) };
            let document = blobs.get(entry.offer.document, MOST_CANDIDATE_BYTES).await.map_err(|e| e.to_string())?;
            serde_json::from_slice::<Candidate>(&document).map(Some).map_err(|e| e.to_string())
        };
        match candidate.await {
            Ok(found) => known.extend(found.map(|candidate| (*fingerprint, candidate))),
            Err(error) => tracing::warn!(%error, kernel = %fingerprint, "what is known of a kernel could not be asked"),
        }
    }
    known
}

/// Keeps a frontier.
pub(super) struct BestKnown(Option<mpsc::Sender<Find>>);

impl BestKnown {
    /// Starts to keep `frontier`, from the journal in `data`.
    pub(super) fn start(
        frontier: Option<Arc<dyn Frontier>>,
        blobs: Blobs,
        data: PathBuf,
        epoch: u64,
        tally: Tally,
        stop: CancellationToken,
    ) -> Self {
        let Some(frontier) = frontier else { return Self(None) };
        let (finds, queue) = mpsc::channel(WAITING);
        let keeper = Keeper { frontier, blobs, data, epoch, tally, generation: None };
        tokio::spawn(stop.run_until_cancelled_owned(keeper.run(queue)));
        Self(Some(finds))
    }

    /// Offers a find, sooner or later.
    pub(super) async fn offer(&self, find: Find) {
        if let Some(finds) = &self.0 {
            // Its end is the coordinator's.
            let _ = finds.send(find).await;
        }
    }
}

struct Keeper {
    frontier: Arc<dyn Frontier>,
    blobs: Blobs,
    data: PathBuf,
    epoch: u64,
    tally: Tally,
    /// What the store held when it was last known to be right.
    generation: Option<Generation>,
}

impl Keeper {
    async fn run(mut self, mut finds: mpsc::Receiver<Find>) {
        loop {
            if let Err(error) = self.keep(&mut finds).await {
                // Once per change, however long it lasts.
                self.tally.frontier_down(&error);
                self.generation = None;
            } else {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Keeps it until it fails, or nobody offers any more.
    async fn keep(&mut self, finds: &mut mpsc::Receiver<Find>) -> Result<(), String> {
        self.check().await?;
        loop {
            match tokio::time::timeout(LOOK, finds.recv()).await {
                Ok(None) => return Ok(()),
                Ok(Some(find)) => self.offer(find).await?,
                Err(_) => self.check().await?,
            }
        }
    }

    async fn offer(&self, find: Find) -> Result<(), String> {
        let started = Instant::now();
        let offer = stored(&self.blobs, find, self.epoch).await?;
        let offered = self.frontier.offer(&offer).await.map_err(|e| e.to_string())?;
        self.tally.offered(&offer, &offered, started.elapsed());
        Ok(())
    }

    /// Rebuilds the store where it is not what it was.
    async fn check(&mut self) -> Result<(), String> {
        let found = self.frontier.generation().await.map_err(|e| e.to_string())?;
        if self.generation.is_some() && found == self.generation {
            return Ok(());
        }
        let started = Instant::now();
        let data = self.data.clone();
        let read = tokio::task::spawn_blocking(move || finds_of(&data)).await.map_err(|e| e.to_string())?;
        let mut entries: Vec<Entry> = Vec::new();
        for find in read.map_err(|e| e.to_string())? {
            let offer = stored(&self.blobs, find, self.epoch).await?;
            entries.push(Entry { offer, revision: 1 });
        }
        let best = best_of(entries);
        self.generation = Some(self.frontier.rebuild(&best, self.epoch).await.map_err(|e| e.to_string())?);
        tracing::info!(entries = best.len(), "the frontier was rebuilt from the journal");
        self.tally.rebuilt(started.elapsed());
        Ok(())
    }
}

/// Stores a find's candidate, so that others can have it.
async fn stored(blobs: &Blobs, find: Find, epoch: u64) -> Result<Offer, String> {
    let document = serde_json::to_vec(&find.candidate).map_err(|e| e.to_string())?;
    let document = blobs.put(Bytes::from(document)).await.map_err(|e| e.to_string())?;
    let Find { key: Key { fingerprint, class }, candidate, time_ns, baseline_ns, job } = find;
    Ok(Offer { fingerprint, class, candidate: candidate.id(), document, time_ns, baseline_ns, job, epoch })
}

/// The best entry of each key.
fn best_of(entries: Vec<Entry>) -> Vec<Entry> {
    let mut best: BTreeMap<Key, Entry> = BTreeMap::new();
    for entry in entries {
        let key = entry.offer.key();
        match best.get(&key) {
            Some(known) if known.offer.rank() <= entry.offer.rank() => {}
            _ => drop(best.insert(key, entry)),
        }
    }
    best.into_values().collect()
}

/// Every confirmation in the journal (invariant 3: the frontier is a function of it).
fn finds_of(data: &Path) -> Result<Vec<Find>, crate::journal::JournalError> {
    let mut finds = Vec::new();
    let reader = Journal::reader(data)?;
    for line in reader.jobs()? {
        let entries = reader.of_job(&line.job)?;
        let Some(Event::Opened { fingerprints, .. }) = entries.first().map(|entry| &entry.event) else { continue };
        let mut candidates: BTreeMap<Digest, &Candidate> = BTreeMap::new();
        for entry in &entries {
            match &entry.event {
                Event::Proposed { candidates: offered, .. } => candidates.extend(offered.iter().map(|c| (c.id(), c))),
                Event::Judged { target, depth: Depth::Confirm, outcome, device: Some(device) } => {
                    let known = fingerprints.get(target).zip(candidates.get(&outcome.candidate));
                    finds.extend(known.and_then(|(fingerprint, candidate)| {
                        let key = Key { fingerprint: *fingerprint, class: device.class() };
                        Find::of(key, candidate, outcome, line.job.clone())
                    }));
                }
                _ => {}
            }
        }
    }
    Ok(finds)
}
