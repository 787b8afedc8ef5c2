//! Why there is no machine code, and whose fault it is.

use std::fmt;
use std::io;
use std::path::PathBuf;

use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::verdict::Verdict;

/// Why there is no machine code.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum BuildError {
    /// The source breaks a rule.
    #[error("refused before compiling: {}{reason}", Line(*line))]
    Refused { line: Option<u32>, reason: String },
    /// The compiler said no, or what it made cannot be launched in the target's place.
    #[error("{}{reason}", Line(*line))]
    Compiler { line: Option<u32>, reason: String },
    /// The build took too long, or too much.
    #[error("the build was stopped: {0}")]
    Stopped(String),
    /// The kernel has no float64 twin. That says nothing against it, but there is no truth to judge others by.
    #[error("no float64 twin: {}{reason}", Line(*line))]
    Untwinned { line: Option<u32>, reason: String },
    /// The machine lacks something.
    #[error("{what}")]
    Environment { what: String, remedy: String },
    /// A build worker failed in itself.
    #[error("build worker: {0}")]
    Worker(String),
    /// The cache, or a scratch folder.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl BuildError {
    /// The verdict on the candidate; none where the error is not its own.
    pub fn verdict(&self) -> Option<Verdict> {
        let reason = self.to_string();
        match self {
            Self::Refused { .. } => Some(Verdict::Rejected { reason }),
            Self::Compiler { .. } | Self::Stopped(_) => Some(Verdict::BuildFailed { reason }),
            Self::Untwinned { .. } | Self::Environment { .. } | Self::Worker(_) | Self::Io { .. } => None,
        }
    }
}

impl UserError for BuildError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Environment { .. } => ExitCode::Environment,
            _ => ExitCode::Failure,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Environment { remedy, .. } => Some(remedy.clone()),
            _ => None,
        }
    }
}

/// `line 3: `, or nothing.
struct Line(Option<u32>);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, "line {line}: "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_the_source_are_verdicts_and_ours_are_not() {
        let refused = BuildError::Refused { line: Some(3), reason: "import of os".into() };
        assert_eq!(refused.to_string(), "refused before compiling: line 3: import of os");
        assert_eq!(refused.verdict().unwrap().kind(), "rejected");
        assert_eq!(BuildError::Compiler { line: None, reason: "no".into() }.verdict().unwrap().kind(), "build_failed");
        assert_eq!(BuildError::Stopped("too long".into()).verdict().unwrap().kind(), "build_failed");
        let ours = BuildError::Environment { what: "no triton".into(), remedy: "pip install triton".into() };
        assert_eq!((ours.verdict(), ours.exit_code(), ours.remedy().as_deref()), (None, ExitCode::Environment, Some("pip install triton")));
        assert_eq!(BuildError::Untwinned { line: None, reason: "tl.dot".into() }.verdict(), None);
    }
}
