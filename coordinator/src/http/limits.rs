//! How much a client may ask for at a time.

use std::sync::Arc;
use std::time::Duration;

use kernelopt_shared::api::ProblemKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::refusal::Refusal;

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections; further ones wait to be accepted.
    pub connections: usize,
    /// Requests that are answered at a time, those below not counted.
    pub requests: usize,
    /// Uploads of blobs at a time.
    pub uploads: usize,
    /// Downloads of blobs and outputs at a time.
    pub downloads: usize,
    /// Streams of events at a time.
    pub streams: usize,
    /// Size of a body of JSON, in bytes.
    pub json_bytes: usize,
    /// Time for a body of JSON to come.
    pub json_within: Duration,
    /// Size of a blob, in bytes.
    pub blob_bytes: u64,
    /// Time for the head of a request to come.
    pub head_within: Duration,
    /// Time for a coordinator to answer.
    pub answer_within: Duration,
    /// Time for a coordinator's loop to turn.
    pub turn_within: Duration,
    /// Longest silence in an upload or download.
    pub silence: Duration,
    /// Least mean rate of an upload, beyond the first [`Limits::silence`].
    pub least_bytes_per_second: u64,
    /// Time between signs of life in a stream of events.
    pub heartbeat: Duration,
    /// Time for requests to end when the server does.
    pub drain_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 2048,
            requests: 256,
            uploads: 16,
            downloads: 64,
            streams: 512,
            json_bytes: 64 << 10,
            json_within: Duration::from_secs(10),
            blob_bytes: 64 << 30,
            head_within: Duration::from_secs(15),
            answer_within: Duration::from_secs(30),
            turn_within: Duration::from_secs(5),
            silence: Duration::from_secs(30),
            least_bytes_per_second: 16 << 10,
            heartbeat: Duration::from_secs(10),
            drain_within: Duration::from_secs(10),
        }
    }
}

/// Room for requests, by what they cost.
#[derive(Debug)]
pub struct Rooms {
    requests: Arc<Semaphore>,
    uploads: Arc<Semaphore>,
    downloads: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Answered at once.
    Request,
    /// A blob comes.
    Upload,
    /// A blob or outputs go.
    Download,
    /// Events go as they happen.
    Stream,
}

impl Rooms {
    /// As many as `limits` say.
    pub fn new(limits: &Limits) -> Self {
        let room = |places: usize| Arc::new(Semaphore::new(places));
        let (requests, uploads) = (room(limits.requests), room(limits.uploads));
        Self { requests, uploads, downloads: room(limits.downloads), streams: room(limits.streams) }
    }

    /// A place, held until dropped.
    ///
    /// # Errors
    /// All are taken: the client is told to come again, nobody waits.
    pub fn enter(&self, room: Room) -> Result<OwnedSemaphorePermit, Refusal> {
        let (places, what) = match room {
            Room::Request => (&self.requests, "requests"),
            Room::Upload => (&self.uploads, "uploads"),
            Room::Download => (&self.downloads, "downloads"),
            Room::Stream => (&self.streams, "streams of events"),
        };
        Arc::clone(places)
            .try_acquire_owned()
            .map_err(|_| Refusal::new(ProblemKind::Busy, format!("as many {what} as are taken at a time")).with_remedy("Try again."))
    }
}
