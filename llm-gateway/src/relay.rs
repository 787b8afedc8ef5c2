//! An answer that goes on as it comes.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::time::Instant;

use crate::dialect::reading::{Reading, Said};
use crate::dialect::stream::Passage;
use crate::dialect::{Dialect, Problem};
use crate::flight::Flight;
use crate::record::Record;
use crate::sse::{self, Splitter};
use crate::upstream::Incoming;
use crate::upstream::failure::{Failure, Kind};

/// How long a connection may take to end after the last event: then it can be used again, else it is closed.
const LAST_BYTES: Duration = Duration::from_millis(20);

/// A stream on its way from an upstream to a caller. Dropped, it cancels the work upstream and is settled by what was counted.
pub struct Relay {
    incoming: Incoming,
    splitter: Splitter,
    reading: Reading,
    passage: Passage,
    way: Way,
    flight: Option<Flight>,
    record: Record,
    quiet_until: Instant,
    out: VecDeque<Bytes>,
    scratch: Vec<Bytes>,
    state: State,
    withheld: Withheld,
}

/// Between whom an answer goes.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// What the upstream speaks.
    pub from: Dialect,
    /// What the caller speaks.
    pub to: Dialect,
    /// The caller asked for usage.
    pub wants_usage: bool,
    /// A comment goes out when nothing else has for so long.
    pub heartbeat: Duration,
}

/// What no error may repeat, and words that it may.
pub struct Withheld {
    /// The key.
    pub key: String,
    /// The upstream's name of the model.
    pub model: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Going,
    /// The last event was passed on; the connection may have a few bytes more.
    Ended,
    Over,
}

impl Relay {
    /// Takes over an answer whose head has come.
    pub fn new(incoming: Incoming, way: Way, flight: Flight, record: Record, withheld: Withheld) -> Self {
        Self {
            incoming,
            splitter: Splitter::default(),
            reading: Reading::new(way.from),
            passage: Passage::new(way.from, way.to, way.wants_usage),
            way,
            flight: Some(flight),
            record,
            quiet_until: Instant::now() + way.heartbeat,
            out: VecDeque::new(),
            scratch: Vec::new(),
            state: State::Going,
            withheld,
        }
    }

    /// Waits for the first event that says something. Nothing has gone out until then, so that a failure can be made good elsewhere.
    ///
    /// # Errors
    /// The stream fails, or ends, before it says anything; the attempt is given back with that.
    pub async fn first(mut self) -> Result<Self, (Failure, Option<Flight>, Record)> {
        loop {
            let failed = match self.incoming.piece().await {
                Ok(Some(piece)) => self.take(piece).err(),
                Ok(None) => Some(self.ended_early()),
                Err(failure) => Some(failure),
            };
            if let Some(failure) = failed {
                let flight = self.flight.take();
                return Err((failure, flight, self.record));
            }
            if !self.out.is_empty() || self.state != State::Going {
                if let (Some(took), Some(flight)) = (self.incoming.first_byte(), &self.flight) {
                    flight.first_byte(took);
                }
                return Ok(self);
            }
        }
    }

    /// The record, to be ended with the stream.
    pub const fn record_mut(&mut self) -> &mut Record {
        &mut self.record
    }

    fn ended_early(&self) -> Failure {
        Failure::new(Kind::Cut, if self.splitter.is_torn() { "a torn event" } else { "no end" })
    }

    /// Cuts a piece into events and passes them on. A failure leaves what came before it in `out`.
    fn take(&mut self, piece: Bytes) -> Result<(), Failure> {
        self.splitter.push(piece);
        while self.state == State::Going {
            let event = self.splitter.next_event().map_err(|error| Failure::new(Kind::Corrupt, error.to_string()))?;
            let Some(event) = event else { break };
            let said = self.reading.read(&event).map_err(|corrupt| Failure::new(Kind::Corrupt, corrupt.to_string()))?;
            match &said {
                Said::Failed(complaint) => return Err(Failure::of_complaint(complaint, &self.withheld.key, &[&self.withheld.model])),
                // Signs of life are passed on once there was something to keep alive.
                Said::Nothing => continue,
                Said::Part | Said::UsageOnly | Said::End => {}
            }
            self.passage.pass(&event, &said, self.reading.usage(), &mut self.scratch);
            self.out.extend(self.scratch.drain(..));
            if said == Said::End {
                self.settle();
            }
        }
        if let Some(flight) = &mut self.flight {
            let (bytes, parts) = self.reading.counted();
            flight.count(self.reading.input(), bytes, parts);
        }
        Ok(())
    }

    fn settle(&mut self) {
        self.state = State::Ended;
        if let Some(flight) = self.flight.take() {
            let (bytes, parts) = self.reading.counted();
            flight.answered(self.reading.usage(), bytes, parts);
        }
        self.record.outcome("answered");
    }

    fn fail(&mut self, failure: &Failure) {
        if let Some(flight) = self.flight.take() {
            flight.failed(failure);
        }
        self.record.outcome("cut");
        self.state = State::Over;
        self.out.push_back(error_event(&failure.problem(), self.way.to, self.record.request_id()));
    }

    /// The next bytes for the caller; `None` at the end.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.out.pop_front() {
                self.quiet_until = Instant::now() + self.way.heartbeat;
                return Some(bytes);
            }
            match self.state {
                State::Going => {}
                State::Ended => {
                    self.state = State::Over;
                    // The caller has its last event; this only decides whether the connection can be used again.
                    let _ = tokio::time::timeout(LAST_BYTES, self.incoming.piece()).await;
                    return None;
                }
                State::Over => return None,
            }
            let taken = match tokio::time::timeout_at(self.quiet_until, self.incoming.piece()).await {
                Err(_) => {
                    self.out.push_back(sse::HEARTBEAT);
                    continue;
                }
                Ok(Ok(Some(piece))) => self.take(piece),
                Ok(Ok(None)) => Err(self.ended_early()),
                Ok(Err(failure)) => Err(failure),
            };
            if let Err(failure) = taken {
                self.fail(&failure);
            }
        }
    }

    /// As a stream of bytes.
    pub fn into_stream(self: Box<Self>) -> impl Stream<Item = Bytes> + Send {
        futures_util::stream::unfold(self, |mut relay| async move { relay.next().await.map(|bytes| (bytes, relay)) })
    }
}

/// An error within a stream, in the caller's dialect. No `[DONE]` follows it.
pub fn error_event(problem: &Problem, dialect: Dialect, request_id: Option<&str>) -> Bytes {
    let name = (dialect == Dialect::Anthropic).then_some("error");
    sse::write(name, problem.body(dialect, request_id).to_string().as_bytes())
}
