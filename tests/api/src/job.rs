//! A job of the desk in memory: its events, and what follows from them.

use std::path::PathBuf;
use std::time::Duration;

use kernelopt_coordinator::http::view;
use kernelopt_coordinator::job::Terms;
use kernelopt_coordinator::journal::{Entry, Event};
use kernelopt_coordinator::search::state::JobState;
use kernelopt_coordinator::tune::summarize;
use kernelopt_shared::api::{Budget, EventView, FrontierRow, JobSpec, JobView, Phase};
use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::message::{DeviceClass, DeviceIdentity, DeviceKind, JobId};
use kernelopt_shared::result::Untouched;
use kernelopt_shared::stats::median;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::Depth;

/// A job.
pub struct Job {
    pub id: JobId,
    pub spec: JobSpec,
    pub bundle: Bundle,
    pub targets: Vec<Target>,
    untouched: Vec<Untouched>,
    class: DeviceClass,
    submitted_unix_ms: u64,
    pub entries: Vec<Entry>,
    pub state: JobState,
    pub cancelled: bool,
    pub failed: Option<String>,
    pub outputs: Option<PathBuf>,
}

impl Job {
    /// A job on a bundle; else why it cannot be one.
    pub fn open(id: JobId, spec: JobSpec, bundle: Bundle, submitted_unix_ms: u64) -> Result<Self, String> {
        let (targets, untouched) = kernelopt_coordinator::inspect::targets(&bundle).map_err(|e| e.to_string())?;
        let class = spec.class.clone().unwrap_or_else(|| class_of(&bundle));
        let (entries, state) = (Vec::new(), JobState::default());
        let mut job = Self {
            id,
            spec,
            bundle,
            targets,
            untouched,
            class,
            submitted_unix_ms,
            entries,
            state,
            cancelled: false,
            failed: None,
            outputs: None,
        };
        job.append(Event::Opened {
            bundle: job.bundle.digest,
            bundle_path: String::new(),
            blob: Some(job.spec.bundle),
            model: job.bundle.manifest.model.clone(),
            program_version: env!("CARGO_PKG_VERSION").into(),
            opened_unix_ms: submitted_unix_ms,
            terms: Terms::from(&job.spec),
            fingerprints: job.targets.iter().map(|target| (target.label(), target.fingerprint)).collect(),
        });
        Ok(job)
    }

    /// Journals an event; each takes a second of the job's time.
    pub fn append(&mut self, event: Event) {
        let seq = self.entries.len() as i64 + 1;
        let entry = Entry { seq, job: Some(self.id.clone()), active: Duration::from_secs(seq.unsigned_abs()), event };
        self.state.apply(entry.active, &entry.event);
        self.entries.push(entry);
    }

    pub fn phase(&self) -> Phase {
        let confirming = || self.state.targets.values().flat_map(|t| &t.tried).any(|t| t.outcomes.contains_key(&Depth::Confirm));
        match () {
            () if self.cancelled => Phase::Cancelled,
            () if self.failed.is_some() => Phase::Failed,
            () if self.state.finished.is_some() => Phase::Finished,
            () if !self.state.model_checks.is_empty() => Phase::CheckingModel,
            () if confirming() => Phase::Confirming,
            () if self.state.profile.is_some() => Phase::Searching,
            () => Phase::Waiting,
        }
    }

    pub fn view(&self) -> JobView {
        JobView {
            id: self.id.clone(),
            name: self.spec.name.to_string(),
            model: self.bundle.manifest.model.clone(),
            bundle: self.spec.bundle,
            phase: self.phase(),
            reason: self.failed.clone(),
            class: Some(self.class.clone()),
            priority: self.spec.priority.get(),
            weight: self.spec.weight.get(),
            submitted_unix_ms: self.submitted_unix_ms,
            active_seconds: self.state.active.as_secs_f64(),
            budget: Budget { seconds: self.spec.budget_seconds.get().into(), max_candidates: self.spec.max_candidates.get().into() },
            judged: self.state.judged(),
            last_event: self.entries.len() as u64,
            targets: view::targets(&self.state),
            verdict: view::verdict(&self.state),
        }
    }

    pub fn events(&self, after: u64, most: usize) -> Vec<EventView> {
        let new = self.entries.iter().filter(|entry| entry.seq.unsigned_abs() > after).take(most);
        new.map(|entry| EventView {
            seq: entry.seq.unsigned_abs(),
            job: self.id.clone(),
            active_ms: entry.active.as_millis() as u64,
            kind: entry.event.kind().into(),
            body: serde_json::to_value(&entry.event).expect("an event is JSON"),
        })
        .collect()
    }

    /// What it found, where it is finished.
    pub fn winners(&self) -> Vec<FrontierRow> {
        let finished = self.state.finished.iter().flat_map(|_| &self.targets);
        let rows = finished.filter_map(|target| {
            let search = self.state.targets.get(&target.label())?;
            let (tried, _) = search.winner()?;
            let pairs_ns = &tried.outcomes.get(&Depth::Confirm)?.evidence.pairs_ns;
            let median_us = |pick: fn(&(f64, f64)) -> f64| median(&pairs_ns.iter().map(pick).collect::<Vec<_>>()) / 1e3;
            let (baseline_us, best_us) = (median_us(|pair| pair.0), median_us(|pair| pair.1));
            Some(FrontierRow {
                fingerprint: target.fingerprint,
                class: self.class.clone(),
                candidate: tried.id,
                baseline_us,
                best_us,
                speedup: baseline_us / best_us,
                job: self.id.clone(),
            })
        });
        rows.collect()
    }

    /// Writes `result.json` and the winners' sources.
    pub fn write_outputs(&mut self, folder: PathBuf) -> std::io::Result<()> {
        let candidates = folder.join("candidates");
        std::fs::create_dir_all(&candidates)?;
        let result = summarize(&self.bundle, &self.targets, &self.untouched, &self.entries);
        std::fs::write(folder.join("result.json"), serde_json::to_vec_pretty(&result)?)?;
        std::fs::write(folder.join(".lock"), "")?;
        for tried in self.state.targets.values().filter_map(|t| Some(t.winner()?.0)) {
            std::fs::write(candidates.join(format!("{}.py", tried.id)), &tried.candidate.source)?;
        }
        self.outputs = Some(folder);
        Ok(())
    }
}

/// Class of the device on which the model was captured.
fn class_of(bundle: &Bundle) -> DeviceClass {
    let device = &bundle.manifest.device;
    let kind = if device.kind == "cuda" { DeviceKind::Cuda } else { DeviceKind::Cpu };
    let architecture = device.architecture().map_or_else(|| "x86_64".into(), |sm| format!("sm_{sm}"));
    let identity = DeviceIdentity {
        kind,
        uuid: String::new(),
        product: device.name.clone(),
        memory_bytes: 139 << 30,
        architecture,
        partition: None,
        driver: String::new(),
        threads: device.threads,
    };
    identity.class()
}
