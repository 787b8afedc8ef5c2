//! The one place that knows bincode: one fixed configuration, a limit, no byte left over.
//!
//! Integers have their full width, so that a value has exactly one form and the limit counts what is there. The limit is what keeps a length
//! that nobody wrote from being allocated; the types of [`super::v1`] have no elements of size zero, over which no limit helps.

use bincode::config::{Configuration, Fixint, LittleEndian, NoLimit};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::WireError;
use super::kind::Kind;

const CONFIGURATION: Configuration<LittleEndian, Fixint, NoLimit> = bincode::config::legacy();

pub(super) fn encode<T: Serialize>(kind: Kind, value: &T) -> Result<Vec<u8>, WireError> {
    bincode::serde::encode_to_vec(value, CONFIGURATION).map_err(|e| WireError::payload(kind, e))
}

/// Reads a value of at most `LIMIT` bytes that fills `payload` exactly.
pub(super) fn decode<T: DeserializeOwned, const LIMIT: usize>(kind: Kind, payload: &[u8]) -> Result<T, WireError> {
    let (value, used) =
        bincode::serde::decode_from_slice(payload, CONFIGURATION.with_limit::<LIMIT>()).map_err(|e| WireError::payload(kind, e))?;
    if used == payload.len() {
        Ok(value)
    } else {
        Err(WireError::payload(kind, format_args!("{} bytes are left over", payload.len() - used)))
    }
}
