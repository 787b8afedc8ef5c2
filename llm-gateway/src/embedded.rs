//! The gateway as a language model within the same process: the same limits, budgets and queue, and no HTTP to itself.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use kernelopt_shared::language_model::{Answer, LanguageModel, Question, StopReason, Unanswered};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::attempt::{Call, Reply};
use crate::dialect::{Dialect, Fault, Problem, Request};
use crate::gateway::Gateway;
use crate::names::{JobName, KeyName};

/// A gateway that is asked as the holder of one of its keys.
pub struct Embedded {
    gateway: Arc<Gateway>,
    key: KeyName,
}

impl Embedded {
    /// Asks as `key`, which is one of the settings'.
    pub const fn new(gateway: Arc<Gateway>, key: KeyName) -> Self {
        Self { gateway, key }
    }
}

#[async_trait]
impl LanguageModel for Embedded {
    async fn ask(&self, job: &str, question: &Question) -> Result<Answer, Unanswered> {
        let refused = |what: String| Unanswered::Refused { what };
        let settings = self.gateway.settings();
        let priority = settings.keys.get(&self.key).map(|key| key.priority);
        let priority = priority.ok_or_else(|| refused(format!("there is no key {}", self.key)))?;
        let mut request = Request::read(Dialect::Openai, Bytes::from(body_of(question).to_string())).map_err(unanswered)?;
        // Its field has one name or another, by who is asked in the end.
        request.max_output = Some(u64::from(question.max_output_tokens.max(1)));
        let call = Call {
            request,
            key: self.key.clone(),
            job: JobName::parse(job).map_err(|error| refused(error.to_string()))?,
            priority,
            sample: question.sample,
            deadline: Instant::now() + settings.queue.longest_wait,
            request_id: Some(question.id.clone()),
        };
        match self.gateway.ask(call).await.map_err(unanswered)? {
            Reply::Whole { body, charged } => {
                let answer = serde_json::from_slice(&body).ok().and_then(|body| answer_of(&body));
                let answer = answer.ok_or_else(|| Unanswered::Unavailable { what: "an answer without words".into(), retry_after: None })?;
                Ok(Answer { usage: charged.usage.into(), cost: charged.cost.unwrap_or_default(), ..answer })
            }
            Reply::Stream(_) => Err(refused("a stream that nobody asked for".into())),
        }
    }
}

/// A question as a request in OpenAI's dialect, without a limit of output.
pub(crate) fn body_of(question: &Question) -> Value {
    let mut body = json!({"model": question.model, "messages": question.turns});
    if let Some(temperature) = question.temperature {
        // The shortest digits of the number that was meant: 0.7 is not 0.699999988.
        body["temperature"] = temperature.to_string().parse::<f64>().map_or(Value::Null, Value::from);
    }
    body
}

/// An answer in OpenAI's dialect; what it took and cost is filled in by those who know.
pub(crate) fn answer_of(body: &Value) -> Option<Answer> {
    let choice = body["choices"].get(0)?;
    let message = &choice["message"];
    let refusal = message["refusal"].as_str();
    let stop = match choice["finish_reason"].as_str() {
        _ if refusal.is_some() => StopReason::Refusal,
        Some("length") => StopReason::Length,
        Some("content_filter") => StopReason::Refusal,
        _ => StopReason::End,
    };
    let text = message["content"].as_str().or(refusal).unwrap_or_default().to_owned();
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    Some(Answer { text, stop, model, usage: Default::default(), cost: Default::default() })
}

fn unanswered(problem: Problem) -> Unanswered {
    let Problem { fault, message: what, retry_after, .. } = problem;
    match fault {
        Fault::BudgetSpent => Unanswered::Spent { what },
        Fault::RateLimited | Fault::Overloaded | Fault::Upstream | Fault::Timeout | Fault::Internal => {
            Unanswered::Unavailable { what, retry_after }
        }
        _ => Unanswered::Refused { what },
    }
}
