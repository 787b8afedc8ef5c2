//! The search for faster kernels of one compiled model.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kernelopt_shared::archive;
use kernelopt_shared::bundle::{Bundle, CapturedDevice};
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::language_model::Question;
use kernelopt_shared::message::{DeviceIdentity, JobId, Reply, Work};
use kernelopt_shared::result::{TuneResult, Untouched};
use kernelopt_shared::target::Target;
use kernelopt_shared::task::Depth;

use super::order::{Order, StoredBlob, task_id};
use super::plan::{Ahead, Plan, UnderWay};
use super::terms::Terms;
use crate::journal::{Entry, Event, Journal, WinnerRef};
use crate::search::allowance::{Affordable, Allowance};
use crate::search::exchange::Exchange;
use crate::search::known::Known;
use crate::search::plan::{Limits, Next, PATIENCE, Step, View};
use crate::search::proposer::{Proposer, Scene};
use crate::search::rank::{self, Weight};
use crate::search::state::JobState;
use crate::tune::{JobFolder, TuneError, model, outputs, summarize};

/// Longest that an evaluation may run.
const EVALUATION: Duration = Duration::from_secs(300);
/// Longest that a profile or a check of the model may run: both import torch and compile the model's file. Less than the half hour
/// after which a broker takes a message back.
const WHOLE_MODEL: Duration = Duration::from_secs(1500);

/// A compiled model, what is known of it, and who makes candidates for it.
pub struct KernelSearch {
    limits: Limits,
    allowance: Allowance,
    path: PathBuf,
    bundle: Bundle,
    /// The packed bundle, where it came over the network.
    blob: Option<Digest>,
    targets: Vec<Target>,
    /// The targets as agents read them.
    documents: Vec<StoredBlob>,
    untouched: Vec<Untouched>,
    weights: Vec<Weight>,
    state: JobState,
    proposers: Vec<Box<dyn Proposer>>,
    /// Targets whose proposers have nothing to say until something of theirs has ended: not asked again before.
    quiet: BTreeSet<usize>,
    opened_unix_ms: u64,
}

