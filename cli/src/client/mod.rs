//! A coordinator's HTTP API, from the other side.

mod error;
mod events;
mod transfer;

use std::time::Duration;

use kernelopt_shared::api::{
    AgentList, DrillSpec, Explanation, FrontierPage, JobPage, JobSpec, JobView, PROBLEM_JSON, Problem, QuarantineOrder,
};
use kernelopt_shared::message::{HostName, JobId};
use kernelopt_shared::secret::{ExposeSecret, SecretString};
use kernelopt_shared::tls;
use rand::RngExt as _;
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use error::ClientError;
pub use events::Frame;

/// Time to connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Longest silence of the server; it gives a sign of life every ten seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// Before a submission is tried again.
const SUBMIT_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// Greatest size of an answer that is JSON, in bytes.
const MOST_JSON: usize = 64 << 20;

/// A client of one coordinator.
pub struct Client {
    server: Url,
    token: Option<SecretString>,
    http: reqwest::Client,
}

impl Client {
    /// A client of the coordinator at `server`.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn new(server: &str, token: Option<SecretString>) -> Result<Self, ClientError> {
        tls::install();
        let url =
            Url::parse(server).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host() && !url.cannot_be_a_base());
        let server = url.ok_or_else(|| ClientError::Address(server.to_owned()))?;
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(SILENCE)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("kernelopt/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(ClientError::Setup)?;
        Ok(Self { server, token, http })
    }

    /// True where the token would cross a network in clear text.
    pub fn shows_its_token(&self) -> bool {
        let host = self.server.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        self.token.is_some() && self.server.scheme() == "http" && !here
    }

    /// Where it asks.
    pub const fn server(&self) -> &Url {
        &self.server
    }

    fn url(&self, words: &[&str]) -> Url {
        let mut url = self.server.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("v1").extend(words);
        }
        url
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.http.request(method, url);
        self.token.iter().fold(request, |request, token| request.bearer_auth(token.expose_secret()))
    }

    /// Sends it; an answer that is no success becomes an error.
    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|source| ClientError::unreachable(&self.server, source))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let documented = response.headers().get("content-type").is_some_and(|value| value.as_bytes().starts_with(PROBLEM_JSON.as_bytes()));
        let text = self.read(response).await.unwrap_or_default();
        match serde_json::from_slice::<Problem>(&text) {
            Ok(problem) if documented => Err(ClientError::Refused(Box::new(problem))),
            // What stands before a coordinator speaks while it starts again.
            _ if matches!(status, 502..=504) => Err(ClientError::Unreachable {
                server: self.server.to_string(),
                what: format!("status {status}: it is not there behind its proxy"),
            }),
            _ => Err(ClientError::Strange { server: self.server.to_string(), what: format!("status {status} without a problem document") }),
        }
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|source| ClientError::unreachable(&self.server, source))? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MOST_JSON {
                return Err(ClientError::Strange { server: self.server.to_string(), what: format!("more than {MOST_JSON} bytes of JSON") });
            }
        }
        Ok(bytes)
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let response = self.send(request).await?;
        let text = self.read(response).await?;
        let strange = |e: serde_json::Error| ClientError::Strange {
            server: self.server.to_string(),
            what: format!("an answer does not decode: {e}"),
        };
        serde_json::from_slice(&text).map_err(strange)
    }

    async fn get<T: DeserializeOwned>(&self, url: Url) -> Result<T, ClientError> {
        self.json(self.request(Method::GET, url)).await
    }

    async fn post<T: DeserializeOwned>(&self, url: Url, body: Option<&impl Serialize>) -> Result<T, ClientError> {
        let request = self.request(Method::POST, url);
        self.json(body.into_iter().fold(request, |request, body| request.json(body))).await
    }

    /// Submits a job whose bundle is stored. Where the connection is cut before the answer it is submitted again under the same key, and so is
    /// one job.
    pub async fn submit(&self, spec: &JobSpec) -> Result<JobView, ClientError> {
        let key = format!("{:032x}", rand::rng().random::<u128>());
        let submit = || {
            let request = self.request(Method::POST, self.url(&["jobs"])).header("idempotency-key", &key);
            self.json(request.json(spec))
        };
        for pause in SUBMIT_AGAIN {
            match submit().await {
                Err(error @ ClientError::Unreachable { .. }) => tracing::info!(%error, "submitting again"),
                done => return done,
            }
            tokio::time::sleep(pause).await;
        }
        submit().await
    }

    /// Begins a drill.
    pub async fn drill(&self, spec: &DrillSpec) -> Result<JobView, ClientError> {
        self.post(self.url(&["drills"]), Some(spec)).await
    }

    /// Jobs, latest first: at most `limit`.
    pub async fn jobs(&self, phase: Option<&str>, limit: u32) -> Result<JobPage, ClientError> {
        let mut url = self.url(&["jobs"]);
        url.query_pairs_mut().append_pair("limit", &limit.to_string()).extend_pairs(phase.map(|phase| ("phase", phase)));
        self.get(url).await
    }

    /// One job.
    pub async fn job(&self, id: &JobId) -> Result<JobView, ClientError> {
        self.get(self.url(&["jobs", id.as_str()])).await
    }

    /// Ends a job.
    pub async fn cancel(&self, id: &JobId) -> Result<JobView, ClientError> {
        self.json(self.request(Method::DELETE, self.url(&["jobs", id.as_str()]))).await
    }

    /// Why a job is where it is.
    pub async fn explain(&self, id: &JobId) -> Result<Explanation, ClientError> {
        self.get(self.url(&["jobs", id.as_str(), "explain"])).await
    }

    /// All agents.
    pub async fn agents(&self) -> Result<AgentList, ClientError> {
        self.get(self.url(&["agents"])).await
    }

    /// Gives a host's agents the order `drain`, `readmit` or, with a reason, `quarantine`.
    pub async fn order(&self, host: &HostName, order: &str, reason: Option<&QuarantineOrder>) -> Result<AgentList, ClientError> {
        self.post(self.url(&["agents", host.as_str(), order]), reason).await
    }

    /// The best that is known, of one class or of all.
    pub async fn frontier(&self, class: Option<&str>, limit: u32) -> Result<FrontierPage, ClientError> {
        let mut url = self.url(&["frontier"]);
        url.query_pairs_mut().append_pair("limit", &limit.to_string()).extend_pairs(class.map(|class| ("class", class)));
        self.get(url).await
    }
}
