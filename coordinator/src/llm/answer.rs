//! What a model said, read strictly: one fenced block of code, for Triton one of launches, and nothing guessed.

use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::language_model::{Answer, StopReason};
use kernelopt_shared::launch::{Launch, Scratch};
use kernelopt_shared::meaning::Expr;
use kernelopt_shared::target::{Language, Target};
use serde::Deserialize;
use std::collections::BTreeMap;

use super::rules;

/// Longest answer that is read, in bytes.
pub const MAX_ANSWER_BYTES: usize = 256 << 10;
/// Longest note that is kept of an answer, in characters.
const NOTE: usize = 120;
/// Longest idea, in characters.
const IDEA: usize = 400;
/// What an idea begins with.
const IDEA_MARK: &str = "IDEA:";

/// Why an answer holds no candidate, in a sentence that a model can act on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

impl Refusal {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// What an answer is.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// A candidate that breaks no rule which can be checked without building it.
    Candidate(Box<Candidate>),
    /// None.
    Refused(Refusal),
}

/// A fenced block.
struct Block<'a> {
    language: &'a str,
    text: &'a str,
}

/// Launches as a model states them; what it must not decide is filled in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stated {
    launches: Vec<StatedLaunch>,
    #[serde(default)]
    scratch: Vec<Scratch>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedLaunch {
    entry: String,
    grid: [Expr; 3],
    #[serde(default)]
    constants: BTreeMap<String, i64>,
    num_warps: u32,
    #[serde(default = "one")]
    num_stages: u32,
    #[serde(default)]
    arguments: Vec<String>,
}

const fn one() -> u32 {
    1
}

/// Reads an answer to a question for a kernel in place of `target`'s.
pub fn read(answer: &Answer, target: &Target, origin: Origin) -> Reading {
    match candidate(answer, target, origin) {
        Ok(candidate) => Reading::Candidate(Box::new(candidate)),
        Err(refusal) => Reading::Refused(refusal),
    }
}

fn candidate(answer: &Answer, target: &Target, origin: Origin) -> Result<Candidate, Refusal> {
    match answer.stop {
        StopReason::End => {}
        StopReason::Length => return Err(Refusal::new("the answer is cut at its limit of tokens; answer more shortly")),
        StopReason::Refusal => return Err(Refusal::new("the model would not answer")),
    }
    if answer.text.len() > MAX_ANSWER_BYTES {
        return Err(Refusal::new(format!("the answer has {} bytes; at most {MAX_ANSWER_BYTES} are read", answer.text.len())));
    }
    let blocks = blocks(&answer.text)?;
    let note = ideas(&answer.text).into_iter().next().unwrap_or_default().chars().take(NOTE).collect();
    let language = target.baseline.language;
    let base = Candidate {
        language,
        source: String::new(),
        launch: None,
        further: Vec::new(),
        scratch: Vec::new(),
        precision: Precision::Baseline,
        origin: Origin { note, ..origin },
    };
    let candidate = match language {
        Language::Cpp => {
            let [source] = only(&blocks, ["cpp"])?;
            Candidate { source: source.to_owned(), ..base }
        }
        Language::Triton => {
            let [source, launches] = only(&blocks, ["python", "json"])?;
            let stated: Stated = serde_json::from_str(launches)
                .map_err(|error| Refusal::new(format!("the json block is not what was asked for: {error}")))?;
            let Stated { launches, scratch } = stated;
            let mut launches = launches.into_iter().map(|stated| launch(stated, target, &scratch));
            let Some(first) = launches.next() else { return Err(Refusal::new("the json block has no launch")) };
            Candidate { source: source.to_owned(), launch: Some(first), further: launches.collect(), scratch, ..base }
        }
        Language::Cuda => return Err(Refusal::new("CUDA C++ cannot be put into the compiler's file")),
    };
    rules::check(&candidate, target)?;
    Ok(candidate)
}

/// The blocks of these languages, one of each, and no other.
fn only<'a, const N: usize>(blocks: &[Block<'a>], languages: [&str; N]) -> Result<[&'a str; N], Refusal> {
    let mut texts = [""; N];
    for (text, language) in texts.iter_mut().zip(languages) {
        let mut found = blocks.iter().filter(|block| block.language == language);
        *text = match (found.next(), found.next()) {
            (Some(block), None) => block.text,
            (None, _) => return Err(Refusal::new(format!("there is no ```{language} block"))),
            (Some(_), Some(_)) => return Err(Refusal::new(format!("there are several ```{language} blocks; give one"))),
        };
    }
    if blocks.len() == N { Ok(texts) } else { Err(Refusal::new(format!("there are {} fenced blocks; give {N}", blocks.len()))) }
}

/// Every fenced block, in order (CommonMark 0.31, section 4.5, fences of three backticks at the beginning of a line).
fn blocks(text: &str) -> Result<Vec<Block<'_>>, Refusal> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, usize)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let Some(info) = line.strip_prefix("```") else { continue };
        match open.take() {
            None => open = Some((info.trim(), at)),
            Some((language, begin)) if info.trim().is_empty() => blocks.push(Block { language, text: &text[begin..start] }),
            Some(_) => return Err(Refusal::new("a fenced block begins within another")),
        }
    }
    if open.is_some() { Err(Refusal::new("a fenced block has no end")) } else { Ok(blocks) }
}

/// The lines that state ideas, in order, bounded.
pub(super) fn ideas(text: &str) -> Vec<String> {
    let stated = text.lines().filter_map(|line| line.trim().strip_prefix(IDEA_MARK)).map(str::trim).filter(|idea| !idea.is_empty());
    stated.map(|idea| idea.chars().map(|c| if c.is_control() { ' ' } else { c }).take(IDEA).collect()).collect()
}

/// A launch with what the compiler fixed, and what it found divisible, filled in: both are so in every call, whichever code runs.
fn launch(stated: StatedLaunch, target: &Target, scratch: &[Scratch]) -> Launch {
    let StatedLaunch { entry, grid, constants, num_warps, num_stages, arguments } = stated;
    let is_passed = |name: &String| arguments.is_empty() || arguments.contains(name);
    let fixed = target.fixed_arguments().into_iter().filter(|(name, _)| is_passed(name));
    let known = target.baseline.launch.iter().flat_map(|launch| launch.divisible_by_16.iter());
    let ours = scratch.iter().map(|scratch| &scratch.name).filter(|name| arguments.contains(name));
    let divisible_by_16 = known.filter(|name| is_passed(name)).chain(ours).cloned().collect();
    Launch { entry, grid, constants: constants.into_iter().chain(fixed).collect(), divisible_by_16, num_warps, num_stages, arguments }
}
