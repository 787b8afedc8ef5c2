//! The file as it is written. Every table refuses words that it does not know: they would be settings without effect.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::{Dialect, Use, Vocabulary};
use crate::names::{CredentialName, JobName, KeyName, ModelName, UpstreamName};
use crate::price::{Dollars, Price};

/// Longest file of settings.
pub const MOST_FILE_BYTES: usize = 4 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub listen: Option<SocketAddr>,
    pub data: Option<PathBuf>,
    #[serde(default)]
    pub http: Http,
    #[serde(default)]
    pub retry: Retry,
    #[serde(default)]
    pub breaker: Breaker,
    #[serde(default)]
    pub queue: Queue,
    pub cache: Option<Cache>,
    pub shared: Option<Spanned<Shared>>,
    #[serde(default)]
    pub upstreams: Vec<Upstream>,
    #[serde(default)]
    pub models: Vec<Model>,
    #[serde(default)]
    pub keys: Vec<Key>,
    #[serde(default)]
    pub jobs: Jobs,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Http {
    pub most_body_bytes: Option<Spanned<u64>>,
    pub most_file_bytes: Option<Spanned<u64>>,
    pub heartbeat_s: Option<Spanned<u64>>,
    pub drain_s: Option<Spanned<u64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Retry {
    pub most_attempts: Option<Spanned<u64>>,
    pub first_wait_ms: Option<Spanned<u64>>,
    pub longest_wait_ms: Option<Spanned<u64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Breaker {
    pub failure_percent: Option<Spanned<u64>>,
    pub least_attempts: Option<Spanned<u64>>,
    pub window_s: Option<Spanned<u64>>,
    pub open_s: Option<Spanned<u64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Queue {
    pub most: Option<Spanned<u64>>,
    pub most_per_job: Option<Spanned<u64>>,
    pub longest_wait_s: Option<Spanned<u64>>,
    pub ageing_s: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cache {
    pub most_bytes: Spanned<u64>,
    pub keep_s: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shared {
    pub env: Option<String>,
    pub file: Option<PathBuf>,
    pub ca_file: Option<PathBuf>,
    pub prefix: Option<Spanned<String>>,
    pub deadline_ms: Option<Spanned<u64>>,
    pub ticket_s: Option<Spanned<u64>>,
    pub gateways: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Upstream {
    pub name: Spanned<UpstreamName>,
    pub dialect: Dialect,
    pub url: Spanned<String>,
    #[serde(default)]
    pub timeouts: Timeouts,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub credentials: Vec<Credential>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Timeouts {
    pub connect_ms: Option<Spanned<u64>>,
    pub first_byte_ms: Option<Spanned<u64>>,
    pub idle_ms: Option<Spanned<u64>>,
    pub total_ms: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Credential {
    pub name: Spanned<CredentialName>,
    pub env: Option<String>,
    pub file: Option<PathBuf>,
    #[serde(default)]
    pub limits: Limits,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Limits {
    pub requests_per_minute: Option<Spanned<u64>>,
    pub tokens_per_minute: Option<Spanned<u64>>,
    pub input_tokens_per_minute: Option<Spanned<u64>>,
    pub output_tokens_per_minute: Option<Spanned<u64>>,
    pub burst_s: Option<Spanned<u64>>,
    pub concurrent: Option<Spanned<u64>>,
    pub budget_usd: Option<Spanned<Dollars>>,
    pub budget_tokens: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Model {
    pub name: Spanned<ModelName>,
    pub vocabulary: Option<Vocabulary>,
    pub bytes_per_token: Option<Spanned<f64>>,
    pub output_tokens: Option<Spanned<u64>>,
    pub context_tokens: Option<Spanned<u64>>,
    pub at: Vec<At>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct At {
    pub upstream: Spanned<UpstreamName>,
    pub model: Spanned<String>,
    pub credentials: Option<Vec<Spanned<CredentialName>>>,
    pub tier: Option<Spanned<u64>>,
    pub weight: Option<Spanned<u64>>,
    pub price: Option<Spanned<Price>>,
    #[serde(default)]
    pub limits: Limits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Key {
    pub name: Spanned<KeyName>,
    pub env: Option<String>,
    pub file: Option<PathBuf>,
    #[serde(default, rename = "use")]
    pub used: Use,
    pub models: Option<Vec<Spanned<ModelName>>>,
    pub priority: Option<Spanned<u64>>,
    #[serde(default)]
    pub limits: Limits,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Jobs {
    pub weight: Option<Spanned<u64>>,
    pub limits: Limits,
    pub named: Vec<NamedJob>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedJob {
    pub name: Spanned<JobName>,
    pub weight: Option<Spanned<u64>>,
    #[serde(default)]
    pub limits: Limits,
}
