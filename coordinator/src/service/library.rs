//! Bundles as jobs read them, and searches as they are opened.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernelopt_shared::blobs::{BlobError, Blobs};
use kernelopt_shared::bundle::{Bundle, PackError, unpack};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::frontier::Frontier;
use kernelopt_shared::message::{DeviceClass, JobId};

use super::best_known;
use crate::job::{Drill, Job, KernelSearch, Terms};
use crate::journal::{Draft, Entry, Event};
use crate::search::known::Known;
use crate::search::proposer::Proposer;
use crate::search::{NoProposer, proposer_named};
use crate::tune::TuneError;

/// Largest packed bundle that is taken, in bytes.
pub const MOST_BUNDLE_BYTES: u64 = 64 << 30;

/// Opens what jobs work on.
#[derive(Clone)]
pub struct Library {
    blobs: Blobs,
    /// Unpacked bundles, by the digest of their blob.
    shelf: PathBuf,
    frontier: Option<Arc<dyn Frontier>>,
    /// There is a language model to ask.
    has_model: bool,
}

/// Why a job cannot be opened.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are those of the parts")]
pub enum LibraryError {
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Unpack(#[from] PackError),
    #[error(transparent)]
    Tune(#[from] TuneError),
    #[error(transparent)]
    Proposer(#[from] NoProposer),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("reading a bundle: {0}")]
    Thread(tokio::task::JoinError),
}

impl UserError for LibraryError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Blob(_) | Self::Io { .. } => ExitCode::Environment,
            Self::Unpack(_) => ExitCode::BadInput,
            Self::Tune(e) => e.exit_code(),
            Self::Proposer(e) => e.exit_code(),
            Self::Thread(_) => ExitCode::Failure,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Tune(e) => e.remedy(),
            Self::Unpack(_) => Some("Submit the bundle's folder with `kernelopt submit`.".into()),
            Self::Proposer(e) => e.remedy(),
            _ => None,
        }
    }
}

impl Library {
    /// Of bundles in `blobs`, unpacked under `shelf`. `frontier` tells what is known of their kernels, and `has_model` whether `llm` can be
    /// asked for.
    pub const fn new(blobs: Blobs, shelf: PathBuf, frontier: Option<Arc<dyn Frontier>>, has_model: bool) -> Self {
        Self { blobs, shelf, frontier, has_model }
    }

    /// Opens the search of a packed bundle. What is known of its kernels is asked for where its class is known already.
    ///
    /// # Errors
    /// The bundle is not there or cannot be used, or a proposer is unknown.
    pub async fn search(&self, blob: Digest, terms: &Terms, placed: Option<&DeviceClass>) -> Result<KernelSearch, LibraryError> {
        let path = self.unpacked(blob).await?;
        let known = self.known(&path, placed.or(terms.class.as_ref())).await?;
        let (terms, has_model) = (terms.clone(), self.has_model);
        let open = move || {
            let named = terms.proposers.iter().map(|name| proposer_named(name, &terms, has_model)).collect::<Result<Vec<_>, _>>()?;
            let first: Option<Box<dyn Proposer>> = known.map(|known| Box::new(known) as _);
            Ok(KernelSearch::open(&path, Some(blob), &terms, first.into_iter().chain(named).collect())?)
        };
        tokio::task::spawn_blocking(open).await.map_err(LibraryError::Thread)?
    }

    /// The jobs that a journal holds, ready to go on. One that cannot is ended with the reason when it is next looked at.
    ///
    /// # Errors
    /// A bundle of theirs cannot be had.
    pub async fn jobs(&self, entries: &[Entry]) -> Result<Vec<(Job, Vec<Draft>)>, LibraryError> {
        let mut by_job: BTreeMap<&JobId, Vec<&Entry>> = BTreeMap::new();
        for entry in entries {
            if let Some(job) = &entry.job {
                by_job.entry(job).or_default().push(entry);
            }
        }
        let mut jobs = Vec::new();
        for (id, entries) in by_job {
            match entries.first().map(|entry| &entry.event) {
                Some(Event::Opened { blob: Some(blob), terms, .. }) => {
                    let placed = entries.iter().find_map(|entry| match &entry.event {
                        Event::Placed { class } => Some(class),
                        _ => None,
                    });
                    let search = self.search(*blob, terms, placed).await?;
                    jobs.push((Job::resume(id.clone(), terms.clone(), Box::new(search), entries), Vec::new()));
                }
                Some(event @ Event::Drill { terms, .. }) => {
                    let drill = Drill::of_event(event).into_iter().map(|drill| Box::new(drill) as _);
                    jobs.extend(drill.map(|drill| (Job::resume(id.clone(), terms.clone(), drill, entries.clone()), Vec::new())));
                }
                _ => tracing::warn!(job = %id, "its journal has no beginning that this coordinator can go on from"),
            }
        }
        Ok(jobs)
    }

    /// The folder of a bundle, unpacked once.
    async fn unpacked(&self, blob: Digest) -> Result<PathBuf, LibraryError> {
        let path = self.shelf.join(blob.to_string());
        if path.join(kernelopt_shared::bundle::MANIFEST).exists() {
            return Ok(path);
        }
        let io = |source| LibraryError::Io { path: self.shelf.clone(), source };
        tokio::fs::create_dir_all(&self.shelf).await.map_err(io)?;
        let packed = tempfile::NamedTempFile::new_in(&self.shelf).map_err(io)?;
        let mut file = tokio::fs::File::from_std(packed.reopen().map_err(io)?);
        self.blobs.get_into(blob, MOST_BUNDLE_BYTES, packed.path(), &mut file).await?;
        let (shelf, folder) = (self.shelf.clone(), path.clone());
        let unpack = move || {
            let io = |source| LibraryError::Io { path: shelf.clone(), source };
            let draft = tempfile::TempDir::new_in(&shelf).map_err(io)?;
            let inner = draft.path().join("bundle");
            unpack(packed.path(), &inner, MOST_BUNDLE_BYTES)?;
            match std::fs::rename(&inner, &folder) {
                // Somebody else was faster.
                Err(_) if folder.exists() => Ok(()),
                done => done.map_err(io),
            }
        };
        tokio::task::spawn_blocking(unpack).await.map_err(LibraryError::Thread)??;
        Ok(path)
    }

    /// What the frontier knows of the bundle's kernels on a class.
    async fn known(&self, path: &Path, class: Option<&DeviceClass>) -> Result<Option<Known>, LibraryError> {
        let (Some(frontier), Some(class)) = (&self.frontier, class) else { return Ok(None) };
        let bundle = Bundle::open(path).map_err(TuneError::from)?;
        let (targets, _) = crate::inspect::targets(&bundle).map_err(TuneError::from)?;
        let kernels: Vec<Digest> = targets.iter().map(|target| target.fingerprint).collect();
        Ok(Some(best_known::recall(frontier.as_ref(), &self.blobs, class, &kernels).await))
    }
}
