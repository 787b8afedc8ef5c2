//! One job from a bundle to its outputs: asks [`crate::search::plan`] what to do, has it done, journals it, repeats.

pub mod claim;
mod folder;
pub mod model;
mod outputs;
mod summary;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use kernelopt_shared::bundle::{Bundle, BundleError};
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::result::{TuneResult, Untouched};
use kernelopt_shared::stop::Stop;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::{Agent, AgentError, Depth, Evaluate};

pub use claim::{ClaimError, rewrite_report};
pub use folder::{FolderError, JobFolder};
pub use summary::summarize;
pub use table::table;

use crate::inductor::StitchError;
use crate::inspect::InspectError;
use crate::journal::{Entry, Event, Journal, JournalError, WinnerRef};
use crate::search::plan::{self, Limits, Step};
use crate::search::proposer::Proposer;
use crate::search::rank;
use crate::search::state::JobState;

/// What to tune and how far.
#[derive(Clone, Debug)]
pub struct Options {
    /// The bundle.
    pub bundle: PathBuf,
    /// The output folder.
    pub out: PathBuf,
    /// When to end.
    pub limits: Limits,
    /// Seed of every draw of the job.
    pub seed: u64,
    /// Go on with the job that is in the output folder.
    pub resume: bool,
}

/// Sees every event as it is journaled, those of earlier runs included.
pub trait Observer {
    /// The job is about to take `step`.
    fn step(&mut self, step: &Step, targets: &[Target]);

    /// An event was journaled and applied.
    fn event(&mut self, entry: &Entry, state: &JobState, targets: &[Target]);
}

/// Why a job ended early.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are those of the parts")]
pub enum TuneError {
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Inspect(#[from] InspectError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Stitch(#[from] StitchError),
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

impl TuneError {
    fn part(&self) -> &dyn UserError {
        match self {
            Self::Bundle(e) => e,
            Self::Inspect(e) => e,
            Self::Folder(e) => e,
            Self::Journal(e) => e,
            Self::Agent(e) => e,
            Self::Stitch(e) => e,
            Self::Claim(e) => e,
        }
    }
}

impl UserError for TuneError {
    fn exit_code(&self) -> ExitCode {
        self.part().exit_code()
    }

    fn remedy(&self) -> Option<String> {
        self.part().remedy()
    }
}

/// A job at work.
pub struct Tune<'a> {
    bundle: Bundle,
    targets: Vec<Target>,
    untouched: Vec<Untouched>,
    folder: JobFolder,
    journal: Journal,
    entries: Vec<Entry>,
    state: JobState,
    limits: Limits,
    seed: u64,
    stop: Stop,
    agent: &'a mut dyn Agent,
    proposers: Vec<Box<dyn Proposer>>,
    observer: &'a mut dyn Observer,
}

impl<'a> Tune<'a> {
    /// Opens the bundle and the output folder; reads the journal where the job goes on.
    pub fn open(
        options: &Options,
        agent: &'a mut dyn Agent,
        proposers: Vec<Box<dyn Proposer>>,
        observer: &'a mut dyn Observer,
        stop: Stop,
    ) -> Result<Self, TuneError> {
        let bundle = Bundle::open(&options.bundle)?;
        let (targets, untouched) = crate::inspect::targets(&bundle)?;
        let folder = JobFolder::take(&options.out)?;
        let (journal, entries) = Journal::open(folder.root())?;
        let state = JobState::replay(&entries);
        let mut job = Self {
            bundle,
            targets,
            untouched,
            folder,
            journal,
            entries,
            state,
            limits: options.limits.clone(),
            seed: options.seed,
            stop,
            agent,
            proposers,
            observer,
        };
        job.join(options)?;
        Ok(job)
    }

    /// Begins a new job, or checks that the old one is of this bundle.
    fn join(&mut self, options: &Options) -> Result<(), TuneError> {
        let path = options.out.clone();
        match self.entries.first().map(|e| &e.event) {
            None => {
                let bundle_path = std::path::absolute(&options.bundle).unwrap_or_else(|_| options.bundle.clone());
                self.record(Event::Opened {
                    bundle: self.bundle.digest,
                    bundle_path: bundle_path.display().to_string(),
                    model: self.bundle.manifest.model.clone(),
                    program_version: env!("CARGO_PKG_VERSION").into(),
                    seed: self.seed,
                    proposers: self.proposers.iter().map(|p| p.name().to_owned()).collect(),
                })
            }
            Some(Event::Opened { bundle, .. }) if *bundle != self.bundle.digest => {
                Err(FolderError::OtherBundle { path, found: *bundle, expected: self.bundle.digest }.into())
            }
            Some(_) if !options.resume => Err(FolderError::HasJob { path }.into()),
            Some(Event::Opened { seed, .. }) => {
                self.seed = *seed;
                self.entries.iter().for_each(|entry| self.observer.event(entry, &self.state, &self.targets));
                Ok(())
            }
            Some(_) => Err(FolderError::Foreign { path }.into()),
        }
    }

