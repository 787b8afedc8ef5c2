//! An answer that has begun to come.

use std::time::{Duration, SystemTime};

use axum::http::HeaderMap;
use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::failure::{self, Failure, Kind, Wait};
use super::levels;
use crate::queue::Headers;

/// Most bytes of an answer in one piece.
const MOST_BYTES: usize = 64 << 20;
/// Most bytes that are read of a complaint, and the time for that.
const COMPLAINT: (usize, Duration) = (64 << 10, Duration::from_secs(2));

/// An answer whose head is there. Dropping it closes the connection, and so cancels the work, unless all of it was read.
#[derive(Debug)]
pub struct Incoming {
    response: reqwest::Response,
    began: Instant,
    first_byte: Option<Instant>,
    /// The next piece must have come by then.
    until: Instant,
    idle: Duration,
    ends: Instant,
}

impl Incoming {
    pub(super) const fn new(response: reqwest::Response, began: Instant, until: Instant, idle: Duration, ends: Instant) -> Self {
        Self { response, began, first_byte: None, until, idle, ends }
    }

    /// Its headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// What is left of the provider's limits.
    pub fn levels(&self) -> Headers {
        levels::read(self.headers(), SystemTime::now())
    }

    /// The provider's name for it.
    pub fn request_id(&self) -> Option<String> {
        failure::request_id(self.headers())
    }

    /// From sending to the first byte of its body, once that came.
    pub fn first_byte(&self) -> Option<Duration> {
        self.first_byte.map(|at| at.saturating_duration_since(self.began))
    }

    /// The next piece; `None` at its end.
    ///
    /// # Errors
    /// It breaks off, or is silent for too long.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        let piece = match tokio::time::timeout_at(self.until, self.response.chunk()).await {
            Ok(Ok(piece)) => piece,
            Ok(Err(_)) => return Err(Failure::new(Kind::Cut, "a connection that broke")),
            Err(_) => {
                let wait = match (self.until >= self.ends, self.first_byte) {
                    (true, _) => Wait::Total,
                    (false, None) => Wait::FirstByte,
                    (false, Some(_)) => Wait::Idle,
                };
                return Err(Failure::new(Kind::Silent(wait), "silence"));
            }
        };
        let now = Instant::now();
        self.first_byte.get_or_insert(now);
        self.until = self.ends.min(now + self.idle);
        Ok(piece)
    }

    /// All of it.
    ///
    /// # Errors
    /// It breaks off, is silent for too long, or is longer than 64 MiB.
    pub async fn whole(&mut self) -> Result<Bytes, Failure> {
        let Some(first) = self.piece().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.piece().await? else { return Ok(first) };
        let mut all = BytesMut::from(first);
        all.extend_from_slice(&second);
        while let Some(piece) = self.piece().await? {
            if all.len() + piece.len() > MOST_BYTES {
                return Err(Failure::new(Kind::Corrupt, "an answer that is too long"));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }

    /// The beginning of a complaint, as far as it comes soon.
    pub(super) async fn beginning(mut self) -> Option<Bytes> {
        let mut all = BytesMut::new();
        let read = async {
            while let Ok(Some(piece)) = self.response.chunk().await {
                all.extend_from_slice(&piece);
                if all.len() > COMPLAINT.0 {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(COMPLAINT.1, read).await;
        (!all.is_empty()).then(|| all.freeze())
    }
}
