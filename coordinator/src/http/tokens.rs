//! Bearer tokens (RFC 6750) and what each may do.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::secret::{self, ExposeSecret, SecretError, SecretString};
use sha2::{Digest as _, Sha256};

/// Least length of a token, in characters; `openssl rand -hex 32` gives 64.
const LEAST: usize = 20;
/// Greatest length of a token.
const MOST: usize = 512;
/// Most tokens.
const MOST_TOKENS: usize = 1000;

/// Who holds a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Looks.
    Viewer,
    /// Looks, stores bundles, submits and cancels jobs.
    Submitter,
    /// Reads and stores blobs, and nothing else: tasks come by the broker.
    Agent,
    /// Everything.
    Operator,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Submitter, Self::Agent, Self::Operator];

    /// As it stands in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Submitter => "submitter",
            Self::Agent => "agent",
            Self::Operator => "operator",
        }
    }

    /// Whether it may do `what`.
    pub const fn may(self, what: Access) -> bool {
        match self {
            Self::Viewer => matches!(what, Access::See),
            Self::Submitter => matches!(what, Access::See | Access::Submit | Access::KeepBlob),
            Self::Agent => matches!(what, Access::KeepBlob | Access::ReadBlob),
            Self::Operator => true,
        }
    }
}

impl FromStr for Role {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|role| role.name() == name).ok_or(())
    }
}

/// What a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Look at jobs, agents and the frontier, and fetch outputs.
    See,
    /// Submit and cancel jobs.
    Submit,
    /// Store blobs, and ask whether one is there.
    KeepBlob,
    /// Fetch blobs: bundles hold weights.
    ReadBlob,
    /// Give orders to agents.
    Operate,
}

/// The tokens of a server. Only their hashes are kept.
#[derive(Clone)]
pub struct Tokens {
    known: Vec<([u8; 32], Role)>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.known.len())
    }
}

/// Why tokens cannot be used. A token itself never stands in a message.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum TokensError {
    #[error(transparent)]
    File(#[from] SecretError),
    #[error("line {line}: {what}")]
    Line { line: usize, what: String },
    #[error("{0}")]
    Content(String),
}

impl UserError for TokensError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::BadInput
    }

    fn remedy(&self) -> Option<String> {
        Some("Write a line TOKEN=ROLE for each token; roles are viewer, submitter, agent and operator; make tokens with `openssl rand -hex 32`.".into())
    }
}

impl Tokens {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, or some line of it is no token.
    pub fn read(path: &Path) -> Result<Self, TokensError> {
        use std::os::unix::fs::PermissionsExt;
        let text = secret::from_file("tokens", path)?.ok_or_else(|| TokensError::Content("there is no token".into()))?;
        if std::fs::metadata(path).is_ok_and(|facts| facts.permissions().mode() & 0o007 != 0) {
            tracing::warn!(path = %path.display(), "the file of tokens can be read by everybody on this host: chmod o= it");
        }
        Self::parse(&text)
    }

    /// Reads lines `TOKEN=ROLE`; empty ones and those that begin with `#` say nothing.
    ///
    /// # Errors
    /// Some line is no token, or there is none.
    pub fn parse(text: &SecretString) -> Result<Self, TokensError> {
        let mut known: Vec<([u8; 32], Role)> = Vec::new();
        for (number, line) in text.expose_secret().lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let error = |what: &str| TokensError::Line { line: number + 1, what: what.into() };
            // A token in base64 may end with '='.
            let (token, role) = line.rsplit_once('=').ok_or_else(|| error("no TOKEN=ROLE"))?;
            let (token, role) = (token.trim(), role.trim());
            let role = role.parse().map_err(|()| error("what stands behind the last '=' is no role"))?;
            if !(LEAST..=MOST).contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(error(&format!("a token has {LEAST} to {MOST} plain characters")));
            }
            let hash = hash_of(token);
            if known.iter().any(|(other, _)| *other == hash) {
                return Err(error("the token stands there twice"));
            }
            known.push((hash, role));
        }
        match known.len() {
            0 => Err(TokensError::Content("there is no token".into())),
            n if n > MOST_TOKENS => Err(TokensError::Content(format!("{n} tokens; at most {MOST_TOKENS}"))),
            _ => Ok(Self { known }),
        }
    }

    /// Who `presented` is. Every known token is compared, each in full, so that time says nothing.
    pub fn role_of(&self, presented: &str) -> Option<Role> {
        let hash = hash_of(presented);
        let equal = |known: &[u8; 32]| known.iter().zip(&hash).fold(0u8, |differs, (a, b)| differs | (a ^ b)) == 0;
        self.known.iter().fold(None, |found, (known, role)| if equal(known) { Some(*role) } else { found })
    }
}

fn hash_of(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEWER: &str = "0123456789abcdefghij";
    const OPERATOR: &str = "c2VjcmV0LXNlY3JldC1zZWNyZXQ==";

    fn parse(text: &str) -> Result<Tokens, TokensError> {
        Tokens::parse(&SecretString::from(text.to_owned()))
    }

    #[test]
    fn a_token_has_a_role_and_nothing_else_has() {
        let tokens = parse(&format!("# who\n\n{VIEWER}=viewer\n  {OPERATOR} = operator\n")).unwrap();
        assert_eq!(tokens.role_of(VIEWER), Some(Role::Viewer));
        assert_eq!(tokens.role_of(OPERATOR), Some(Role::Operator));
        for other in ["", "0123456789abcdefghi", "0123456789abcdefghijk", "0123456789abcdefghiJ"] {
            assert_eq!(tokens.role_of(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_token() {
        for (text, line) in [
            ("short=viewer", 1),
            ("\n0123456789abcdefghij", 2),
            ("0123456789abcdefghij=root", 1),
            ("0123456789abcdefghij=viewer\n0123456789abcdefghij=operator", 2),
            ("0123456789 abcdefghij=viewer", 1),
        ] {
            let error = parse(text).unwrap_err();
            assert!(matches!(error, TokensError::Line { line: found, .. } if found == line), "{error}");
            assert!(!error.to_string().contains("0123456789") && !format!("{error:?}").contains("0123456789"));
        }
        assert!(parse("# nothing\n").is_err());
        assert_eq!(format!("{:?}", parse(&format!("{VIEWER}=viewer")).unwrap()), "1 tokens");
    }

    #[test]
    fn each_role_reaches_as_far_as_it_says() {
        let reach = |role: Role| {
            [Access::See, Access::Submit, Access::KeepBlob, Access::ReadBlob, Access::Operate].map(|access| u8::from(role.may(access)))
        };
        assert_eq!(Role::ALL.map(reach), [[1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 1, 1, 0], [1, 1, 1, 1, 1]]);
    }
}
