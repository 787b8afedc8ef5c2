use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs, io};

use lapin::tcp::OwnedTLSConfig;
use lapin::uri::{AMQPScheme, AMQPUri};
use secrecy::{ExposeSecret, SecretString};

use crate::exit::{ExitCode, UserError};

/// Where a broker is, and how long everything may take.
#[derive(Clone, Debug)]
pub struct RabbitOptions {
    /// `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps` for TLS; the default virtual host is written `%2f`.
    pub uri: SecretString,
    /// First word of every name on the broker, so that several clusters share one.
    pub prefix: String,
    /// What an operator sees as the connection's name.
    pub connection_name: String,
    /// Certificates of authorities beside the system's, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Silence after which, twice, either side takes the other for dead.
    pub heartbeat: Duration,
    /// Longest time for a connection to be made.
    pub connect_timeout: Duration,
    /// Longest time for any request but a publication, waiting for a connection included.
    pub request_timeout: Duration,
    /// Longest time for a publication to be confirmed, waiting for a connection included.
    pub confirm_timeout: Duration,
    /// Wait before the first attempt to connect again; waits double.
    pub first_wait: Duration,
    /// Longest wait between two attempts.
    pub longest_wait: Duration,
    /// Silence after which a consumer of a durable queue is made anew, where nothing is unsettled. RabbitMQ can leave a consumer deaf that it
    /// counts as alive: seen on 3.10, when a deleted queue was declared again before the consumer's channel had heard of its end.
    pub longest_quiet: Duration,
}

/// Why options make no sense. No message holds the URI: it has the password in it.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum OptionsError {
    #[error("the broker's URI cannot be read: {0}")]
    Uri(&'static str),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("the prefix {0:?} is not 1 to 40 of a-z, 0-9, '-', '_' and '.'")]
    Prefix(String),
}

impl UserError for OptionsError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Usage
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Uri(_) => "Set KERNELOPT_BROKER_URL to amqps://USER:PASSWORD@HOST/VHOST; encode special characters (%2f is /).".into(),
            Self::File { .. } => "Check the path and its permissions.".into(),
            Self::Prefix(_) => "Choose a short name, or leave it out.".into(),
        })
    }
}

impl RabbitOptions {
    /// A broker by its URI, everything else by default.
    pub fn new(uri: SecretString) -> Self {
        Self {
            uri,
            prefix: "kernelopt".into(),
            connection_name: "kernelopt".into(),
            ca_file: None,
            heartbeat: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            confirm_timeout: Duration::from_secs(10),
            first_wait: Duration::from_millis(200),
            longest_wait: Duration::from_secs(10),
            longest_quiet: Duration::from_secs(60),
        }
    }

    /// What the client needs to connect.
    pub(super) fn target(&self) -> Result<Target, OptionsError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        if !(1..=40).contains(&self.prefix.len()) || !self.prefix.bytes().all(plain) {
            return Err(OptionsError::Prefix(self.prefix.chars().take(80).collect()));
        }
        // The parser's own words repeat the URI.
        let mut uri: AMQPUri = self.uri.expose_secret().parse().map_err(|_| OptionsError::Uri("it must begin with amqp:// or amqps://"))?;
        if uri.authority.host.is_empty() {
            return Err(OptionsError::Uri("it names no host"));
        }
        uri.query.heartbeat.get_or_insert(u16::try_from(self.heartbeat.as_secs().max(1)).unwrap_or(u16::MAX));
        let cert_chain = self.ca_file.as_deref().map(read).transpose()?;
        Ok(Target { uri, cert_chain })
    }
}

/// A URI that was read, and certificates.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) uri: AMQPUri,
    cert_chain: Option<String>,
}

impl Target {
    pub(super) fn tls(&self) -> OwnedTLSConfig {
        OwnedTLSConfig { identity: None, cert_chain: self.cert_chain.clone() }
    }
}

/// Where it is, without user and password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.uri.scheme {
            AMQPScheme::AMQP => "amqp",
            AMQPScheme::AMQPS => "amqps",
        };
        write!(f, "{scheme}://{}:{}/{}", self.uri.authority.host, self.uri.authority.port, self.uri.vhost)
    }
}

fn read(path: &Path) -> Result<String, OptionsError> {
    fs::read_to_string(path).map_err(|source| OptionsError::File { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(uri: &str) -> RabbitOptions {
        RabbitOptions::new(uri.to_owned().into())
    }

    #[test]
    fn nothing_that_is_shown_holds_the_password() {
        let good = options("amqps://user:hunter2@broker.example/%2f");
        let shown = format!("{good:?} {}", good.target().unwrap());
        assert!(shown.contains("amqps://broker.example:5671//") && !shown.contains("hunter2") && !shown.contains("user:"), "{shown}");
        for bad in ["http://user:hunter2@broker", "amqp:hunter2", "hunter2", "amqp://user:hunter2@broker:port", ""] {
            let error = options(bad).target().err().unwrap();
            assert!(!format!("{error} {error:?} {:?}", error.remedy()).contains("hunter2"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_heartbeat_in_the_uri_goes_first() {
        assert_eq!(options("amqp://h").target().unwrap().uri.query.heartbeat, Some(10));
        assert_eq!(options("amqp://h?heartbeat=3").target().unwrap().uri.query.heartbeat, Some(3));
    }

    #[test]
    fn a_prefix_is_a_short_name() {
        for bad in ["", "a b", "A", &"x".repeat(41)] {
            let options = RabbitOptions { prefix: bad.into(), ..options("amqp://h") };
            assert!(matches!(options.target(), Err(OptionsError::Prefix(_))), "{bad:?}");
        }
    }
}
