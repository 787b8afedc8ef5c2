//! Where Redis is, and how to talk to it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, TlsCertificates};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::frontier::FrontierError;
use crate::secret::{self, ExposeSecret, SecretString};

/// Longest that bytes may lie unacknowledged before the connection is given up: a peer that vanished sends no word of it.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Settings of a frontier in Redis.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// `redis://HOST:PORT/DB`, `rediss://...` for TLS; it may have user and password in it, and so is a secret.
    pub url: SecretString,
    /// User, where it is not in the address; without one Redis's default user.
    pub username: Option<String>,
    /// Password, where it is not in the address.
    pub password: Option<SecretString>,
    /// Certificates (PEM) that sign the server's; those of the system without it.
    pub ca_file: Option<PathBuf>,
    /// What all keys begin with, so that several clusters may share a Redis.
    pub prefix: String,
    /// Longest that one round trip may take.
    pub deadline: Duration,
    /// Works with a Redis that evicts keys all the same, and warns.
    pub allow_eviction: bool,
}

impl RedisOptions {
    /// The defaults for an address: no further credentials, prefix `kernelopt`, two seconds.
    pub fn new(url: impl Into<SecretString>) -> Self {
        Self {
            url: url.into(),
            username: None,
            password: None,
            ca_file: None,
            prefix: "kernelopt".into(),
            deadline: Duration::from_secs(2),
            allow_eviction: false,
        }
    }

    /// From `KERNELOPT_REDIS_URL`, `KERNELOPT_REDIS_USERNAME`, `KERNELOPT_REDIS_PASSWORD` (of either `..._FILE` too) and
    /// `KERNELOPT_REDIS_CA_FILE`; `None` where no address is set.
    ///
    /// # Errors
    /// A file cannot be read, or a variable is set twice.
    pub fn from_env() -> Result<Option<Self>, FrontierError> {
        let secret = |name| secret::from_env(name).map_err(|e| FrontierError::Options(e.to_string()));
        let Some(url) = secret("KERNELOPT_REDIS_URL")? else { return Ok(None) };
        let username = secret("KERNELOPT_REDIS_USERNAME")?.map(|name| name.expose_secret().to_owned());
        let password = secret("KERNELOPT_REDIS_PASSWORD")?;
        let ca_file = std::env::var_os("KERNELOPT_REDIS_CA_FILE").map(PathBuf::from);
        Ok(Some(Self { username, password, ca_file, ..Self::new(url) }))
    }

    /// A client that has not connected yet.
    ///
    /// # Errors
    /// The prefix, the address or the certificates cannot be used.
    pub fn client(&self) -> Result<Client, FrontierError> {
        // The library's own words may repeat the address, which may have the password in it.
        let unusable = |_| FrontierError::Options("the address of Redis is not redis://HOST:PORT/DB, or rediss://... for TLS".into());
        self.check_prefix()?;
        crate::tls::install();
        let info: ConnectionInfo = self.url.expose_secret().into_connection_info().map_err(unusable)?;
        // With the third protocol the client hears of a lost connection at once, not with its next command.
        let mut login = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        if let Some(username) = &self.username {
            login = login.set_username(username);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password.expose_secret());
        }
        let tcp = TcpSettings::default().set_nodelay(true).set_user_timeout(UNACKNOWLEDGED);
        let info = info.set_redis_settings(login).set_tcp_settings(tcp);
        match &self.ca_file {
            None => Client::open(info).map_err(unusable),
            Some(path) => {
                let root = fs::read(path).map_err(|e| FrontierError::Options(format!("{}: {e}", path.display())))?;
                // The library takes a file without any, and then trusts nobody.
                if !CertificateDer::pem_slice_iter(&root).any(|certificate| certificate.is_ok()) {
                    return Err(FrontierError::Options(format!("{}: no certificate in PEM", path.display())));
                }
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(root) };
                Client::build_with_tls(info, certificates).map_err(|e| {
                    FrontierError::Options(format!("{} with the address of Redis: {}", path.display(), e.detail().unwrap_or(e.category())))
                })
            }
        }
    }

    /// The prefix stands in a pattern and before a hash tag.
    fn check_prefix(&self) -> Result<(), FrontierError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
        if (1..=100).contains(&self.prefix.len()) && self.prefix.bytes().all(plain) {
            Ok(())
        } else {
            Err(FrontierError::Options(format!(
                "the prefix {:?}: write 1 to 100 of a-z, A-Z, 0-9, '-', '_', '.', ':' and '/'",
                self.prefix
            )))
        }
    }
}
