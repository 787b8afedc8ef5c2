//! Messages as bytes.
//!
//! ```text
//! envelope, 16 bytes, never to change        payload
//! magic  version  kind  length  checksum     bincode of a frozen struct of that version
//! KOPT   u16      u16   u32     u32          at most Kind::limit_bytes
//! ```
//!
//! Numbers are little-endian. The checksum is the CRC-32 (ISO 3309) of the other twelve bytes of the envelope and of the payload. Every version
//! of the program reads every envelope, and so can say of which version a message is that it does not read.
//!
//! A version's structs are frozen, see [`v1`]: what a message gains later is a new version beside it. `tests/golden` keeps bytes of each.
//!
//! What arrives is untrusted: every length is checked before anything is allocated for it, and no bytes make this panic.

mod codec;
mod document;
mod envelope;
mod error;
mod kind;
mod v1;

use bytes::Bytes;

use crate::broker::Frame;
use crate::message::{Control, Pulse, Report, Task};
pub use envelope::{HEADER_BYTES, Header};
pub use error::WireError;
pub use kind::Kind;

/// The version that is written.
pub const VERSION: u16 = 1;

/// Size of the largest frame: what a broker must take.
pub const MAX_FRAME_BYTES: usize = HEADER_BYTES + Kind::Report.limit_bytes();

/// A message that travels.
pub trait Message: Sized + Send + Sync + 'static + sealed::Payload {
    /// Its kind.
    const KIND: Kind;

    /// What it is about, for people who search for it and the same when it is sent again: a task's id, an agent's name.
    fn subject(&self) -> String;
}

mod sealed {
    use super::WireError;

    /// Payloads of a message in every version.
    pub trait Payload: Sized {
        /// The payload, of [`super::VERSION`].
        fn write(&self) -> Result<Vec<u8>, WireError>;
        /// Reads a payload of a version that is known.
        fn read(payload: &[u8]) -> Result<Self, WireError>;
    }
}

/// A message as a frame.
///
/// # Errors
/// [`WireError::TooLarge`]; [`WireError::Payload`] where it holds a number that JSON has no word for (NaN, infinity).
pub fn encode<M: Message>(message: &M) -> Result<Frame, WireError> {
    let payload = message.write()?;
    if payload.len() > M::KIND.limit_bytes() {
        return Err(WireError::TooLarge { kind: M::KIND, found: payload.len(), most: M::KIND.limit_bytes() });
    }
    let body = Bytes::from(envelope::seal(VERSION, M::KIND, &payload));
    Ok(Frame { kind: M::KIND.name(), version: VERSION, id: message.subject(), body })
}

/// Reads a frame's body.
///
/// # Errors
/// Whatever it is that it is not a whole message of this kind and of a version that is known.
pub fn decode<M: Message>(body: &[u8]) -> Result<M, WireError> {
    let (header, payload) = envelope::open(body)?;
    if header.version != VERSION {
        return Err(WireError::Version { version: header.version, kind: header.kind });
    }
    match Kind::of(header.kind) {
        None => Err(WireError::Kind { version: header.version, kind: header.kind }),
        Some(found) if found != M::KIND => Err(WireError::Unexpected { found, wanted: M::KIND }),
        Some(_) if payload.len() > M::KIND.limit_bytes() => {
            Err(WireError::TooLarge { kind: M::KIND, found: payload.len(), most: M::KIND.limit_bytes() })
        }
        Some(_) => M::read(payload),
    }
}

/// Ties a message to its kind and to its frozen form.
macro_rules! message {
    ($message:ident, $frozen:path, $subject:expr) => {
        impl Message for $message {
            const KIND: Kind = Kind::$message;

            fn subject(&self) -> String {
                let subject: fn(&Self) -> String = $subject;
                subject(self)
            }
        }

        impl sealed::Payload for $message {
            fn write(&self) -> Result<Vec<u8>, WireError> {
                codec::encode(Kind::$message, &<$frozen>::try_from(self)?)
            }

            fn read(payload: &[u8]) -> Result<Self, WireError> {
                codec::decode::<$frozen, { Kind::$message.limit_bytes() }>(Kind::$message, payload)?.try_into()
            }
        }
    };
}

message!(Task, v1::Task, |task| task.id.to_string());
message!(Report, v1::Report, |report| report.task.to_string());
message!(Pulse, v1::Pulse, |pulse| match pulse {
    Pulse::Beat(beat) => beat.agent.to_string(),
    Pulse::Started { agent, .. } | Pulse::Leaving { agent } => agent.to_string(),
});
message!(Control, v1::Control, |control| match control {
    Control::Leading { epoch } => format!("leading {epoch}"),
    Control::Accepted { task, .. } => format!("accepted {task}"),
    Control::Assigned(task) => format!("assigned {}", task.id),
    Control::Cancel { lease } => format!("cancel {}.{}", lease.epoch, lease.serial),
    Control::CancelJob { job } => format!("cancel {job}"),
    Control::Drain => "drain".into(),
    Control::Quarantine { .. } => "quarantine".into(),
    Control::Readmit => "readmit".into(),
});

#[cfg(test)]
mod tests;
