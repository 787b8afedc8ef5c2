//! A store of blobs that is a few values in memory, and can be away.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use kernelopt_gpu_agent::service::{Canary, Fetch, FetchError, Held};
use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::Work;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::Depth;

/// The one bundle on the shelf.
pub fn bundle_blob() -> Digest {
    Digest::of([b"bundle".as_slice()])
}

fn target_blob() -> Digest {
    Digest::of([b"target".as_slice()])
}

pub struct Shelf {
    bundle: Arc<Held<Bundle>>,
    target: Arc<Target>,
    pub away: AtomicBool,
}

impl Shelf {
    /// With a target whose baseline is a real kernel.
    pub fn new() -> Arc<Self> {
        let mut canary = Canary::cpu().unwrap();
        // The candidates of the fixtures have two threads.
        canary.manifest.device.threads = 2;
        let bundle = Bundle { root: PathBuf::from("/nowhere"), manifest: canary.manifest, digest: bundle_blob() };
        Arc::new(Self { bundle: Arc::new(Held::elsewhere(bundle)), target: Arc::new(canary.target), away: AtomicBool::new(false) })
    }

    /// Judge `source` against the target.
    pub fn evaluate(&self, source: &str, depth: Depth) -> Work {
        let candidate = Candidate { source: source.into(), ..self.target.baseline.clone() };
        Work::Evaluate { target: target_blob(), candidate, depth }
    }

    fn get<T>(&self, blob: Digest, known: Digest, value: T) -> Result<T, FetchError> {
        if self.away.load(Ordering::Relaxed) {
            Err(FetchError::Unreachable("connection refused".into()))
        } else if blob == known {
            Ok(value)
        } else {
            Err(FetchError::Unusable(format!("there is no blob {blob}")))
        }
    }
}

#[async_trait]
impl Fetch for Shelf {
    async fn bundle(&self, blob: Digest) -> Result<Arc<Held<Bundle>>, FetchError> {
        self.get(blob, bundle_blob(), Arc::clone(&self.bundle))
    }

    async fn target(&self, blob: Digest) -> Result<Arc<Target>, FetchError> {
        self.get(blob, target_blob(), Arc::clone(&self.target))
    }

    async fn files(&self, blob: Digest) -> Result<Arc<Held<PathBuf>>, FetchError> {
        self.get(blob, bundle_blob(), Arc::new(Held::elsewhere(PathBuf::from("/nowhere"))))
    }
}
