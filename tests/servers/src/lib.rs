//! Private RabbitMQ and Redis servers for tests: real ones, of the packages that Debian 12 has.
//!
//! ```no_run
//! use kernelopt_test_servers::{RabbitMq, Redis, RedisOptions};
//!
//! let rabbit = RabbitMq::start().unwrap();        // about 5 s on two cores
//! let redis = Redis::start(RedisOptions::default()).unwrap();
//! println!("{} {}", rabbit.url(), redis.url());
//! ```
//!
//! A server has its own folder, its own ports on loopback and its own account and name; a system's own server is neither used nor
//! disturbed. It ends with its value, with a panic's unwinding, and, by the kernel's hand, with the test's process however that ends; of a
//! killed one the folder stays in the system's temporary folder.
//! All calls block: in asynchronous tests use a multi-threaded runtime.
//!
//! A server that is not installed is an error that names the package, never a test passed over.

mod account;
mod keeper;
mod ports;
mod process;
mod proxy;
mod rabbitmq;
mod redis;

use std::io;
use std::time::Duration;

pub use proxy::Proxy;
pub use rabbitmq::RabbitMq;
pub use redis::{Redis, RedisOptions};

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum ServerError {
    #[error("{program} is not installed: run scripts/packages.sh, or `apt-get install {package}`")]
    Missing { program: &'static str, package: &'static str },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{server} ended while it started; its last words:\n{words}")]
    Ended { server: &'static str, words: String },
    #[error("{server} did not answer within {} s; its last words:\n{words}", waited.as_secs())]
    Silent { server: &'static str, waited: Duration, words: String },
    #[error("{command} failed: {words}")]
    Command { command: String, words: String },
}

impl ServerError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
