//! `GET /v1/models`.

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::State;
use super::caller::{Caller, dialect_of};
use super::respond::Refusal;
use crate::dialect::{Dialect, Fault, Problem};
use crate::settings::{Model, Settings};

/// The models that the key may call.
pub async fn list(Shared(house): Shared<State>, headers: HeaderMap) -> Result<Json<Value>, Refusal> {
    let (settings, dialect) = (house.gateway.settings(), dialect_of(&headers));
    let caller = house.caller(&settings, &headers).map_err(|problem| Refusal(dialect, problem))?;
    let models: Vec<Value> = callable(&settings, &caller).map(|model| entry(model, dialect)).collect();
    Ok(Json(match dialect {
        Dialect::Openai => json!({"object": "list", "data": models}),
        Dialect::Anthropic => {
            let end = |model: Option<&Value>| model.map(|model| model["id"].clone());
            json!({"first_id": end(models.first()), "last_id": end(models.last()), "has_more": false, "data": models})
        }
    }))
}

/// One of them.
pub async fn show(Shared(house): Shared<State>, Path(name): Path<String>, headers: HeaderMap) -> Result<Json<Value>, Refusal> {
    let (settings, dialect) = (house.gateway.settings(), dialect_of(&headers));
    let caller = house.caller(&settings, &headers).map_err(|problem| Refusal(dialect, problem))?;
    let model = callable(&settings, &caller).find(|model| model.name.as_str() == name);
    let none = || Refusal(dialect, Problem::new(Fault::NotFound, "the model does not exist or this key may not call it").about("model"));
    model.map(|model| Json(entry(model, dialect))).ok_or_else(none)
}

fn callable<'a>(settings: &'a Settings, caller: &'a Caller) -> impl Iterator<Item = &'a Model> {
    settings.models.values().filter(|model| caller.key.may_call(&model.name))
}

fn entry(model: &Model, dialect: Dialect) -> Value {
    match dialect {
        Dialect::Openai => json!({"id": model.name, "object": "model", "created": 0, "owned_by": "kernelopt"}),
        Dialect::Anthropic => json!({"id": model.name, "type": "model", "display_name": model.name, "created_at": "1970-01-01T00:00:00Z"}),
    }
}
