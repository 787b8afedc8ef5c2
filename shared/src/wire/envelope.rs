//! The sixteen bytes before every payload. They never change.

use super::error::WireError;
use super::kind::Kind;

const MAGIC: [u8; 4] = *b"KOPT";

/// Size of an envelope.
pub const HEADER_BYTES: usize = 16;

/// Where the checksum begins.
const CHECKSUM_AT: usize = 12;

/// What an envelope says of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the payload's structs.
    pub version: u16,
    /// Number of its kind, known or not.
    pub kind: u16,
}

/// A payload in its envelope.
pub(super) fn seal(version: u16, kind: Kind, payload: &[u8]) -> Vec<u8> {
    debug_assert!(payload.len() <= kind.limit_bytes());
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(kind as u16).to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let checksum = checksum(&bytes, payload);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Takes an envelope off. The payload is whole and is what was sealed; nothing is known of its contents.
pub(super) fn open(bytes: &[u8]) -> Result<(Header, &[u8]), WireError> {
    let Some((header, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(match bytes.get(..MAGIC.len()) {
            Some(start) if start == MAGIC => WireError::Length { said: HEADER_BYTES as u64, found: bytes.len() as u64 },
            _ => WireError::Foreign,
        });
    };
    if header[..MAGIC.len()] != MAGIC {
        return Err(WireError::Foreign);
    }
    let said = u64::from(u32::from_le_bytes([header[8], header[9], header[10], header[11]]));
    if said != payload.len() as u64 {
        return Err(WireError::Length { said: said + HEADER_BYTES as u64, found: bytes.len() as u64 });
    }
    if header[CHECKSUM_AT..] != checksum(&header[..CHECKSUM_AT], payload).to_le_bytes() {
        return Err(WireError::Checksum);
    }
    let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    Ok((Header { version: number(4), kind: number(6) }, payload))
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

impl Header {
    /// Reads the envelope of a frame's body.
    ///
    /// # Errors
    /// It is none, or the body is not what was sealed in it.
    pub fn of(body: &[u8]) -> Result<Self, WireError> {
        open(body).map(|(header, _)| header)
    }
}
