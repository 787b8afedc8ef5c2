//! A batch, as it is kept and as it is shown.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{ENDPOINT, WINDOW, new_id, write_whole};
use crate::names::{JobName, KeyName};
use crate::usage::Usage;

/// Where a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Its file is looked through.
    Validating,
    /// Its file cannot be used.
    Failed,
    /// Lines are answered.
    InProgress,
    /// Its files are closed.
    Finalizing,
    /// Every line has its answer or error.
    Completed,
    /// Its time ran out.
    Expired,
    /// Lines under way end.
    Cancelling,
    /// It was cancelled.
    Cancelled,
}

impl Status {
    /// As it is shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Failed => "failed",
            Self::InProgress => "in_progress",
            Self::Finalizing => "finalizing",
            Self::Completed => "completed",
            Self::Expired => "expired",
            Self::Cancelling => "cancelling",
            Self::Cancelled => "cancelled",
        }
    }

    /// Nothing happens any more.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Failed | Self::Completed | Self::Expired | Self::Cancelled)
    }
}

/// Lines by what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All.
    pub total: u64,
    /// Answered.
    pub completed: u64,
    /// Not answered.
    pub failed: u64,
}

/// What is wrong with a line of the input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineError {
    /// One word.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// The field.
    pub param: Option<String>,
    /// The line, from 1.
    pub line: Option<u64>,
}

/// A batch. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Its name.
    pub id: String,
    /// Whose it is.
    pub key: KeyName,
    /// What it is for.
    pub job: JobName,
    /// The lines.
    pub input_file_id: String,
    /// Answers; there from the first one on.
    pub output_file_id: Option<String>,
    /// Errors; there from the first one on.
    pub error_file_id: Option<String>,
    /// Where it is.
    pub status: Status,
    /// When it was made.
    pub created_at: u64,
    /// When it expires.
    pub expires_at: u64,
    /// When it came into each state.
    pub since: BTreeMap<String, u64>,
    /// Lines.
    pub counts: Counts,
    /// What all lines took.
    pub input_tokens: u64,
    /// What all lines took.
    pub output_tokens: u64,
    /// What is wrong with the input.
    pub errors: Vec<LineError>,
    /// The caller's own.
    pub metadata: Option<Map<String, Value>>,
}

impl Batch {
    pub(super) fn new(key: &KeyName, job: &JobName, input: &str, seconds: u64, metadata: Option<Map<String, Value>>) -> Self {
        let now = now();
        Self {
            id: new_id("batch_"),
            key: key.clone(),
            job: job.clone(),
            input_file_id: input.into(),
            output_file_id: None,
            error_file_id: None,
            status: Status::Validating,
            created_at: now,
            expires_at: now + seconds,
            since: BTreeMap::new(),
            counts: Counts::default(),
            input_tokens: 0,
            output_tokens: 0,
            errors: Vec::new(),
            metadata,
        }
    }

    /// It is in this state now.
    pub(super) fn enter(&mut self, status: Status) {
        self.status = status;
        self.since.insert(status.name().into(), now());
    }

    pub(super) fn took(&mut self, usage: Usage) {
        self.input_tokens = self.input_tokens.saturating_add(usage.input);
        self.output_tokens = self.output_tokens.saturating_add(usage.output);
    }

    /// Every file that it reads or writes.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        [Some(&self.input_file_id), self.output_file_id.as_ref(), self.error_file_id.as_ref()].into_iter().flatten().map(String::as_str)
    }

    /// As OpenAI shows it.
    pub fn shown(&self) -> Value {
        let since = |status: Status| self.since.get(status.name());
        let errors = (!self.errors.is_empty()).then(|| json!({"object": "list", "data": self.errors}));
        json!({
            "id": self.id, "object": "batch", "endpoint": ENDPOINT, "errors": errors, "input_file_id": self.input_file_id,
            "completion_window": WINDOW.0, "status": self.status, "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id, "created_at": self.created_at, "expires_at": self.expires_at,
            "in_progress_at": since(Status::InProgress), "finalizing_at": since(Status::Finalizing),
            "completed_at": since(Status::Completed), "failed_at": since(Status::Failed), "expired_at": since(Status::Expired),
            "cancelling_at": since(Status::Cancelling), "cancelled_at": since(Status::Cancelled),
            "request_counts": self.counts, "metadata": self.metadata,
            "usage": {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens, "total_tokens": self.input_tokens.saturating_add(self.output_tokens)},
        })
    }

    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        write_whole(&folder.join(format!("{}.json", self.id)), self)
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
