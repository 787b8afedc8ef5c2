//! A coordinator's desk in memory behind the real HTTP server.
//!
//! The desk keeps real state: bundles are unpacked and opened, jobs are folds over the events that a test appends, the frontier follows
//! from what was confirmed. What it lacks is devices: a test, or [`script`], says what they found.

mod desk;
mod job;
pub mod script;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernelopt_coordinator::http::{Desk, Limits, Options, Server, Tokens};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::secret::SecretString;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use desk::MemoryDesk;

/// A token of each role: viewer, submitter, agent, operator.
pub const TOKENS: [(&str, &str); 4] = [
    ("viewer", "viewer-0123456789abcdef"),
    ("submitter", "submitter-0123456789abcdef"),
    ("agent", "agent-0123456789abcdef"),
    ("operator", "operator-0123456789abcdef"),
];

/// Lines for a file of [`TOKENS`].
pub fn token_lines() -> String {
    TOKENS.map(|(role, token)| format!("{token}={role}\n")).concat()
}

/// The token of a role.
pub fn token(role: &str) -> &'static str {
    TOKENS.iter().find(|(name, _)| *name == role).map(|(_, token)| *token).expect("a role")
}

/// A server on a port of its own.
pub struct Running {
    /// Where.
    pub address: SocketAddr,
    /// Its desk.
    pub desk: Arc<MemoryDesk>,
    /// Where uploads lie until they are whole.
    pub spool: PathBuf,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    _folder: TempDir,
}

impl Running {
    /// Starts one; with or without tokens.
    pub async fn start(limits: Limits, with_tokens: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = folder.path().join("spool");
        let desk = Arc::new(MemoryDesk::new(folder.path().join("desk")).expect("a folder"));
        let tokens = with_tokens.then(|| Tokens::parse(&SecretString::from(token_lines())).expect("tokens"));
        let options = Options { listen: ([127, 0, 0, 1], 0).into(), tokens, spool: spool.clone(), limits, counted: None };
        let metrics = Arc::new(|| "kernelopt_up 1\n".to_owned());
        let server = Server::bind(options, desk.clone(), metrics).await.expect("the server listens");
        let (address, stop) = (server.address(), CancellationToken::new());
        let serving = tokio::spawn(server.run(stop.clone()));
        Self { address, desk, spool, stop, serving, _folder: folder }
    }

    /// `http://127.0.0.1:PORT` and `path`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Stores the bundle, without the server: its digest.
    pub async fn store_bundle(&self) -> Digest {
        let (bytes, digest) = bundle_tar();
        let mut file = tempfile::NamedTempFile::new_in(&self.spool).expect("the spool");
        file.write_all(&bytes).expect("the spool");
        self.desk.keep_blob(digest, file.into_temp_path()).await.expect("the desk");
        digest
    }

    /// Asks it to end, and waits.
    pub async fn end(self) {
        self.stop.cancel();
        self.serving.await.expect("the server ends");
    }
}

/// A captured model.
pub fn bundle_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/bundles/softmax_cuda")
}

/// The bundle as it is stored: a tar, and its digest.
pub fn bundle_tar() -> (Vec<u8>, Digest) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bundle.tar");
    kernelopt_shared::bundle::pack(&bundle_folder(), &path).expect("the bundle can be packed");
    let bytes = std::fs::read(path).expect("what was packed");
    let digest = Digest::of([bytes.as_slice()]);
    (bytes, digest)
}
