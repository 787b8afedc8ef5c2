//! What a job leaves behind.

use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::result::TuneResult;
use kernelopt_shared::target::{Language, Target};
use kernelopt_shared::task::Depth;
use serde::Serialize;

use super::TuneError;
use crate::inductor::sequence::Sequence;
use crate::inductor::{ModelFile, Replacements, StitchError, triton};
use crate::journal::{Entry, Event, WinnerRef};
use crate::report::{Judged, Report, timeline_of};
use crate::search::state::{JobState, Tried};

/// `output_code_N.py` of every graph with the winners in place. A graph without a winner is the original, byte for byte.
pub fn optimized_files(
    bundle: &Bundle,
    targets: &[Target],
    state: &JobState,
    winners: &[WinnerRef],
) -> Result<Vec<(String, Vec<u8>)>, TuneError> {
    let mut files = Vec::new();
    for graph in &bundle.manifest.graphs {
        let text = bundle.text(&graph.code)?;
        let (mut replacements, mut sequences) = (Replacements::new(), Vec::new());
        for target in targets.iter().filter(|t| t.graph == graph.index) {
            let Some(candidate) = winner_of(state, winners, target) else { continue };
            let mut sources = sources(candidate, target)?.into_iter();
            replacements.extend(sources.next().map(|source| (target.kernel.clone(), source)));
            if candidate.has_sequence() {
                sequences.push((target, candidate, sources.collect::<Vec<_>>()));
            }
        }
        let parse = |text: &str| ModelFile::parse(text).map_err(crate::inspect::InspectError::from);
        let mut text = if replacements.is_empty() { text } else { parse(&text)?.write(&replacements)? };
        for (target, candidate, sources) in &sequences {
            text = parse(&text)?.with_sequence(&Sequence { kernel: &target.kernel, meaning: &target.meaning, candidate, sources })?;
        }
        files.push((format!("output_code_{}.py", graph.index), text.into_bytes()));
    }
    Ok(files)
}

fn winner_of<'s>(state: &'s JobState, winners: &[WinnerRef], target: &Target) -> Option<&'s Candidate> {
    let label = target.label();
    winners.iter().find(|w| w.target == label).and_then(|winner| find(state, winner)).map(|tried| &tried.candidate)
}

/// What stands in the file for a target's winner: for Triton, a module for each launch, under the compiler's own decorator.
fn sources(candidate: &Candidate, target: &Target) -> Result<Vec<String>, TuneError> {
    match candidate.language {
        Language::Triton => triton::render(candidate, target)
            .map_err(|why| StitchError::NotReplaceable { kernel: target.kernel.clone(), reason: why.to_string() }.into()),
        Language::Cpp => Ok(vec![candidate.source.clone()]),
        Language::Cuda => {
            let reason = "CUDA C++ has no place in the compiler's file yet".into();
            Err(StitchError::NotReplaceable { kernel: target.kernel.clone(), reason }.into())
        }
    }
}

/// The candidate behind a winner.
pub fn find<'s>(state: &'s JobState, winner: &WinnerRef) -> Option<&'s Tried> {
    state.targets.get(&winner.target)?.tried.iter().find(|t| t.id == winner.candidate)
}

/// Source and evidence of each winner.
pub fn candidate_files(state: &JobState, winners: &[WinnerRef]) -> Vec<(String, Vec<u8>)> {
    #[derive(Serialize)]
    struct Evidence<'a> {
        target: &'a str,
        origin: &'a kernelopt_shared::candidate::Origin,
        confirmed: Option<&'a kernelopt_shared::verdict::Outcome>,
    }
    let found = winners.iter().filter_map(|winner| Some((winner, find(state, winner)?)));
    found
        .flat_map(|(winner, tried)| {
            let evidence =
                Evidence { target: &winner.target, origin: &tried.candidate.origin, confirmed: tried.outcomes.get(&Depth::Confirm) };
            [
                (format!("{}.{}", tried.id, tried.candidate.language.extension()), tried.candidate.source.clone().into_bytes()),
                (format!("{}.json", tried.id), pretty_json(&evidence)),
            ]
        })
        .collect()
}

/// The report page.
pub fn report(result: &TuneResult, entries: &[Entry]) -> String {
    let model = entries.iter().find_map(|entry| match &entry.event {
        Event::Opened { model, .. } => Some(model.as_str()),
        _ => None,
    });
    let judged = entries.iter().filter_map(|entry| match &entry.event {
        Event::Judged { target, depth, outcome, .. } => Some(Judged {
            seconds: entry.active.as_secs_f64(),
            target,
            candidate: outcome.candidate,
            depth: *depth,
            verdict: &outcome.verdict,
        }),
        _ => None,
    });
    crate::report::render(&Report { model: model.unwrap_or_default(), result, timeline: &timeline_of(result, judged) })
}

/// JSON for people, with a line end.
pub fn pretty_json(value: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
    text.push(b'\n');
    text
}
