//! Files of settings.

use std::fmt::Display;
use std::path::Path;

use kernelopt_shared::exit::ExitCode;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// Reads a file of settings. A word that it does not know is an error: it would be a setting that has no effect. `example` shows what
/// there is.
pub fn read<T: DeserializeOwned>(path: &Path, example: &str) -> Result<T, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("{}: {e}", path.display()), "Check the path."))?;
    // The parser's own message shows the line, which may hold a password.
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1);
        wrong(format!("{}: line {line}: {}", path.display(), error.message()), &format!("Correct the file; {example} shows what there is."))
    })
}

/// A setting that cannot be used.
pub fn wrong(what: impl Display, remedy: &str) -> Failure {
    Failure::new(ExitCode::Usage, what, remedy)
}
