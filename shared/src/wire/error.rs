use super::kind::Kind;

/// Why bytes are not a message, or a message cannot be bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum WireError {
    #[error("not a message of this program")]
    Foreign,
    #[error("torn: {found} bytes, the envelope says {said}")]
    Length { said: u64, found: u64 },
    #[error("its checksum is wrong")]
    Checksum,
    #[error("a message of protocol version {version} (kind {kind}); this program speaks {}", super::VERSION)]
    Version { version: u16, kind: u16 },
    #[error("a message of the unknown kind {kind} (protocol version {version})")]
    Kind { version: u16, kind: u16 },
    #[error("a {found} where a {wanted} was to come")]
    Unexpected { found: Kind, wanted: Kind },
    #[error("a {kind} of {found} bytes; at most {most} are possible")]
    TooLarge { kind: Kind, found: usize, most: usize },
    #[error("a {kind} that cannot be read: {what}")]
    Payload { kind: Kind, what: String },
}

/// Length of an explanation; a parser's words may quote what it was given.
const LONGEST_WHAT_BYTES: usize = 500;

impl WireError {
    /// A payload that is none.
    pub(super) fn payload(kind: Kind, what: impl ToString) -> Self {
        let mut what = what.to_string();
        what.truncate(what.floor_char_boundary(LONGEST_WHAT_BYTES));
        Self::Payload { kind, what }
    }

    /// `foreign`, `torn`, `version`, ...: bounded, for metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Foreign => "foreign",
            Self::Length { .. } => "torn",
            Self::Checksum => "checksum",
            Self::Version { .. } => "version",
            Self::Kind { .. } => "kind",
            Self::Unexpected { .. } => "unexpected",
            Self::TooLarge { .. } => "too_large",
            Self::Payload { .. } => "payload",
        }
    }

    /// Version and number of the kind, where the envelope could be read.
    pub const fn version_and_kind(&self) -> Option<(u16, u16)> {
        match self {
            Self::Version { version, kind } | Self::Kind { version, kind } => Some((*version, *kind)),
            Self::Unexpected { found: kind, .. } | Self::TooLarge { kind, .. } | Self::Payload { kind, .. } => {
                Some((super::VERSION, *kind as u16))
            }
            Self::Foreign | Self::Length { .. } | Self::Checksum => None,
        }
    }
}
