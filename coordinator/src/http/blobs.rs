//! Blobs: bytes under their own digest. An upload is kept whole and right, or not at all.

use std::io;
use std::time::{Duration, Instant};

use axum::body::{Body, BodyDataStream};
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use kernelopt_shared::api::ProblemKind;
use kernelopt_shared::digest::Digest;
use tempfile::{NamedTempFile, TempPath};
use tokio::io::AsyncWriteExt;

use super::extract::Path;
use super::limits::{Limits, Room};
use super::refusal::Refusal;
use super::{House, State, openapi};

/// Beginning of the names of uploads that are not whole yet.
pub const UPLOAD: &str = "upload-";
/// What is still read of a refused upload, so that the client sees the answer rather than a broken connection.
const LINGER_BYTES: u64 = 16 << 20;
/// How long it is read.
const LINGER: Duration = Duration::from_secs(2);

/// Stores a blob. The digest in the path is compared with that of what came.
#[utoipa::path(
    put, path = "/v1/blobs/{digest}", tag = "blobs", operation_id = "keep_blob", security(("token" = [])),
    params(("digest" = inline(Digest), Path, description = "First 128 bits of SHA-256 of the length, as 8 bytes little-endian, and the content")),
    request_body(content = inline(openapi::Binary), content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "It was there before"),
        (status = 201, description = "It is stored"),
        openapi::Receiving,
    )
)]
pub async fn keep(Shared(house): Shared<State>, Path(blob): Path<Digest>, headers: HeaderMap, body: Body) -> Result<StatusCode, Refusal> {
    let _place = house.rooms.enter(Room::Upload)?;
    let mut body = body.into_data_stream();
    match take(&house, blob, announced(&headers), &mut body).await {
        Ok(true) => Ok(StatusCode::CREATED),
        Ok(false) => Ok(StatusCode::OK),
        Err(refusal) => {
            // Beside the answer and not before it: a client that hears it stops sending, however much it had left.
            tokio::spawn(linger(body));
            Err(refusal)
        }
    }
}

fn announced(headers: &HeaderMap) -> u64 {
    headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0)
}

/// Spools, checks and hands over. True where the blob is new.
async fn take(house: &House, blob: Digest, announced: u64, body: &mut BodyDataStream) -> Result<bool, Refusal> {
    if announced > house.limits.blob_bytes {
        return Err(too_large(&house.limits));
    }
    let (file, bytes) = spool(house, body).await?;
    let (found, file) = on_disk("reading an upload", move || Ok((digest_of(&file, bytes)?, file))).await?;
    if found != blob {
        let refusal = Refusal::new(ProblemKind::Refused, format!("{bytes} bytes came, whose digest is {found}, not {blob}"));
        return Err(refusal.with_remedy("Send it again; the digest is that of the content."));
    }
    Ok(house.desk.keep_blob(blob, file).await?)
}

/// Writes what comes into a file of its own, which vanishes when it is dropped.
async fn spool(house: &House, body: &mut BodyDataStream) -> Result<(TempPath, u64), Refusal> {
    let disk = |e: io::Error| Refusal::of_disk("storing an upload", &e);
    let folder = house.spool.clone();
    let make = move || tempfile::Builder::new().prefix(UPLOAD).tempfile_in(folder).map(NamedTempFile::into_parts);
    let (file, path) = on_disk("storing an upload", make).await?;
    let mut file = tokio::fs::File::from_std(file);
    let mut pace = Pace::new(&house.limits);
    while let Some(piece) = pace.next(body).await? {
        file.write_all(&piece).await.map_err(disk)?;
    }
    file.flush().await.map_err(disk)?;
    file.sync_all().await.map_err(disk)?;
    Ok((path, pace.bytes))
}

/// Reads an upload for as long as it comes fast enough and is not too large.
struct Pace<'a> {
    limits: &'a Limits,
    began: Instant,
    bytes: u64,
}

impl<'a> Pace<'a> {
    fn new(limits: &'a Limits) -> Self {
        Self { limits, began: Instant::now(), bytes: 0 }
    }

