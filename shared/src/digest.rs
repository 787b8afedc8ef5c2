//! Content hashes: the identity of bundles, candidates and kernels.

use std::fmt;
use std::io;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// The first 128 bits of a SHA-256 (FIPS 180-4), written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 16]);

impl Digest {
    /// Hashes `parts` in order; each is preceded by its length, so that `["ab", "c"]` and `["a", "bc"]` differ.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self::short(hasher)
    }

    /// [`Digest::of`] what `content` gives as one part, `bytes` long, in constant memory.
    ///
    /// # Errors
    /// It cannot be read, or has another length.
    pub fn of_stream(bytes: u64, mut content: impl io::Read) -> io::Result<Self> {
        let mut hasher = Hasher::new(bytes);
        let mut piece = vec![0u8; 1 << 16];
        loop {
            match content.read(&mut piece) {
                Ok(0) => break,
                Ok(read) if hasher.update(&piece[..read]) => {}
                Ok(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("more than {bytes} bytes"))),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        hasher.finish().ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, format!("fewer than {bytes} bytes")))
    }

    fn short(hasher: Sha256) -> Self {
        let full = hasher.finalize();
        let mut short = [0u8; 16];
        short.copy_from_slice(&full[..16]);
        Self(short)
    }

    /// The 16 bytes, as frozen messages keep them.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The digest that [`Digest::to_bytes`] took apart.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Parses 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        // Digits only: the parser of numbers would take a sign as well.
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0u8; 16];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

/// Computes [`Digest::of`] one part that comes in pieces. The length goes in first, so it must be known.
#[derive(Clone)]
pub struct Hasher {
    hasher: Sha256,
    missing: u64,
}

impl Hasher {
    /// Of a part of `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(bytes.to_le_bytes());
        Self { hasher, missing: bytes }
    }

    /// Takes the next piece. False where it is more than was announced.
    pub fn update(&mut self, piece: &[u8]) -> bool {
        self.hasher.update(piece);
        let left = self.missing.checked_sub(piece.len() as u64);
        // One that got too much never ends well.
        self.missing = left.unwrap_or(u64::MAX);
        left.is_some()
    }

    /// The digest; `None` where the part had another length than was announced.
    pub fn finish(self) -> Option<Digest> {
        (self.missing == 0).then(|| Digest::short(self.hasher))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("not a digest of 32 hexadecimal digits: {text:?}")))
    }
}

impl utoipa::PartialSchema for Digest {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        crate::api::text_schema("The first 128 bits of a SHA-256", 32, 32, "^[0-9a-fA-F]{32}$")
    }
}

impl utoipa::ToSchema for Digest {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_the_digest_of_its_content() {
        let content = vec![7u8; 200_000];
        assert_eq!(Digest::of_stream(200_000, content.as_slice()).unwrap(), Digest::of([content.as_slice()]));
        assert!(Digest::of_stream(199_999, content.as_slice()).is_err() && Digest::of_stream(200_001, content.as_slice()).is_err());
    }

    #[test]
    fn only_hexadecimal_digits_are_a_digest() {
        let digest = Digest::of([b"x".as_slice()]);
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        for bad in ["+f".repeat(16), "0".repeat(31), "0".repeat(33), "é".repeat(16), format!("{}/.", "0".repeat(30))] {
            assert_eq!(Digest::parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn pieces_are_the_whole() {
        let bytes = [7u8; 1000];
        let mut hasher = Hasher::new(1000);
        assert!(bytes.chunks(33).all(|piece| hasher.update(piece)));
        assert_eq!(hasher.finish(), Some(Digest::of([bytes.as_slice()])));
        assert_eq!(Hasher::new(0).finish(), Some(Digest::of([[].as_slice()])));
        assert_eq!(Hasher::new(1).finish(), None);
        let mut more = Hasher::new(1);
        assert!(!more.update(b"ab"));
        assert!(more.clone().finish().is_none());
        assert!(!more.update(&[]) || more.finish().is_none());
    }
}