impl KernelSearch {
    /// Of the bundle at `path`.
    ///
    /// # Errors
    /// The bundle cannot be used.
    pub fn open(path: &Path, blob: Option<Digest>, terms: &Terms, proposers: Vec<Box<dyn Proposer>>) -> Result<Self, TuneError> {
        let bundle = Bundle::open(path)?;
        let (targets, untouched) = crate::inspect::targets(&bundle)?;
        let documents = targets.iter().map(StoredBlob::of_json).collect();
        let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let opened_unix_ms = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64);
        let (limits, allowance, weights, state) = (terms.limits(), terms.allowance(), Vec::new(), JobState::default());
        let quiet = BTreeSet::new();
        Ok(Self { limits, allowance, path, bundle, blob, targets, documents, untouched, weights, state, proposers, quiet, opened_unix_ms })
    }

    /// The bundle.
    pub const fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// Blob of the packed bundle, where the job came over the network.
    pub const fn blob(&self) -> Option<Digest> {
        self.blob
    }

    /// When the job was opened, in milliseconds since 1970.
    pub const fn opened_unix_ms(&self) -> u64 {
        self.opened_unix_ms
    }

    /// Its targets.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// What each target weighs; empty before the profile.
    pub fn weights(&self) -> &[Weight] {
        &self.weights
    }

    /// What its journal says.
    pub const fn state(&self) -> &JobState {
        &self.state
    }

    /// Asks the proposers in turn; the first that has something new is heard. None where that may change by what is under way.
    fn propose(&mut self, index: usize, want: usize, running: &BTreeSet<Step>) -> Option<Event> {
        let (target, label) = (&self.targets[index], self.targets[index].label());
        self.state.targets.entry(label.clone()).or_default();
        let Self { state, proposers, allowance, weights, bundle, .. } = self;
        let search = state.targets.get(&label)?;
        let history = search.history();
        let scene = Scene {
            target,
            history: &history,
            tried: search.tried.iter().map(|t| t.id).collect(),
            exchanges: &search.exchanges,
            weight: weights.get(index).copied().unwrap_or_default(),
            device: Some(&bundle.manifest.device),
            code: search.fastest().and_then(|t| t.outcomes.values().rev().find_map(|outcome| outcome.evidence.code.as_ref())),
            want,
        };
        let mut may_change = search.exchanges.iter().any(Exchange::is_open) || running.iter().any(|step| step.is_of(&label));
        for proposer in proposers.iter_mut().filter(|proposer| search.stale_of(proposer.name()) < PATIENCE) {
            let offer = proposer.propose(&scene);
            let is_new = |question: &Question| search.exchanges.iter().all(|asked| asked.question.id != question.id);
            for question in offer.questions.into_iter().filter(is_new) {
                match allowance.affords(state, &question) {
                    Affordable::Now => return Some(Event::Asked { target: label, question }),
                    Affordable::Later => may_change = true,
                    Affordable::Never => {}
                }
            }
            let candidates: Vec<Candidate> = offer.candidates.into_iter().filter(|c| !scene.tried.contains(&c.id())).collect();
            if !candidates.is_empty() {
                return Some(Event::Proposed { target: label, proposer: proposer.name().to_owned(), candidates });
            }
        }
        (!may_change).then_some(Event::Exhausted { target: label })
    }

    /// What the plan says, and what the proposers say where it asks them.
    fn next_of_search(&mut self, under_way: &UnderWay, batch: usize) -> Ahead {
        loop {
            let Self { state, targets, weights, limits, quiet, .. } = &*self;
            let view = View { state, targets, weights, limits, running: &under_way.steps, quiet, batch };
            match view.next() {
                Next::Run(step) => return Ahead::Run(step),
                Next::Propose { target } => match self.propose(target, batch, &under_way.steps) {
                    Some(event) => return Ahead::Record(event),
                    None => drop(self.quiet.insert(target)),
                },
                Next::Wait => return Ahead::Wait,
                Next::Finish => return Ahead::Finish,
            }
        }
    }

    /// Where somebody may have something to say again after `event`: on its target, or on all, since an answer settles what it took.
    fn listen_again(&mut self, event: &Event) {
        match event {
            Event::Answered { .. } => self.quiet.clear(),
            Event::Proposed { target, .. } | Event::Judged { target, .. } | Event::Abandoned { target, .. } => {
                self.quiet.retain(|index| self.targets[*index].label() != *target);
            }
            Event::Released { step, .. } | Event::Quarantined { step, .. } => {
                self.quiet.retain(|index| !step.is_of(&self.targets[*index].label()));
            }
            _ => {}
        }
    }

    fn evaluation(&self, target: &str, candidate: Digest, depth: Depth) -> Result<(Work, StoredBlob, BTreeSet<String>), String> {
        let index = self.targets.iter().position(|t| t.label() == target).ok_or("a step names no target of the bundle")?;
        let tried = self.state.targets.get(target).and_then(|t| t.tried.iter().find(|t| t.id == candidate));
        let tried = tried.ok_or("a step names no candidate of the target")?;
        let document = self.documents[index].clone();
        let avoid = if depth == Depth::Confirm { tried.devices.clone() } else { BTreeSet::new() };
        Ok((Work::Evaluate { target: document.digest, candidate: tried.candidate.clone(), depth }, document, avoid))
    }

    fn replaced_share(&self, winners: &[WinnerRef]) -> f64 {
        let replaced = self.targets.iter().zip(&self.weights).filter(|(t, _)| winners.iter().any(|w| w.target == t.label()));
        replaced.map(|(_, weight)| weight.share).sum()
    }

    /// Writes what stands in the place of the compiler's code, from the journal alone, and returns the event that says so.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write_model(&self, folder: &JobFolder) -> Result<Event, TuneError> {
        let kept = self.state.model_checks.iter().rev().find(|c| c.verdict.improved);
        let winners = kept.map(|c| c.winners.clone()).unwrap_or_default();
        let files = outputs::optimized_files(&self.bundle, &self.targets, &self.state, &winners)?;
        folder.write_folder("optimized", &files)?;
        folder.write_folder("candidates", &outputs::candidate_files(&self.state, &winners))?;
        Ok(Event::Finished { frontier: self.state.frontier_digest() })
    }

    /// Writes the summaries of a finished job: all from its journal, so that writing them again gives the same. A folder that is not the
    /// journal's own (`exports`) gets a journal with the job's events.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write_summaries(&self, folder: &JobFolder, entries: &[Entry], exports: bool) -> Result<TuneResult, TuneError> {
        if exports {
            Journal::export(folder.root(), entries)?;
        }
        let result = summarize(&self.bundle, &self.targets, &self.untouched, entries);
        folder.write("report.html", outputs::report(&result, entries).as_bytes())?;
        folder.write("result.json", &outputs::pretty_json(&result))?;
        Ok(result)
    }
}

impl Plan for KernelSearch {
    fn opening(&self, terms: &Terms) -> Event {
        Event::Opened {
            bundle: self.bundle.digest,
            bundle_path: self.path.display().to_string(),
            blob: self.blob,
            model: self.bundle.manifest.model.clone(),
            program_version: env!("CARGO_PKG_VERSION").into(),
            opened_unix_ms: self.opened_unix_ms,
            terms: terms.clone(),
            fingerprints: self.targets.iter().map(|target| (target.label(), target.fingerprint)).collect(),
        }
    }

