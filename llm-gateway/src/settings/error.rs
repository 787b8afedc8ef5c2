//! Settings that cannot be used.

use std::path::PathBuf;

use kernelopt_shared::exit::{ExitCode, UserError};

/// What there is to set.
const EXAMPLE: &str = "deploy/config/gateway-all.toml";

/// Why settings cannot be used: where, what, and what to do. Never a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{what}", file.as_ref().map(|file| format!("{}: ", file.display())).unwrap_or_default(),
    line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct SettingsError {
    /// The file.
    pub file: Option<PathBuf>,
    /// The line, from 1.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl SettingsError {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { file: None, line: None, what: what.into(), remedy: remedy.into() }
    }

    /// The parser's own message would show the line, which may hold a secret that somebody put there.
    pub(super) fn parser(error: &toml::de::Error, text: &str) -> Self {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        Self { line: Some(line), ..Self::new(error.message(), format!("Correct the file; {EXAMPLE} shows what there is.")) }
    }

    pub(super) fn at(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }
}

/// The line that a byte of a text is in, from 1.
pub(super) fn line_of(text: &str, byte: usize) -> usize {
    text.bytes().take(byte).filter(|byte| *byte == b'\n').count() + 1
}

impl UserError for SettingsError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Usage
    }

    fn remedy(&self) -> Option<String> {
        Some(self.remedy.clone())
    }
}
