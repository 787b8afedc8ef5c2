//! A gateway elsewhere as a language model.
//!
//! It is asked once: retries, failover and waiting are the gateway's, which knows of all requests. Dropping the future closes the connection,
//! and so cancels the call all the way up.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use axum::http::{HeaderValue, header};
use kernelopt_shared::language_model::{Answer, LanguageModel, NanoUsd, Question, TokenUsage, Unanswered};
use kernelopt_shared::secret::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::Url;

use crate::dialect::complaint::Complaint;
use crate::embedded::{answer_of, body_of};
use crate::http::{COST, JOB, SAMPLE};
use crate::upstream::hints;

/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// A gateway that died in silence is found out by then.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A gateway at an address.
pub struct Client {
    url: Url,
    authorization: HeaderValue,
    client: reqwest::Client,
}

/// Why there can be no client.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum ClientError {
    #[error("a gateway's address is http(s)://HOST:PORT")]
    Address,
    #[error("the key cannot stand in a header")]
    Key,
    #[error("connections: {0}")]
    Connections(String),
}

impl Client {
    /// Asks the gateway at `base`, such as `http://gateway:7119`, with this key.
    ///
    /// # Errors
    /// The address or the key cannot be used.
    pub fn new(base: &Url, key: &SecretString) -> Result<Self, ClientError> {
        kernelopt_shared::tls::install();
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(ClientError::Address);
        }
        let mut url = base.clone();
        url.set_path(&format!("{}/v1/chat/completions", base.path().trim_end_matches('/').trim_end_matches("/v1")));
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret())).map_err(|_| ClientError::Key)?;
        authorization.set_sensitive(true);
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .tcp_keepalive(KEEPALIVE)
            .user_agent(concat!("kernelopt/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ClientError::Connections(error.without_url().to_string()))?;
        Ok(Self { url, authorization, client })
    }
}

#[async_trait]
impl LanguageModel for Client {
    async fn ask(&self, job: &str, question: &Question) -> Result<Answer, Unanswered> {
        let unavailable = |what: String, retry_after| Unanswered::Unavailable { what, retry_after };
        let mut body = body_of(question);
        body["max_tokens"] = question.max_output_tokens.max(1).into();
        let request = self.client.post(self.url.clone()).header(header::AUTHORIZATION, self.authorization.clone());
        let request = request.header(JOB, job).header(SAMPLE, question.sample).header("x-request-id", &question.id).json(&body);
        let response = request.send().await.map_err(|error| unavailable(format!("the gateway: {}", error.without_url()), None))?;
        let (status, wait) = (response.status(), hints::retry_after(response.headers(), SystemTime::now()));
        let cost = response.headers().get(COST).and_then(|value| value.to_str().ok()).and_then(|value| value.parse().ok());
        let body = response.bytes().await.map_err(|error| unavailable(format!("the gateway: {}", error.without_url()), None))?;
        if status.is_success() {
            let body: Value = serde_json::from_slice(&body).map_err(|_| unavailable("the gateway sent no JSON".into(), None))?;
            let answer = answer_of(&body).ok_or_else(|| unavailable("an answer without words".into(), None))?;
            return Ok(Answer { usage: usage_of(&body), cost: NanoUsd(cost.unwrap_or(0)), ..answer });
        }
        let complaint = Complaint::read(&body).unwrap_or_default();
        let what =
            if complaint.message.is_empty() { format!("the gateway answered with status {}", status.as_u16()) } else { complaint.message };
        Err(match status.as_u16() {
            _ if complaint.code == "insufficient_quota" => Unanswered::Spent { what },
            408 | 429 | 500.. => unavailable(what, wait),
            _ => Unanswered::Refused { what },
        })
    }
}

fn usage_of(body: &Value) -> TokenUsage {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let usage = &body["usage"];
    TokenUsage {
        input_tokens: number(&usage["prompt_tokens"]),
        cached_input_tokens: number(&usage["prompt_tokens_details"]["cached_tokens"]),
        output_tokens: number(&usage["completion_tokens"]),
    }
}
