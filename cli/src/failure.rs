//! How an error reaches a person.

use std::fmt::Display;

use kernelopt_shared::exit::{ExitCode, UserError};

/// An error, reduced to what is printed and the exit code.
#[derive(Debug)]
pub struct Failure {
    message: String,
    remedy: Option<String>,
    code: ExitCode,
}

impl<E: UserError> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { message: error.to_string(), remedy: error.remedy(), code: error.exit_code() }
    }
}

impl Failure {
    /// An error that has no type of its own.
    pub fn new(code: ExitCode, message: impl Display, remedy: &str) -> Self {
        Self { message: message.to_string(), remedy: Some(remedy.to_owned()), code }
    }

    /// The exit code.
    pub const fn code(&self) -> ExitCode {
        self.code
    }

    /// Replaces what to do.
    pub fn with_remedy(mut self, remedy: String) -> Self {
        self.remedy = Some(remedy);
        self
    }

    /// Prints it.
    pub fn tell(self) -> std::process::ExitCode {
        eprintln!("error: {}", self.message);
        if let Some(remedy) = self.remedy {
            eprintln!("       {remedy}");
        }
        std::process::ExitCode::from(self.code as u8)
    }
}