    /// Works until the outputs are written. A stop ends it with [`AgentError::Stopped`]; everything journaled stays.
    pub fn run(mut self) -> Result<TuneResult, TuneError> {
        loop {
            if self.stop.asked() {
                return Err(AgentError::Stopped.into());
            }
            self.state.active = self.journal.active();
            let step = plan::next_step(&self.state, &self.targets, &self.limits);
            tracing::debug!(?step, judged = self.state.judged(), "next step");
            self.observer.step(&step, &self.targets);
            match step {
                Step::Profile => self.profile()?,
                Step::Propose { target } => self.propose(target)?,
                Step::Evaluate { target, tried, depth } => self.evaluate(target, tried, depth)?,
                Step::CheckModel { winners } => self.check_model(winners)?,
                Step::Finish => return self.finish(),
            }
        }
    }

    fn record(&mut self, event: Event) -> Result<(), TuneError> {
        let entry = self.journal.append(event)?;
        self.state.apply(&entry);
        self.observer.event(&entry, &self.state, &self.targets);
        self.entries.push(entry);
        Ok(())
    }

    fn profile(&mut self) -> Result<(), TuneError> {
        let profile = self.agent.profile(&self.bundle.root)?;
        self.record(Event::Profiled { profile })
    }

    /// Asks the proposers in turn; the first that has something new is heard.
    fn propose(&mut self, target: usize) -> Result<(), TuneError> {
        let (target, label) = (&self.targets[target], self.targets[target].label());
        let search = self.state.targets.entry(label.clone()).or_default();
        let history = search.history();
        let known: Vec<Digest> = search.tried.iter().map(|t| t.id).collect();
        let (mut heard, want) = (None, self.agent.batch());
        for proposer in &mut self.proposers {
            let offered: Vec<Candidate> = proposer.propose(target, &history, want);
            let new: Vec<Candidate> = offered.into_iter().filter(|c| !known.contains(&c.id())).collect();
            if !new.is_empty() {
                heard = Some((proposer.name().to_owned(), new));
                break;
            }
        }
        let Some((proposer, candidates)) = heard else { return self.record(Event::Exhausted { target: label }) };
        let build_ms = self.agent.build(target, &candidates)?.as_millis() as u64;
        self.record(Event::Proposed { target: label, proposer, candidates, build_ms })
    }

    fn evaluate(&mut self, target: usize, tried: usize, depth: Depth) -> Result<(), TuneError> {
        let target = &self.targets[target];
        let label = target.label();
        let Some(candidate) = self.state.targets.get(&label).and_then(|t| t.tried.get(tried)) else { return Ok(()) };
        let seed = evaluation_seed(self.seed, candidate.id, depth);
        match self.agent.evaluate(&Evaluate { target, candidate: &candidate.candidate, depth, seed }) {
            Ok(outcome) => self.record(Event::Judged { target: label, depth, outcome }),
            Err(AgentError::Baseline { what, .. }) => {
                self.record(Event::Abandoned { target: label, reason: format!("the compiler's code {what}") })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn check_model(&mut self, winners: Vec<WinnerRef>) -> Result<(), TuneError> {
        let files = outputs::optimized_files(&self.bundle, &self.targets, &self.state, &winners)?;
        let trial = self.folder.write_folder("optimized", &files)?;
        let check = self.agent.check_model(&self.bundle.root, &trial, self.seed)?;
        let verdict = model::decide(&check, self.replaced_share(&winners));
        self.record(Event::ModelChecked { winners, check, verdict })
    }

    fn replaced_share(&self, winners: &[WinnerRef]) -> f64 {
        let Some(profile) = &self.state.profile else { return 0.0 };
        let weights = rank::weights(&self.targets, profile);
        let replaced = self.targets.iter().zip(weights).filter(|(t, _)| winners.iter().any(|w| w.target == t.label()));
        replaced.map(|(_, weight)| weight.share).sum()
    }

    /// Writes the outputs, all from the journal; writing them again gives the same.
    fn finish(mut self) -> Result<TuneResult, TuneError> {
        let kept = self.state.model_checks.iter().rev().find(|c| c.verdict.improved);
        let winners = kept.map(|c| c.winners.clone()).unwrap_or_default();
        let files = outputs::optimized_files(&self.bundle, &self.targets, &self.state, &winners)?;
        self.folder.write_folder("optimized", &files)?;
        self.folder.write_folder("candidates", &outputs::candidate_files(&self.state, &winners))?;
        if self.state.finished.is_none() {
            self.record(Event::Finished { frontier: self.state.frontier_digest() })?;
        }
        let result = summarize(&self.bundle, &self.targets, &self.untouched, &self.entries);
        self.folder.write("report.html", outputs::report(&result, &self.entries).as_bytes())?;
        self.folder.write("result.json", &outputs::pretty_json(&result))?;
        Ok(result)
    }
}

/// Seed of one evaluation: the same whenever the job is run again, different for every look.
fn evaluation_seed(job: u64, candidate: Digest, depth: Depth) -> u64 {
    let digest = Digest::of([&job.to_le_bytes()[..], candidate.to_string().as_bytes(), format!("{depth:?}").as_bytes()]);
    u64::from_str_radix(&digest.to_string()[..16], 16).unwrap_or(job)
}

/// The budget when none is given.
pub const DEFAULT_BUDGET: Duration = Duration::from_secs(600);
