//! Bodies of requests, bounded in size and time.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;

use crate::dialect::{Fault, Problem};

/// Time for a body to come.
const WITHIN: Duration = Duration::from_secs(60);

/// Reads a body of at most `most` bytes.
///
/// # Errors
/// It is longer, comes too slowly, or breaks off.
pub async fn read(headers: &HeaderMap, body: Body, most: u64) -> Result<Bytes, Problem> {
    let too_large = || Problem::new(Fault::TooLarge, format!("a body has at most {most} bytes"));
    let said = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()).and_then(|value| value.parse::<u64>().ok());
    if said.is_some_and(|bytes| bytes > most) {
        return Err(too_large());
    }
    let mut pieces = body.into_data_stream();
    let read = async {
        let mut all = Bytes::new();
        let mut more = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| Problem::new(Fault::Invalid, "the body broke off"))?;
            if (all.len() + more.len() + piece.len()) as u64 > most {
                return Err(too_large());
            }
            // Most bodies come in one piece, which then is not copied.
            match (all.is_empty(), more.is_empty()) {
                (true, true) => all = piece,
                (false, true) => {
                    more.reserve(said.map_or(0, |bytes| bytes as usize).max(all.len() + piece.len()));
                    more.extend_from_slice(&std::mem::take(&mut all));
                    more.extend_from_slice(&piece);
                }
                _ => more.extend_from_slice(&piece),
            }
        }
        Ok(if more.is_empty() { all } else { more.freeze() })
    };
    match tokio::time::timeout(WITHIN, read).await {
        Ok(read) => read,
        Err(_) => Err(Problem::new(Fault::Invalid, format!("no whole body within {} s", WITHIN.as_secs()))),
    }
}
