//! The `replay` proposer: candidates from a file.
//!
//! The file is a JSON list of `{"kernel": NAME, "source": TEXT, "note": TEXT}`; instead of `source`, `file` names a path
//! relative to the list.

use std::fs;
use std::path::{Path, PathBuf};

use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::launch::{Launch, Scratch};
use serde::Deserialize;

use super::proposer::{Offer, Proposer, Scene};

/// Greatest size of the list and of each file, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Offers what a file holds, in its order.
#[derive(Clone, Debug)]
pub struct Replay {
    rows: Vec<(String, Candidate)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    kernel: String,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    file: Option<PathBuf>,
    #[serde(default)]
    launch: Option<Launch>,
    #[serde(default)]
    further: Vec<Launch>,
    #[serde(default)]
    scratch: Vec<Scratch>,
    #[serde(default)]
    note: String,
}

/// Why a list of candidates cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum ReplayError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    #[error("{}: {detail}", path.display())]
    Content { path: PathBuf, detail: String },
}

impl UserError for ReplayError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::BadInput
    }

    fn remedy(&self) -> Option<String> {
        Some("A list of candidates is a JSON list of {\"kernel\", \"source\" or \"file\", \"launch\" on a GPU, \"note\"}.".into())
    }
}

impl Replay {
    /// Reads the list at `path`; `language` is that of the targets.
    pub fn read(path: &Path, language: kernelopt_shared::target::Language) -> Result<Self, ReplayError> {
        let text = read_bounded(path)?;
        let rows: Vec<Row> = serde_json::from_str(&text).map_err(|source| ReplayError::Json { path: path.into(), source })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let rows = rows.into_iter().enumerate().map(|(i, row)| {
            let source = match (row.source, row.file) {
                (Some(source), None) => source,
                (None, Some(file)) => read_bounded(&folder.join(file))?,
                _ => return Err(ReplayError::Content { path: path.into(), detail: format!("row {i}: needs either source or file") }),
            };
            let origin = Origin { proposer: "replay".into(), note: row.note, parent: None, round: 0 };
            Ok((
                row.kernel,
                Candidate {
                    language,
                    source,
                    launch: row.launch,
                    further: row.further,
                    scratch: row.scratch,
                    precision: Precision::Baseline,
                    origin,
                },
            ))
        });
        Ok(Self { rows: rows.collect::<Result<_, _>>()? })
    }
}

fn read_bounded(path: &Path) -> Result<String, ReplayError> {
    let error = |source| ReplayError::Io { path: path.into(), source };
    let bytes = fs::metadata(path).map_err(error)?.len();
    if bytes > MAX_BYTES {
        return Err(ReplayError::Content { path: path.into(), detail: format!("{bytes} bytes; at most {MAX_BYTES} are read") });
    }
    fs::read_to_string(path).map_err(error)
}

impl Proposer for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn propose(&mut self, scene: &Scene<'_>) -> Offer {
        let new = self.rows.iter().filter(|(kernel, candidate)| *kernel == scene.target.kernel && !scene.tried.contains(&candidate.id()));
        Offer::of(new.take(scene.want).map(|(_, candidate)| candidate.clone()).collect())
    }
}
