//! One provider: what is sent to it, how long it may take, and how its answers are read.

pub mod failure;
pub mod hints;
mod incoming;
pub mod levels;

use std::time::Duration;

use axum::http::{HeaderValue, header};
use bytes::Bytes;
use kernelopt_shared::secret::{ExposeSecret, SecretString};
use tokio::time::Instant;
use url::Url;

use crate::dialect::Dialect;
use crate::dialect::complaint::Complaint;
use crate::settings::{self, Timeouts};
use failure::{Failure, Kind, Wait};

pub use incoming::Incoming;

/// Version of Anthropic's API that is spoken.
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");
/// How long an unused connection is kept. Shorter than servers keep theirs, or a request would be sent into one that is being closed.
const IDLE_CONNECTION: Duration = Duration::from_secs(50);

/// One provider's end point. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Upstream {
    dialect: Dialect,
    base: Url,
    url: Url,
    patience: Timeouts,
    client: reqwest::Client,
}

/// Why an upstream cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[error("connections to {host}: {what}")]
pub struct UpstreamError {
    host: String,
    what: String,
}

impl Upstream {
    /// The one that is set.
    ///
    /// # Errors
    /// No client could be made, which is a fault of the machine.
    pub fn new(set: &settings::Upstream) -> Result<Self, UpstreamError> {
        kernelopt_shared::tls::install();
        let (dialect, patience, base) = (set.dialect, set.timeouts, &set.url);
        let mut url = base.clone();
        url.set_path(&format!("{}{}", base.path().trim_end_matches('/'), dialect.path()));
        // A redirect would carry the prompt to wherever it points. Nagle's algorithm is off by default.
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(patience.connect)
            .pool_idle_timeout(IDLE_CONNECTION)
            .tcp_keepalive(Duration::from_secs(30))
            .user_agent(concat!("kernelopt/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = client.map_err(|error| UpstreamError { host: base.host_str().unwrap_or_default().into(), what: error.to_string() })?;
        Ok(Self { dialect, base: base.clone(), url, patience, client })
    }

    /// Whether it is as it is set.
    pub fn is_as(&self, set: &settings::Upstream) -> bool {
        (self.dialect, &self.base, self.patience) == (set.dialect, &set.url, set.timeouts)
    }

    /// What it speaks.
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The field that limits output there. OpenAI's newer models take one name only, most other servers know the older one.
    pub fn output_field(&self) -> &'static str {
        let openai = |host: &str| host == "api.openai.com" || host.ends_with(".openai.azure.com");
        if self.url.host_str().is_some_and(openai) { "max_completion_tokens" } else { "max_tokens" }
    }

    /// Sends a request and waits for the head of its answer. `plain` are words that the upstream's refusal may hold. Only a stream's first byte can be waited for: what is not streamed comes when all of it
    /// is there.
    ///
    /// # Errors
    /// It does not answer, or not well.
    pub async fn send(&self, body: Bytes, key: Option<&SecretString>, stream: bool, plain: &[&str]) -> Result<Incoming, Failure> {
        let began = Instant::now();
        let ends = began + self.patience.total;
        let request = self.client.post(self.url.clone()).header(header::CONTENT_TYPE, "application/json").body(body);
        let secret = key.map_or("", |key| key.expose_secret());
        let request = match (self.dialect, key) {
            (Dialect::Openai, Some(_)) => request.header(header::AUTHORIZATION, sensitive(&format!("Bearer {secret}"))?),
            (Dialect::Anthropic, Some(_)) => request.header("x-api-key", sensitive(secret)?),
            (_, None) => request,
        };
        let request = if self.dialect == Dialect::Anthropic { request.header("anthropic-version", ANTHROPIC_VERSION) } else { request };
        let first_byte = if stream { ends.min(began + self.patience.first_byte) } else { ends };
        let response = match tokio::time::timeout_at(first_byte, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(broken(&error)),
            Err(_) => return Err(Failure::new(Kind::Silent(if first_byte == ends { Wait::Total } else { Wait::FirstByte }), "silence")),
        };
        let status = response.status();
        let incoming = Incoming::new(response, began, first_byte, self.patience.idle, ends);
        if status.is_success() {
            return Ok(incoming);
        }
        let (retry_after, seen) = (hints::retry_after(incoming.headers(), std::time::SystemTime::now()), incoming.levels());
        // What cannot be read of a complaint is not needed.
        let complaint = incoming.beginning().await.and_then(|body| Complaint::read(&body));
        let mut failure = Failure::of_status(status, complaint.as_ref(), retry_after, secret, plain);
        failure.seen = Box::new(seen);
        Err(failure)
    }
}

fn sensitive(text: &str) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(text).map_err(|_| Failure::new(Kind::Credential, "a key that cannot stand in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What an error of the client means. Its text may hold the address, which is nobody else's business.
fn broken(error: &reqwest::Error) -> Failure {
    match (error.is_timeout(), error.is_connect()) {
        (true, true) => Failure::new(Kind::Silent(Wait::Connect), "no connection in time"),
        (true, false) => Failure::new(Kind::Silent(Wait::Idle), "silence"),
        _ => Failure::new(Kind::Unreachable, "no connection"),
    }
}
