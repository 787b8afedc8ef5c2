//! Answers in one piece that are kept: the same request of the same key costs once.
//!
//! Streams go past: who wants to see an answer come has a reason for it.

use std::sync::Arc;

use bytes::Bytes;
use kernelopt_shared::language_model::NanoUsd;
use serde_json::{Map, Value};

use crate::attempt::{Call, Reply};
use crate::cache::{AnswerCache, CacheKey, Fresh, Source};
use crate::dialect::{Fault, Problem};
use crate::flight::Charged;
use crate::gateway::Gateway;
use crate::names::ModelName;
use crate::record::Record;
use crate::settings::{self, Dialect};

/// An answer and what it took.
#[derive(Clone, Debug)]
pub struct Kept {
    body: Bytes,
    charged: Charged,
}

/// A cache with these bounds.
pub fn cache(settings: &settings::Cache) -> AnswerCache<Kept> {
    AnswerCache::new(settings, |kept: &Kept| kept.body.len())
}

impl Gateway {
    /// Answers a request, from what is kept where it can. What is kept took its tokens once, and costs nothing more. Dropping the future cancels
    /// it wherever it is: in the queue, between attempts, upstream.
    ///
    /// # Errors
    /// It is refused, or no upstream answers it.
    pub async fn ask(self: &Arc<Self>, call: Call) -> Result<Reply, Problem> {
        let Some((cache, key)) = self.cache().zip(self.cache_key(&call)) else { return self.fetch(call).await };
        let (brought, source) = cache.get(key, || self.fetch_whole(call.clone())).await;
        self.metrics.cache(match source {
            Source::Kept => "hit",
            Source::Fetched => "miss",
            Source::Joined => "joined",
        });
        if source != Source::Fetched && brought.is_ok() {
            let Call { request, key, job, request_id, .. } = &call;
            let mut record = Record::new(self.clone(), request_id.clone(), request.model.clone(), job.to_string(), key.to_string());
            record.outcome("cached");
        }
        let Kept { body, charged } = brought.map_err(|problem| Problem::clone(&problem))?;
        let cost = if source == Source::Fetched { charged.cost } else { Some(NanoUsd::ZERO) };
        Ok(Reply::Whole { body, charged: Charged { cost, ..charged } })
    }

    /// None for what is not kept: a stream, or a model that is not there any more or that its key may not call any more.
    fn cache_key(&self, call: &Call) -> Option<CacheKey> {
        let Call { request, key, sample, .. } = call;
        if request.stream {
            return None;
        }
        let (settings, model) = (self.settings(), ModelName::parse(&request.model).ok()?);
        let may_call = settings.keys.get(key).is_some_and(|key| key.may_call(&model));
        if !may_call || !settings.models.contains_key(&model) {
            return None;
        }
        let body: Map<String, Value> = serde_json::from_slice(request.body().text()).ok()?;
        CacheKey::of(key, &model, request.dialect, &body, *sample)
    }

    async fn fetch_whole(self: &Arc<Self>, call: Call) -> Result<Fresh<Kept>, Problem> {
        let dialect = call.request.dialect;
        match self.fetch(call).await? {
            Reply::Whole { body, charged } => {
                let is_whole = is_whole(dialect, &body);
                let kept = Kept { body, charged };
                Ok(if is_whole { Fresh::Keep(kept) } else { Fresh::Pass(kept) })
            }
            Reply::Stream(_) => Err(Problem::new(Fault::Internal, "a stream where none was asked for")),
        }
    }
}

/// True where the model had said all: not cut at the limit of tokens, not withheld.
fn is_whole(dialect: Dialect, body: &[u8]) -> bool {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return false };
    match dialect {
        Dialect::Openai => body["choices"].as_array().is_some_and(|choices| {
            !choices.is_empty() && choices.iter().all(|choice| matches!(choice["finish_reason"].as_str(), Some("stop" | "tool_calls")))
        }),
        Dialect::Anthropic => matches!(body["stop_reason"].as_str(), Some("end_turn" | "stop_sequence" | "tool_use")),
    }
}
