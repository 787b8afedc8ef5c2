//! Recorded answers as a language model: for tests, demonstrations and exact reruns.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use async_trait::async_trait;
use kernelopt_shared::language_model::{Answer, LanguageModel, NanoUsd, Question, StopReason, TokenUsage, Unanswered};

use super::lines::{self, Line, LinesError};
use super::name::{Part, question_id};

/// What is on record, by the id of the question.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    answers: BTreeMap<String, Result<Answer, Unanswered>>,
    odd: Vec<String>,
}

impl Recorded {
    /// Reads a file of answers: lines of a batch's results, or rows `{"kernel", "answer"}`, of which the first about a kernel answers the first
    /// question for one, and so on. With `"question"`, as `repair.0.1`, it answers that one.
    ///
    /// # Errors
    /// The file cannot be read. Lines that cannot be used are [told](Self::odd).
    pub fn read(path: &Path) -> Result<Self, LinesError> {
        let mut recorded = Self::default();
        let mut next: BTreeMap<String, u32> = BTreeMap::new();
        for (number, line) in lines::read(path)? {
            let (id, said) = match line {
                Line::Odd(why) => {
                    recorded.odd.push(format!("line {number}: {why}"));
                    continue;
                }
                Line::Answer(id, said) => (id, said),
                Line::Row { kernel, part, text } => {
                    let part = match &part {
                        Some(text) => Part::parse(text),
                        None => {
                            let lineage = next.entry(kernel.clone()).or_default();
                            *lineage += 1;
                            Some(Part::Code(*lineage - 1))
                        }
                    };
                    let Some(part) = part else {
                        recorded.odd.push(format!("line {number}: there is no such question; write code.0, plan.0 or repair.0.1"));
                        continue;
                    };
                    (of_any_graph(&question_id(0, &kernel, part)), Ok(said_for_free(text)))
                }
            };
            match recorded.answers.entry(id) {
                Entry::Occupied(first) => recorded.odd.push(format!("line {number}: a second answer to {}; the first counts", first.key())),
                Entry::Vacant(place) => drop(place.insert(said)),
            }
        }
        Ok(recorded)
    }

    /// Lines that were left out, and why.
    pub fn odd(&self) -> &[String] {
        &self.odd
    }

    /// Questions that have an answer on record.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// True where there is no answer at all.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}

/// A row names no graph: the same kernel in any graph is meant.
fn of_any_graph(id: &str) -> String {
    format!("*{}", id.trim_start_matches(|c: char| c.is_ascii_digit()))
}

fn said_for_free(text: String) -> Answer {
    Answer { text, stop: StopReason::End, model: "recorded".into(), usage: TokenUsage::default(), cost: NanoUsd::ZERO }
}

#[async_trait]
impl LanguageModel for Recorded {
    async fn ask(&self, _job: &str, question: &Question) -> Result<Answer, Unanswered> {
        let said = self.answers.get(&question.id).or_else(|| self.answers.get(&of_any_graph(&question.id)));
        said.cloned().unwrap_or_else(|| Err(Unanswered::Refused { what: format!("no answer to {} is on record", question.id) }))
    }
}
