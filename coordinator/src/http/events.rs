//! A job's journal as a stream of server-sent events (WHATWG HTML, 9.2).

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use axum::response::sse::{Event, Sse};
use futures_util::Stream;
use kernelopt_shared::api::{EventNumber, EventView, JobRow, Phase, ProblemKind, SSE_EVENT, SSE_JOB, SSE_PROBLEM};
use kernelopt_shared::message::JobId;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::IntoParams;

use super::desk::{DeskError, EventPage};
use super::extract::{Path, Query};
use super::limits::Room;
use super::refusal::Refusal;
use super::{State, openapi};

/// Events that are read from the coordinator at a time: all that a slow client keeps in memory.
const PAGE: usize = 64;

/// From where.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Since {
    /// Number of the last event that is known; the stream begins after it.
    #[serde(default)]
    #[param(inline, required = false)]
    after: EventNumber,
}

/// What a client says when it comes again by itself.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "for the document alone: a header that holds no number is a problem of its own")]
pub struct Known {
    /// As `after`; the greater of the two counts.
    #[param(inline, rename = "last-event-id", required = false)]
    last_event_id: EventNumber,
}

/// Streams a job's events from a number on, as they happen, until the job is over.
///
/// Events named `event` hold an entry of the journal (schema `EventView`), and their ids are its numbers: a client that comes again with
/// `after` or `Last-Event-ID` misses nothing and sees nothing twice. Events named `job` hold the job's row (schema `JobRow`) at the start,
/// when its phase changes and as a sign of life. An event named `problem` (schema `Problem`) ends a stream early.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/events", tag = "jobs", operation_id = "follow_job", security(("token" = [])),
    params(
        ("id" = inline(JobId), Path, description = "The job"), Since, Known,
    ),
    responses((status = 200, description = "The stream", body = openapi::ServerSentEvent, content_type = "text/event-stream"), openapi::Asking)
)]
pub async fn follow(
    Shared(house): Shared<State>,
    Path(job): Path<JobId>,
    Query(since): Query<Since>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let place = house.rooms.enter(Room::Stream)?;
    let after = since.after.max(last_event_id(&headers)?).get();
    let first = tokio::time::timeout(house.limits.answer_within, house.desk.events(&job, after, PAGE, std::time::Duration::ZERO));
    let first = first.await.map_err(|_| Refusal::new(ProblemKind::Unavailable, "the coordinator did not answer"))??;
    let mut flow = Flow { house, job, after, ready: VecDeque::new(), shown: None, ended: false, _place: place };
    flow.take(first);
    Ok(Sse::new(futures_util::stream::unfold(flow, Flow::next)))
}

fn last_event_id(headers: &HeaderMap) -> Result<EventNumber, Refusal> {
    let Some(value) = headers.get("last-event-id") else { return Ok(EventNumber::default()) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Refusal::new(ProblemKind::Malformed, "last-event-id is no number of an event"))
}

/// One client's stream.
struct Flow {
    house: State,
    job: JobId,
    /// Number of the last event that was read.
    after: u64,
    ready: VecDeque<Event>,
    /// What the client knows of the job.
    shown: Option<(Phase, Option<String>)>,
    ended: bool,
    _place: OwnedSemaphorePermit,
}

impl Flow {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some((Ok(event), self));
            }
            if self.ended {
                return None;
            }
            let wait = self.house.limits.heartbeat;
            let page = tokio::select! {
                page = self.house.desk.events(&self.job, self.after, PAGE, wait) => page,
                () = self.house.stop.cancelled() => Err(DeskError::Unavailable("the server ends; ask again".into())),
            };
            match page {
                Ok(page) => self.take(page),
                Err(error) => {
                    self.push(SSE_PROBLEM, None, &Refusal::from(error).into_problem());
                    self.ended = true;
                }
            }
        }
    }

    fn take(&mut self, page: EventPage) {
        for event in &page.events {
            self.after = self.after.max(event.seq);
            self.push_entry(event);
        }
        let now = Some((page.job.phase, page.job.reason.clone()));
        if page.events.is_empty() || self.shown != now {
            self.push_row(&page.job);
            self.shown = now;
        }
        self.ended = page.job.phase.is_over() && page.events.is_empty();
    }

    fn push_entry(&mut self, event: &EventView) {
        self.push(SSE_EVENT, Some(event.seq), event);
    }

    fn push_row(&mut self, row: &JobRow) {
        self.push(SSE_JOB, None, row);
    }

    fn push(&mut self, name: &str, id: Option<u64>, data: &impl Serialize) {
        // Line ends are escaped in JSON, so that the data is one line.
        match Event::default().event(name).json_data(data) {
            Ok(event) => self.ready.push_back(id.into_iter().fold(event, |event, id| event.id(id.to_string()))),
            Err(error) => tracing::error!(%error, job = %self.job, "an event cannot be written as JSON"),
        }
    }
}
