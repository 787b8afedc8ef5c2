//! Blobs of a coordinator.
//!
//! ```text
//! HEAD ADDRESS/DIGEST    200 with Content-Length, or 404
//! GET  ADDRESS/DIGEST    200 with the bytes, or 404
//! PUT  ADDRESS/DIGEST    200, 201 or 204 once they are kept; 400 where they are not what the name says; 413 where they are too many
//! ```
//!
//! All with `Authorization: Bearer TOKEN` where there is a token. Each may be repeated, and is, after a lost connection or a server's own error.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use reqwest::header::CONTENT_LENGTH;
use reqwest::{Body, Client, Method, RequestBuilder, Response, StatusCode};
use tokio::time::sleep;
use url::Url;

use super::{BlobError, BlobOptions, Pieces, Store, allowance};
use crate::api::Problem;
use crate::digest::Digest;
use crate::secret::{ExposeSecret, SecretString};

/// Tries of one request.
const TRIES: u32 = 4;
/// Wait before the second try; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Most of a server's words that an error repeats.
const WORDS: usize = 300;
/// Most bytes of an error that are read.
const MOST_PROBLEM: usize = 16 << 10;

/// The blobs of a coordinator.
pub struct Coordinator {
    client: Client,
    /// For uploads: a read timeout runs from the start of a request, and the server is silent until it has everything.
    uploads: Client,
    address: Url,
    token: Option<SecretString>,
    deadline: Duration,
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator").field("address", &self.address.as_str()).finish_non_exhaustive()
    }
}

impl Coordinator {
    /// By the address of its blobs.
    pub fn open(options: &BlobOptions) -> Result<Self, BlobError> {
        let address = Url::parse(&options.address).map_err(|e| BlobError::Options(format!("the coordinator's address: {e}")))?;
        if !address.username().is_empty() || address.password().is_some() {
            // Not repeated: addresses are logged.
            return Err(BlobError::Options("the coordinator's address has a user or password in it; give a token instead".into()));
        }
        crate::tls::install();
        let builder = || {
            Client::builder()
                .connect_timeout(options.deadline.min(Duration::from_secs(5)))
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(concat!("kernelopt/", env!("CARGO_PKG_VERSION")))
        };
        let settings = |e: reqwest::Error| BlobError::Options(e.to_string());
        let uploads = builder().build().map_err(settings)?;
        // Between two pieces of an answer.
        let client = builder().read_timeout(options.deadline).build().map_err(settings)?;
        Ok(Self { client, uploads, address, token: options.token.clone(), deadline: options.deadline })
    }

    fn request(&self, method: Method, of: Digest) -> RequestBuilder {
        let url = format!("{}/{of}", self.address.as_str().trim_end_matches('/'));
        let client = if method == Method::PUT { &self.uploads } else { &self.client };
        let request = client.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        }
    }

    /// Sends what `make` makes until it is answered, with a success or a refusal.
    async fn send(&self, of: Digest, make: impl Fn() -> RequestBuilder) -> Result<Response, BlobError> {
        let mut wait = FIRST_WAIT;
        for last in (0..TRIES).map(|tried| tried + 1 == TRIES) {
            let error = match make().send().await {
                Ok(response) => match judge(response, of).await {
                    Err(error) if error.is_transient() => error,
                    done => return done,
                },
                Err(error) => self.unsent(&error),
            };
            if last || matches!(error, BlobError::TimedOut(_)) {
                return Err(error);
            }
            sleep(wait).await;
            wait *= 2;
        }
        Err(BlobError::TimedOut(self.deadline))
    }

    fn unsent(&self, error: &reqwest::Error) -> BlobError {
        if error.is_timeout() { BlobError::TimedOut(self.deadline) } else { BlobError::Unavailable(chain(error)) }
    }
}

/// A response that is a success, or what it means.
async fn judge(response: Response, of: Digest) -> Result<Response, BlobError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let words = match words(response).await {
        words if words.is_empty() => status.to_string(),
        words => format!("{status}: {words}"),
    };
    Err(match status {
        StatusCode::NOT_FOUND => BlobError::Missing(of),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => BlobError::Refused(words),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => BlobError::Unavailable(words),
        StatusCode::INSUFFICIENT_STORAGE => BlobError::Full(words),
        status if status.is_server_error() => BlobError::Unavailable(words),
        _ => BlobError::Rejected(words),
    })
}

/// What an error says: the detail of a problem document, or the start of its text.
async fn words(response: Response) -> String {
    let mut text = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Ok(Some(piece)) = pieces.try_next().await {
        text.extend_from_slice(&piece);
        if text.len() >= MOST_PROBLEM {
            break;
        }
    }
    let said = serde_json::from_slice(&text).map(|problem: Problem| problem.detail);
    let said = said.unwrap_or_else(|_| String::from_utf8_lossy(&text).into_owned());
    said.chars().take(WORDS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// reqwest's own text leaves out the reason.
fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// What a server says of a blob's size. Without it nothing could be held against a limit.
fn length(response: &Response) -> Result<u64, BlobError> {
    let value = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
    value.ok_or_else(|| BlobError::Unavailable("it answered without Content-Length".into()))
}

#[async_trait]
impl Store for Coordinator {
    async fn size(&self, of: Digest) -> Result<Option<u64>, BlobError> {
        match self.send(of, || self.request(Method::HEAD, of).timeout(self.deadline)).await {
            Ok(response) => length(&response).map(Some),
            Err(BlobError::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn put(&self, as_: Digest, bytes: Bytes) -> Result<(), BlobError> {
        let allowed = allowance(self.deadline, bytes.len() as u64);
        self.send(as_, || self.request(Method::PUT, as_).timeout(allowed).body(bytes.clone())).await.map(drop)
    }

    async fn put_pieces(&self, as_: Digest, bytes: u64, pieces: Pieces) -> Result<(), BlobError> {
        // Once: a stream cannot be sent again from its start. Whoever asked may.
        let body = Body::wrap_stream(pieces);
        let request = self.request(Method::PUT, as_).header(CONTENT_LENGTH, bytes).timeout(allowance(self.deadline, bytes)).body(body);
        let response = request.send().await.map_err(|error| self.unsent(&error))?;
        judge(response, as_).await.map(drop)
    }

    async fn get(&self, of: Digest) -> Result<(u64, Pieces), BlobError> {
        let response = self.send(of, || self.request(Method::GET, of)).await?;
        let bytes = length(&response)?;
        Ok((bytes, response.bytes_stream().map_err(|error| BlobError::Unavailable(chain(&error))).boxed()))
    }
}