    fn next(&mut self, under_way: &UnderWay, batch: usize, active: Duration) -> Ahead {
        self.state.active = active;
        let is_out = |question: &Question| under_way.questions.contains(&question.id);
        let unasked = self.state.exchanges().map(|(_, exchange)| exchange).find(|e| e.is_open() && !is_out(&e.question));
        match unasked.map(|exchange| exchange.question.clone()) {
            Some(question) if self.listens(under_way) => Ahead::Ask(question),
            _ => self.next_of_search(under_way, batch),
        }
    }

    fn awaits(&self, question: &str) -> Option<String> {
        let mut open = self.state.exchanges().filter(|(_, exchange)| exchange.is_open());
        open.find(|(_, exchange)| exchange.question.id == question).map(|(label, _)| label.to_owned())
    }

    fn listens(&self, under_way: &UnderWay) -> bool {
        let Self { state, targets, weights, limits, quiet, .. } = self;
        !View { state, targets, weights, limits, running: &under_way.steps, quiet, batch: 1 }.search_is_over()
    }

    fn order(&self, job: &JobId, terms: &Terms, step: &Step) -> Result<Order, String> {
        let (task, bundle) = (task_id(job, step), self.blob.unwrap_or(self.bundle.digest));
        let order = |work, blobs, seed, run_limit, avoid| Order { task, step: step.clone(), work, bundle, blobs, seed, run_limit, avoid };
        match step {
            Step::Profile => Ok(order(Work::Profile, Vec::new(), terms.seed, WHOLE_MODEL, BTreeSet::new())),
            Step::Evaluate { target, candidate, depth } => {
                let (work, document, avoid) = self.evaluation(target, *candidate, *depth)?;
                Ok(order(work, vec![document], evaluation_seed(terms.seed, *candidate, *depth), EVALUATION, avoid))
            }
            Step::CheckModel { winners } => {
                let files = outputs::optimized_files(&self.bundle, &self.targets, &self.state, winners).map_err(|e| e.to_string())?;
                let named = files.iter().map(|(name, content)| (name.as_str(), content.as_slice()));
                let packed = StoredBlob::of(archive::pack_bytes(named).map_err(|e| e.to_string())?);
                Ok(order(Work::CheckModel { optimized: packed.digest }, vec![packed], terms.seed, WHOLE_MODEL, BTreeSet::new()))
            }
            Step::Nothing { .. } => Err("a search has no drill".into()),
        }
    }

    fn event_of(&self, step: &Step, reply: Reply, device: &DeviceIdentity) -> Option<Event> {
        match (step, reply) {
            (Step::Profile, Reply::Profiled(profile)) => Some(Event::Profiled { profile }),
            (Step::Evaluate { target, candidate, depth }, Reply::Judged(outcome)) if outcome.candidate == *candidate => {
                Some(Event::Judged { target: target.clone(), depth: *depth, outcome: *outcome, device: Some(device.clone()) })
            }
            (Step::CheckModel { winners }, Reply::ModelChecked(check)) => {
                let verdict = model::decide(&check, self.replaced_share(winners));
                Some(Event::ModelChecked { winners: winners.clone(), check, verdict })
            }
            _ => None,
        }
    }

    fn apply(&mut self, active: Duration, event: &Event) {
        self.state.apply(active, event);
        self.listen_again(event);
        match event {
            Event::Opened { opened_unix_ms, .. } => self.opened_unix_ms = *opened_unix_ms,
            Event::Profiled { profile } => self.weights = rank::weights(&self.targets, profile),
            _ => {}
        }
    }

    fn is_settled(&self, step: &Step) -> bool {
        match step {
            Step::Profile => self.state.profile.is_some(),
            Step::Evaluate { target, candidate, depth } => self.state.targets.get(target).is_some_and(|search| {
                let tried = search.tried.iter().find(|t| t.id == *candidate);
                search.abandoned.is_some() || tried.is_none_or(|t| t.quarantined.is_some() || t.outcomes.contains_key(depth))
            }),
            Step::CheckModel { winners } => self.state.model_checks.iter().any(|check| check.winners == *winners),
            Step::Nothing { .. } => true,
        }
    }

    fn is_over(&self) -> bool {
        self.state.finished.is_some() || self.state.ended.is_some()
    }

    fn recall(&mut self, known: Known) {
        self.proposers.insert(0, Box::new(known));
    }

    fn device(&self) -> Option<&CapturedDevice> {
        Some(&self.bundle.manifest.device)
    }

    fn as_search(&self) -> Option<&KernelSearch> {
        Some(self)
    }
}

/// Seed of one evaluation: the same whenever the job is run again, different for every look.
fn evaluation_seed(job: u64, candidate: Digest, depth: Depth) -> u64 {
    let digest = Digest::of([&job.to_le_bytes()[..], candidate.to_string().as_bytes(), format!("{depth:?}").as_bytes()]);
    u64::from_str_radix(&digest.to_string()[..16], 16).unwrap_or(job)
}
