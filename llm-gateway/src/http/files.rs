//! `/v1/files`.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::multipart::{Field, Multipart, MultipartError};
use axum::extract::{FromRequest as _, Path, Query, Request, State as Shared};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;

use super::State;
use super::batches::{Desk, page};
use super::respond::Refusal;
use crate::batch::{Batches, Upload, disk};
use crate::dialect::{Dialect, Fault, Problem};
use crate::names::KeyName;

/// Longest pause in an upload.
const SILENCE: Duration = Duration::from_secs(60);
/// Longest field besides the file.
const LONGEST_FIELD: usize = 1024;

/// Takes a file.
pub async fn upload(Shared(house): Shared<State>, request: Request) -> Result<Json<Value>, Refusal> {
    let most = house.gateway.settings().http.most_file_bytes;
    let desk = house.desk(request.headers())?;
    // The whole of a form is not bounded by the limit of bodies: its file is, as it comes.
    let form =
        Multipart::from_request(request, &()).await.map_err(|rejection| refused(Problem::new(Fault::Invalid, rejection.body_text())))?;
    receive(&desk.batches, &desk.key, form, most).await.map_err(refused)
}

async fn receive(batches: &Batches, key: &KeyName, mut form: Multipart, most: u64) -> Result<Json<Value>, Problem> {
    let (mut purpose, mut file): (Option<String>, Option<(Upload, String)>) = (None, None);
    while let Some(mut field) = in_time(form.next_field()).await? {
        match field.name().unwrap_or_default() {
            "purpose" => purpose = Some(short(&mut field).await?),
            "file" => {
                let name = field.file_name().unwrap_or("upload.jsonl").to_owned();
                let mut upload = batches.files.begin(key)?;
                while let Some(piece) = in_time(field.chunk()).await? {
                    upload.take(&piece, most).await?;
                }
                file = Some((upload, name));
            }
            _ => drop(short(&mut field).await?),
        }
    }
    if purpose.as_deref() != Some("batch") {
        return Err(Problem::new(Fault::Invalid, "purpose is batch and nothing else").about("purpose"));
    }
    let (upload, name) = file.ok_or_else(|| Problem::new(Fault::Invalid, "there is no file").about("file"))?;
    Ok(Json(batches.files.keep(upload, key, &name, "batch").await?.shown()))
}

async fn short(field: &mut Field<'_>) -> Result<String, Problem> {
    let mut text = Vec::new();
    while let Some(piece) = in_time(field.chunk()).await? {
        text.extend_from_slice(&piece);
        if text.len() > LONGEST_FIELD {
            return Err(Problem::new(Fault::Invalid, format!("a field has at most {LONGEST_FIELD} bytes")));
        }
    }
    String::from_utf8(text).map_err(|_| Problem::new(Fault::Invalid, "a field that is no text"))
}

async fn in_time<T>(reading: impl Future<Output = Result<T, MultipartError>>) -> Result<T, Problem> {
    match tokio::time::timeout(SILENCE, reading).await {
        Ok(read) => read.map_err(|error| Problem::new(Fault::Invalid, error.body_text())),
        Err(_) => Err(Problem::new(Fault::Invalid, format!("nothing came for {} s", SILENCE.as_secs()))),
    }
}

/// Which part of a list.
#[derive(Debug, Default, Deserialize)]
pub struct Part {
    pub limit: Option<usize>,
    pub after: Option<String>,
    pub purpose: Option<String>,
}

/// The key's files.
pub async fn list(Shared(house): Shared<State>, Query(part): Query<Part>, headers: HeaderMap) -> Result<Json<Value>, Refusal> {
    let Desk { batches, key, .. } = house.desk(&headers)?;
    let files = batches.files.list(&key).into_iter().filter(|file| part.purpose.as_ref().is_none_or(|purpose| *purpose == file.purpose));
    Ok(Json(page(files.map(|file| file.shown()).collect(), &part)))
}

/// What is known of one.
pub async fn show(Shared(house): Shared<State>, Path(id): Path<String>, headers: HeaderMap) -> Result<Json<Value>, Refusal> {
    let Desk { batches, key, .. } = house.desk(&headers)?;
    batches.files.get(&key, &id).map(|file| Json(file.shown())).map_err(refused)
}

/// What is in it.
pub async fn content(Shared(house): Shared<State>, Path(id): Path<String>, headers: HeaderMap) -> Result<Response, Refusal> {
    let Desk { batches, key, .. } = house.desk(&headers)?;
    let file = batches.files.get(&key, &id).map_err(refused)?;
    let content = tokio::fs::File::open(batches.files.path(&file.id)).await.map_err(|error| refused(disk(&error)))?;
    let kind = [(header::CONTENT_TYPE, "application/jsonl".to_owned()), (header::CONTENT_LENGTH, file.bytes.to_string())];
    Ok((kind, Body::from_stream(ReaderStream::with_capacity(content, 1 << 16))).into_response())
}

/// Takes one away.
pub async fn delete(Shared(house): Shared<State>, Path(id): Path<String>, headers: HeaderMap) -> Result<Json<Value>, Refusal> {
    let Desk { batches, key, .. } = house.desk(&headers)?;
    if batches.uses(&id) {
        return Err(refused(Problem::new(Fault::Invalid, "a batch that has not ended uses the file")));
    }
    batches.files.delete(&key, &id).map_err(refused)?;
    Ok(Json(json!({"id": id, "object": "file", "deleted": true})))
}

fn refused(problem: Problem) -> Refusal {
    Refusal(Dialect::Openai, problem)
}
