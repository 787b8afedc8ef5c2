//! A name for every request: in the answer, in problems and in the log.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::REQUEST_ID;
use axum::http::{HeaderMap, HeaderValue};

/// Longest name that is taken from a client.
const LONGEST: usize = 64;

tokio::task_local! {
    static CURRENT: String;
}

/// Gives names to requests.
#[derive(Debug)]
pub struct RequestIds {
    /// Tells the processes of a cluster apart.
    process: u32,
    next: AtomicU64,
}

impl Default for RequestIds {
    /// Names that no other process gives.
    fn default() -> Self {
        Self { process: rand::random(), next: AtomicU64::new(0) }
    }
}

impl RequestIds {
    /// The client's own name for its request, where it is a plain word; else a new one.
    pub fn of(&self, headers: &HeaderMap) -> String {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
        match given.filter(|name| (1..=LONGEST).contains(&name.len()) && name.bytes().all(plain)) {
            Some(name) => name.to_owned(),
            None => format!("{:08x}-{}", self.process, self.next.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// Runs `work` as the answer to the request `id`.
pub async fn scope<T>(id: String, work: impl Future<Output = T>) -> T {
    CURRENT.scope(id, work).await
}

/// Name of the request that is being answered.
pub fn current() -> Option<String> {
    CURRENT.try_with(Clone::clone).ok()
}

/// As a header's value.
pub fn header(id: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(id).ok()
}