    async fn next(&mut self, body: &mut BodyDataStream) -> Result<Option<bytes::Bytes>, Refusal> {
        let slow = |what: String| Err(Refusal::new(ProblemKind::TooSlow, what));
        let piece = match tokio::time::timeout(self.limits.silence, body.next()).await {
            Err(_) => return slow(format!("nothing came for {:.0?}", self.limits.silence)),
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => return Err(Refusal::new(ProblemKind::Malformed, format!("the upload was torn: {error}"))),
            Ok(Some(Ok(piece))) => piece,
        };
        self.bytes += piece.len() as u64;
        if self.bytes > self.limits.blob_bytes {
            return Err(too_large(self.limits));
        }
        let due = self.limits.silence + Duration::from_secs_f64(self.bytes as f64 / self.limits.least_bytes_per_second.max(1) as f64);
        if self.began.elapsed() > due {
            return slow(format!(
                "{} bytes in {:.0?}; at least {} a second are needed",
                self.bytes, due, self.limits.least_bytes_per_second
            ));
        }
        Ok(Some(piece))
    }
}

fn too_large(limits: &Limits) -> Refusal {
    Refusal::new(ProblemKind::TooLarge, format!("a blob has at most {} bytes", limits.blob_bytes))
}

async fn linger(mut body: BodyDataStream) {
    let mut left = LINGER_BYTES;
    let rest = async {
        while let Some(Ok(piece)) = body.next().await {
            left = left.saturating_sub(piece.len() as u64);
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, rest).await;
}

fn digest_of(path: &TempPath, bytes: u64) -> io::Result<Digest> {
    Digest::of_stream(bytes, std::fs::File::open(path)?)
}

async fn on_disk<T: Send + 'static>(doing: &str, work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other);
    done.and_then(|done| done).map_err(|e| Refusal::of_disk(doing, &e))
}

/// Fetches a blob.
#[utoipa::path(
    get, path = "/v1/blobs/{digest}", tag = "blobs", operation_id = "read_blob", security(("token" = [])),
    params(("digest" = inline(Digest), Path, description = "The blob")),
    responses(
        (status = 200, description = "Its content", content_type = "application/octet-stream", body = inline(openapi::Binary)),
        openapi::Asking,
    )
)]
pub async fn read(Shared(house): Shared<State>, Path(blob): Path<Digest>) -> Result<Response, Refusal> {
    let place = house.rooms.enter(Room::Download)?;
    let content = tokio::time::timeout(house.limits.answer_within, house.desk.read_blob(blob)).await;
    let content = content.map_err(|_| Refusal::new(ProblemKind::Unavailable, "the store did not answer"))??;
    let pieces = content.pieces.map(move |piece| {
        let _ = &place;
        piece
    });
    Ok((facts(blob, content.bytes), Body::from_stream(pieces)).into_response())
}

/// Says whether a blob is stored, and its size.
#[utoipa::path(
    head, path = "/v1/blobs/{digest}", tag = "blobs", operation_id = "probe_blob", security(("token" = [])),
    params(("digest" = inline(Digest), Path, description = "The blob")),
    responses((status = 200, description = "It is there; content-length is its size"), openapi::Asking)
)]
pub async fn probe(Shared(house): Shared<State>, Path(blob): Path<Digest>) -> Result<Response, Refusal> {
    let _place = house.rooms.enter(Room::Request)?;
    let found = tokio::time::timeout(house.limits.answer_within, house.desk.blob_bytes(blob)).await;
    let found = found.map_err(|_| Refusal::new(ProblemKind::Unavailable, "the store did not answer"))??;
    let bytes = found.ok_or_else(|| Refusal::new(ProblemKind::NotFound, format!("there is no blob {blob}")))?;
    Ok((facts(blob, bytes), Body::empty()).into_response())
}

/// A blob never changes.
fn facts(blob: Digest, bytes: u64) -> [(header::HeaderName, String); 4] {
    [
        (header::CONTENT_TYPE, "application/octet-stream".into()),
        (header::CONTENT_LENGTH, bytes.to_string()),
        (header::ETAG, format!("\"{blob}\"")),
        (header::CACHE_CONTROL, "private, immutable, max-age=31536000".into()),
    ]
}
