//! Questions that go out as files: the job waits on disk at no cost, and answers come back as files.
//!
//! ```text
//! OUT/batch/round-1.requests.jsonl   what is asked, in OpenAI's batch input format
//! OUT/batch/round-1.results.jsonl    what came back, put there by whoever sent it; lines in any order
//! OUT/batch/round-2.requests.jsonl   what is asked once those are read
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use kernelopt_shared::language_model::{Answer, LanguageModel, Question, Unanswered};

use super::lines::{self, Line, LinesError};

/// Rounds at most: a job has far fewer.
const ROUNDS: u32 = 1_000;

/// Writes down what is asked, and answers from what is there.
#[derive(Debug)]
pub struct Batch {
    folder: PathBuf,
    round: u32,
    answers: BTreeMap<String, Result<Answer, Unanswered>>,
    odd: Vec<String>,
    /// Questions in the round's file.
    out: Mutex<BTreeSet<String>>,
}

/// A file that waits to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The questions.
    pub requests: PathBuf,
    /// Where the answers are looked for.
    pub results: PathBuf,
    /// How many questions.
    pub count: usize,
}

impl Batch {
    /// Reads what the folder of a job's batches holds; it is made when something is first asked.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn open(folder: &Path) -> Result<Self, LinesError> {
        let rounds: Vec<u32> = (1..=ROUNDS).take_while(|round| requests(folder, *round).exists()).collect();
        let (mut asked, mut answers, mut odd) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
        let mut last_answered = 0;
        for round in &rounds {
            asked.extend(lines::ids(&requests(folder, *round))?);
            let path = results(folder, *round);
            if !path.exists() {
                continue;
            }
            last_answered = *round;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            for (number, line) in lines::read(&path)? {
                match line {
                    Line::Answer(id, _) if !asked.contains(&id) => odd.push(format!("{name}, line {number}: nobody asked {id:?}")),
                    Line::Answer(id, _) if answers.contains_key(&id) => {
                        odd.push(format!("{name}, line {number}: a second answer to {id}; the first counts"));
                    }
                    Line::Answer(id, said) => {
                        if let Err(why) = &said {
                            odd.push(format!("{name}, line {number}: {id}: {why}"));
                        }
                        answers.insert(id, said);
                    }
                    Line::Row { .. } => odd.push(format!("{name}, line {number}: no line of a batch's results")),
                    Line::Odd(why) => odd.push(format!("{name}, line {number}: {why}")),
                }
            }
            let missing = asked.iter().filter(|id| !answers.contains_key(*id));
            odd.extend(missing.map(|id| format!("{name}: no answer to {id}")));
        }
        let round = last_answered + 1;
        let current = requests(folder, round);
        let out = if current.exists() { lines::ids(&current)? } else { BTreeSet::new() };
        Ok(Self { folder: folder.to_owned(), round, answers, odd, out: Mutex::new(out) })
    }

    /// Lines that were left out or that failed, and questions without an answer, in sentences.
    pub fn odd(&self) -> &[String] {
        &self.odd
    }

    /// The file that waits to be sent; none where nothing does.
    pub fn pending(&self) -> Option<Pending> {
        let count = self.lock().len();
        let (requests, results) = (requests(&self.folder, self.round), results(&self.folder, self.round));
        (count > 0).then_some(Pending { requests, results, count })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a question down, once.
    fn note(&self, question: &Question) -> io::Result<()> {
        let mut out = self.lock();
        if out.contains(&question.id) {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        let path = requests(&self.folder, self.round);
        let mut file = File::options().create(true).append(true).read(true).open(&path)?;
        drop_torn_line(&mut file)?;
        file.write_all(lines::request(question).as_bytes())?;
        file.sync_data()?;
        out.insert(question.id.clone());
        Ok(())
    }
}

fn requests(folder: &Path, round: u32) -> PathBuf {
    folder.join(format!("round-{round}.requests.jsonl"))
}

fn results(folder: &Path, round: u32) -> PathBuf {
    folder.join(format!("round-{round}.results.jsonl"))
}

/// Whoever wrote before may have been killed in the middle of a line: what is there of it goes, since a provider would refuse the file.
fn drop_torn_line(file: &mut File) -> io::Result<()> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < text.len() { file.set_len(whole as u64) } else { Ok(()) }
}

#[async_trait]
impl LanguageModel for Batch {
    async fn ask(&self, _job: &str, question: &Question) -> Result<Answer, Unanswered> {
        if let Some(said) = self.answers.get(&question.id) {
            return said.clone();
        }
        match self.note(question) {
            Ok(()) => Err(Unanswered::Later),
            Err(error) => Err(Unanswered::Unavailable { what: format!("{}: {error}", self.folder.display()), retry_after: None }),
        }
    }
}
