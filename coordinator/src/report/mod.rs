//! `report.html`: what a `tune` did, pictures first.
//!
//! One file that needs nothing else: no network, no script, no font. Pictures are SVG made here; each says in words what it
//! shows, and the tables under them hold the same figures. Widths are percentages and heights are pixels, so that text keeps
//! its size on a phone. Kernel names and notes come from outside and are escaped by construction (`markup`).

mod axis;
mod format;
mod markup;
mod page;
mod palette;
mod parts;
mod speedups;
mod svg;
mod tables;
mod timeline;
mod verdicts;

use kernelopt_shared::result::TuneResult;
use kernelopt_shared::verdict::Verdict;
use serde::{Deserialize, Serialize};

/// What a report is made of.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// What was tuned, for people: `examples/token_loss.py:make`.
    pub model: &'a str,
    /// The result, as in `result.json`.
    pub result: &'a TuneResult,
    /// Every verdict of the search, in any order.
    pub timeline: &'a [TimelinePoint],
}

/// One verdict of the search, as the timeline shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// When it came, in seconds of work since the job began; pauses between resumed runs do not count.
    pub seconds: f64,
    /// Label of the target, as of [`kernelopt_shared::target::Target::label`].
    pub target: String,
    /// Kind of the verdict, as of [`Verdict::kind`].
    pub kind: String,
    /// Measured speed-up of this candidate, where there is one.
    pub speedup: Option<f64>,
    /// Best confirmed speed-up of the target after this verdict; one where the baseline stands.
    pub best: f64,
    /// What the whole model would gain if every target's best held in it; an estimate until the model gate has measured it.
    pub model_estimate: Option<f64>,
}

impl TimelinePoint {
    /// The point of `verdict` on `target` after `seconds`, which leaves `best` standing.
    pub fn of(seconds: f64, target: String, verdict: &Verdict, best: f64, model_estimate: Option<f64>) -> Self {
        let speedup = verdict.speedup().map(|interval| interval.estimate);
        Self { seconds, target, kind: verdict.kind().to_owned(), speedup, best, model_estimate }
    }
}

/// The report as one HTML file.
pub fn render(report: &Report<'_>) -> String {
    page::document(report)
}

#[cfg(test)]
mod tests;
