//! Exit codes of the command line. Documented in `docs/exit-codes.md`; a code never changes its meaning.

/// Why a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Done; a kept baseline is a success too.
    Success = 0,
    /// A fault of ours, or one that no other code names.
    Failure = 1,
    /// The command line itself is wrong.
    Usage = 2,
    /// The input cannot be used: no such bundle, torn, tampered, unknown schema or torch version.
    BadInput = 3,
    /// The machine lacks something: compiler, Python, torch. `kernelopt doctor` says what.
    Environment = 4,
    /// The output cannot be written: disk full, read-only, or it belongs to another bundle.
    Output = 5,
    /// `verify` found that the claim does not hold here.
    ClaimFailed = 6,
    /// The coordinator cannot be reached, or cannot do it now.
    ServerUnavailable = 7,
    /// The coordinator refused: no token, one that does not reach so far, or a request that cannot be done.
    ServerRefused = 8,
    /// A job that was waited for failed.
    JobFailed = 9,
    /// A job that was waited for was cancelled.
    JobCancelled = 10,
    /// Nothing more can be done before a batch of questions is answered; `--resume` goes on.
    AwaitsAnswers = 11,
    /// Stopped by the user; `--resume` goes on.
    Interrupted = 130,
}

/// An error that a person will read: it has an exit code and says what to do.
pub trait UserError: std::error::Error {
    /// Exit code of a command that ends with it.
    fn exit_code(&self) -> ExitCode;

    /// What to do about it, as a sentence in the imperative.
    fn remedy(&self) -> Option<String> {
        None
    }
}
