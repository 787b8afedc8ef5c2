//! What a finished job left behind, as a tar that is made while it is sent.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path as FsPath;

use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::header;
use axum::response::IntoResponse;
use bytes::Bytes;
use futures_util::stream;
use kernelopt_shared::api::ProblemKind;
use kernelopt_shared::archive;
use kernelopt_shared::message::JobId;
use tokio::sync::mpsc;

use super::extract::Path;
use super::limits::Room;
use super::refusal::Refusal;
use super::{State, openapi};

/// Most files of a job.
const MOST_FILES: usize = 10_000;
/// Pieces between the thread that reads files and the one that sends.
const PIECES: usize = 4;
/// Size of a piece.
const PIECE_BYTES: usize = 64 << 10;

/// Fetches a finished job's outputs: `optimized/`, `result.json`, `report.html`, the accepted candidates with their evidence.
///
/// A tar of plain files. Where something goes wrong on the way, the connection breaks off before the last chunk.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/outputs", tag = "jobs", operation_id = "fetch_outputs", security(("token" = [])),
    params(("id" = inline(JobId), Path, description = "The job")),
    responses((status = 200, description = "A tar of the folder", content_type = "application/x-tar", body = inline(openapi::Binary)), openapi::Changing)
)]
pub async fn fetch(Shared(house): Shared<State>, Path(job): Path<JobId>) -> Result<impl IntoResponse, Refusal> {
    let place = house.rooms.enter(Room::Download)?;
    let folder = tokio::time::timeout(house.limits.answer_within, house.desk.outputs(&job)).await;
    let folder = folder.map_err(|_| Refusal::new(ProblemKind::Unavailable, "the coordinator did not answer"))??;
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = pack(&folder, &sender) {
            tracing::warn!(folder = %folder.display(), %error, "outputs were not sent in full");
            // The connection is cut, so that nobody takes the part for the whole.
            let _ = sender.blocking_send(Err(error));
        }
    });
    let pieces =
        stream::unfold((receiver, place), |(mut receiver, place)| async move { Some((receiver.recv().await?, (receiver, place))) });
    let name = format!("attachment; filename=\"{}.tar\"", job.as_str().replace('/', "_"));
    Ok(([(header::CONTENT_TYPE, "application/x-tar".to_owned()), (header::CONTENT_DISPOSITION, name)], Body::from_stream(pieces)))
}

fn pack(folder: &FsPath, sender: &mpsc::Sender<io::Result<Bytes>>) -> io::Result<()> {
    let mut files = Vec::new();
    list(folder, "", &mut files)?;
    let out = BufWriter::with_capacity(PIECE_BYTES, Pieces(sender));
    archive::pack_into(folder, files.iter().map(String::as_str), out, FsPath::new("the client")).map_err(io::Error::other)
}

/// Names of all regular files, in order. Hidden ones are the coordinator's own; links would lead elsewhere.
fn list(root: &FsPath, inside: &str, files: &mut Vec<String>) -> io::Result<()> {
    let mut entries = fs::read_dir(root.join(inside))?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().into_string().map_err(|name| io::Error::other(format!("{name:?} is no UTF-8")))?;
        if name.starts_with('.') {
            continue;
        }
        let name = if inside.is_empty() { name } else { format!("{inside}/{name}") };
        match entry.file_type()? {
            kind if kind.is_dir() => list(root, &name, files)?,
            kind if kind.is_file() && files.len() < MOST_FILES => files.push(name),
            kind if kind.is_file() => return Err(io::Error::other("too many files")),
            _ => {}
        }
    }
    Ok(())
}

/// Sends what is written; waits where the client is slower.
struct Pieces<'a>(&'a mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Ok(Bytes::copy_from_slice(bytes));
        self.0.blocking_send(piece).map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client went away"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
