//! `/v1/batches`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, Request, State as Shared};
use axum::http::HeaderMap;
use serde_json::{Map, Value, json};

use super::files::Part;
use super::respond::Refusal;
use super::{House, State, body};
use crate::batch::Batches;
use crate::dialect::{Dialect, Fault, Problem};
use crate::names::{JobName, KeyName};

/// Longest request for a batch, in bytes.
const LONGEST: u64 = 64 << 10;
/// Entries of a list where nobody says how many, and the most.
const PAGE: (usize, usize) = (20, 100);

/// Where batches are, and who asks.
pub struct Desk {
    pub batches: Arc<Batches>,
    pub key: KeyName,
    pub job: JobName,
}

impl House {
    /// The caller's batches.
    pub fn desk(&self, headers: &HeaderMap) -> Result<Desk, Refusal> {
        let caller = self.caller(&self.gateway.settings(), headers).map_err(refused)?;
        let none = || refused(Problem::new(Fault::NotFound, "this gateway keeps no batches: its settings name no folder of data"));
        let batches = self.batches.clone().ok_or_else(none)?;
        Ok(Desk { batches, key: caller.key.name.clone(), job: caller.job })
    }
}

/// A new batch.
pub async fn create(Shared(house): Shared<State>, request: Request) -> Result<Json<Value>, Refusal> {
    let (parts, content) = request.into_parts();
    let Desk { batches, key, job } = house.desk(&parts.headers)?;
    let content = body::read(&parts.headers, content, LONGEST).await.map_err(refused)?;
    let asked: Map<String, Value> =
        serde_json::from_slice(&content).map_err(|_| refused(Problem::new(Fault::Invalid, "the body is no JSON object")))?;
    batches.create(&key, &job, &asked).map(|batch| Json(batch.shown())).map_err(refused)
}

/// The key's batches.
pub async fn list(Shared(house): Shared<State>, Query(part): Query<Part>, headers: HeaderMap) -> Result<Json<Value>, Refusal> {
    let Desk { batches, key, .. } = house.desk(&headers)?;
    Ok(Json(page(batches.list(&key).iter().map(|batch| batch.shown()).collect(), &part)))
}

/// One of them.
pub async fn show(Shared(house): Shared<State>, Path(id): Path<String>, headers: HeaderMap) -> Result<Json<Value>, Refusal> {
    let Desk { batches, key, .. } = house.desk(&headers)?;
    batches.get(&key, &id).map(|batch| Json(batch.shown())).map_err(refused)
}

/// Begins no more of its lines.
pub async fn cancel(Shared(house): Shared<State>, Path(id): Path<String>, headers: HeaderMap) -> Result<Json<Value>, Refusal> {
    let Desk { batches, key, .. } = house.desk(&headers)?;
    batches.cancel(&key, &id).map(|batch| Json(batch.shown())).map_err(refused)
}

/// A part of a list, as OpenAI's are cut.
pub fn page(all: Vec<Value>, part: &Part) -> Value {
    let limit = part.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1);
    let skip = part.after.as_ref().and_then(|after| all.iter().position(|entry| entry["id"] == *after)).map_or(0, |at| at + 1);
    let has_more = all.len() > skip + limit;
    let data: Vec<Value> = all.into_iter().skip(skip).take(limit).collect();
    let end = |entry: Option<&Value>| entry.map(|entry| entry["id"].clone());
    json!({"object": "list", "first_id": end(data.first()), "last_id": end(data.last()), "has_more": has_more, "data": data})
}

fn refused(problem: Problem) -> Refusal {
    Refusal(Dialect::Openai, problem)
}
