//! What an output folder claims, and whether it is true here: fresh processes, fresh seeds, nothing believed.

use std::fs;
use std::path::{Path, PathBuf};

use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::result::{ModelVerdict, TuneResult};
use kernelopt_shared::target::Target;
use kernelopt_shared::task::{Agent, Depth, Evaluate};
use kernelopt_shared::verdict::Verdict;

use super::{TuneError, model, outputs};
use crate::journal::{Entry, Event, Journal, WinnerRef};
use crate::search::rank;
use crate::search::state::JobState;

/// An output folder, read.
pub struct Claim {
    out: PathBuf,
    bundle: PathBuf,
    result: TuneResult,
    entries: Vec<Entry>,
}

/// One thing that was looked at.
#[derive(Clone, Debug)]
pub struct Finding {
    /// True where the claim holds.
    pub holds: bool,
    /// What was found, in a line.
    pub text: String,
}

/// Why an output folder cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum ClaimError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    #[error("{}: the journal has no job", path.display())]
    NoJob { path: PathBuf },
}

impl UserError for ClaimError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::BadInput
    }

    fn remedy(&self) -> Option<String> {
        Some("Name the folder that was given to `kernelopt tune -o`; the job must have ended.".into())
    }
}

impl Claim {
    /// Reads the output folder `out`. `bundle` replaces the path that the journal remembers.
    ///
    /// # Errors
    /// No finished job is there, or a file of it does not decode.
    pub fn read(out: &Path, bundle: Option<&Path>) -> Result<Self, TuneError> {
        let result = read_result(out)?;
        let entries = Journal::read_only(out)?;
        let remembered = match entries.first().map(|e| &e.event) {
            Some(Event::Opened { bundle_path, .. }) => PathBuf::from(bundle_path),
            _ => return Err(ClaimError::NoJob { path: out.into() }.into()),
        };
        Ok(Self { out: out.into(), bundle: bundle.map_or(remembered, Path::to_path_buf), result, entries })
    }

    /// Folder of the bundle that was tuned.
    pub fn bundle(&self) -> &Path {
        &self.bundle
    }

    /// Checks everything that is claimed. `say` is told what is about to be done.
    ///
    /// # Errors
    /// Something could not be checked at all; a claim that does not hold is a finding.
    pub fn verify(&self, agent: &mut dyn Agent, seed: u64, say: &mut dyn FnMut(&str)) -> Result<Vec<Finding>, TuneError> {
        let bundle = Bundle::open(&self.bundle)?;
        let (targets, _) = crate::inspect::targets(&bundle)?;
        let state = JobState::replay(&self.entries);
        let kept = state.model_checks.iter().rev().find(|c| c.verdict.improved);
        let winners = kept.map(|c| c.winners.clone()).unwrap_or_default();
        let mut findings = vec![
            finding(bundle.digest == self.result.bundle, "the bundle is the one that was tuned"),
            finding(
                (self.result.model.verdict == ModelVerdict::Improved) == kept.is_some(),
                "result.json and the journal agree on the verdict",
            ),
            self.check_files(&bundle, &targets, &state, &winners)?,
        ];
        if winners.is_empty() {
            return Ok(findings);
        }
        for winner in &winners {
            say(&format!("confirming {}", winner.target));
            findings.extend(confirm(agent, &targets, &state, winner, seed)?);
        }
        say("comparing the whole model");
        let check = agent.check_model(&bundle.root, &self.out.join("optimized"), seed)?;
        let profile = state.profile.as_ref();
        let weights = profile.map(|p| rank::weights(&targets, p)).unwrap_or_default();
        let replaced = targets.iter().zip(&weights).filter(|(t, _)| winners.iter().any(|w| w.target == t.label()));
        let verdict = model::decide(&check, replaced.map(|(_, w)| w.share).sum());
        findings.push(Finding { holds: verdict.right && verdict.improved, text: format!("the whole model: {}", verdict.reason) });
        Ok(findings)
    }

    fn check_files(&self, bundle: &Bundle, targets: &[Target], state: &JobState, winners: &[WinnerRef]) -> Result<Finding, TuneError> {
        for (name, expected) in outputs::optimized_files(bundle, targets, state, winners)? {
            let path = self.out.join("optimized").join(&name);
            let found = fs::read(&path).map_err(|source| ClaimError::Io { path: path.clone(), source })?;
            if found != expected {
                return Ok(Finding { holds: false, text: format!("optimized/{name} is not what the journal's winners give") });
            }
        }
        let what =
            if winners.is_empty() { "the compiler's own code, byte for byte" } else { "the original with the journal's winners in place" };
        Ok(Finding { holds: true, text: format!("optimized/ is {what}") })
    }
}

fn finding(holds: bool, text: &str) -> Finding {
    Finding { holds, text: text.into() }
}

fn confirm(
    agent: &mut dyn Agent,
    targets: &[Target],
    state: &JobState,
    winner: &WinnerRef,
    seed: u64,
) -> Result<Option<Finding>, TuneError> {
    let target = targets.iter().find(|t| t.label() == winner.target);
    let (Some(target), Some(tried)) = (target, outputs::find(state, winner)) else {
        return Ok(Some(Finding { holds: false, text: format!("{}: the journal does not hold its winner", winner.target) }));
    };
    let outcome = agent.evaluate(&Evaluate { target, candidate: &tried.candidate, depth: Depth::Confirm, seed })?;
    let text = match &outcome.verdict {
        Verdict::Accepted { speedup } => format!("{}: {:.2}x [{:.2}, {:.2}]", winner.target, speedup.estimate, speedup.low, speedup.high),
        other => format!("{}: {}", winner.target, other.kind()),
    };
    Ok(Some(Finding { holds: matches!(outcome.verdict, Verdict::Accepted { .. }), text }))
}

fn read_result(out: &Path) -> Result<TuneResult, ClaimError> {
    let path = out.join("result.json");
    let text = fs::read(&path).map_err(|source| ClaimError::Io { path: path.clone(), source })?;
    serde_json::from_slice(&text).map_err(|source| ClaimError::Json { path, source })
}

/// Writes `report.html` of a finished job again and returns its path.
///
/// # Errors
/// No finished job is there, or the page cannot be written.
pub fn rewrite_report(out: &Path) -> Result<PathBuf, TuneError> {
    let result = read_result(out)?;
    let entries = Journal::read_only(out)?;
    let path = out.join("report.html");
    fs::write(&path, outputs::report(&result, &entries)).map_err(|source| ClaimError::Io { path: path.clone(), source })?;
    Ok(path)
}
