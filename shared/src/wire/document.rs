//! Documents inside messages: what is JSON wherever it is kept is JSON on the wire too.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::WireError;
use super::kind::Kind;

/// A value as the text of its JSON. Its type reads itself (tagged enums, fields that may be absent), which bincode cannot do; and a journal
/// keeps the same text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Document(String);

impl Document {
    /// Writes a value, and reads it again: JSON has no word for NaN and infinity, and a document that nobody can read is not sent.
    pub(super) fn of<T: Serialize + DeserializeOwned>(kind: Kind, value: &T) -> Result<Self, WireError> {
        let text = serde_json::to_string(value).map_err(|e| WireError::payload(kind, e))?;
        let document = Self(text);
        document.read::<T>(kind)?;
        Ok(document)
    }

    pub(super) fn read<T: DeserializeOwned>(&self, kind: Kind) -> Result<T, WireError> {
        serde_json::from_str(&self.0).map_err(|e| WireError::payload(kind, e))
    }
}
