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
mod search;
mod speedups;
mod svg;
mod tables;
mod timeline;
mod verdicts;

use kernelopt_shared::result::TuneResult;

pub use search::{Judged, TimelinePoint, timeline_of};

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

/// The report as one HTML file.
pub fn render(report: &Report<'_>) -> String {
    page::document(report)
}

#[cfg(test)]
mod tests;
