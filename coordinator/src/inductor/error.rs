//! Why a file is not read, and why an optimised file is not written.

use kernelopt_shared::exit::{ExitCode, UserError};

use super::text::Position;

/// Why a text is not a model graph. It names the place, what is there, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {kind}", at.line, at.column)]
pub struct ParseError {
    /// Where.
    pub at: Position,
    /// What.
    pub kind: ParseErrorKind,
}

/// What is wrong with the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// More of something than is read; the limits stand in [`super::limits`].
    #[error("{found} {what}; at most {limit} are read")]
    TooMuch {
        /// Of what: bytes, tokens, open brackets, ...
        what: &'static str,
        /// How many there are, or how many had been met when reading stopped.
        found: usize,
        /// How many are read.
        limit: usize,
    },
    /// A bracket without its partner.
    #[error("{found} does not fit {expected}")]
    Bracket {
        /// What stands there: `']'`, `the end of the file`.
        found: String,
        /// What it should fit: `'(' of line 3`.
        expected: String,
    },
    /// A string that does not end.
    #[error("string does not end")]
    OpenString,
    /// An f-string with quotes, backslashes or comments, which the compiler never writes.
    #[error("f-string with {found}, which the compiler never writes")]
    FormatString {
        /// What is in it.
        found: &'static str,
    },
    /// Not Python.
    #[error("not Python: {0}")]
    Syntax(String),
    /// Python, but nothing that the compiler writes.
    #[error("no function `call`: not an output_code.py of TorchInductor")]
    NoCall,
    /// The Python parser itself gave up.
    #[error("the Python parser gave up on this text")]
    Parser,
}

impl UserError for ParseError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::BadInput
    }

    fn remedy(&self) -> Option<String> {
        Some(match self.kind {
            ParseErrorKind::NoCall => {
                "Give the output_code.py that TORCH_COMPILE_DEBUG=1 writes, or a bundle made with `python -m kernelopt capture`.".into()
            }
            _ => "Check that the file is whole and was not edited; capture the model again if in doubt.".into(),
        })
    }
}

/// Why an optimised file is not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StitchError {
    /// No kernel has this name.
    #[error("there is no kernel {kernel}")]
    NoSuchKernel {
        /// The name asked for.
        kernel: String,
    },
    /// The kernel's source cannot be replaced.
    #[error("kernel {kernel} cannot be replaced: {reason}")]
    NotReplaceable {
        /// The kernel.
        kernel: String,
        /// Why.
        reason: String,
    },
    /// The written text did not read back as what was asked for. A fault of ours; the original file stands.
    #[error("the written file does not read back as intended: {detail}")]
    Unfaithful {
        /// What differs.
        detail: String,
    },
}

impl UserError for StitchError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Failure
    }

    fn remedy(&self) -> Option<String> {
        Some("Report it with the bundle; the compiler's own file is unchanged.".into())
    }
}
