//! The cryptography of every TLS connection.

/// Makes ring the provider of this process, for all of the libraries that open connections; without one they panic, since none of them was
/// built with its own. It may be called again and from anywhere: the first call counts.
pub fn install() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
