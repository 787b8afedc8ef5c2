//! `POST /v1/chat/completions` and `POST /v1/messages`.

use std::pin::Pin;
use std::time::Duration;

use axum::extract::{Request as HttpRequest, State as Shared};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use kernelopt_shared::http_server::request_id;

use super::respond::{self, Refusal};
use super::{State, body};
use crate::attempt::{Call, Reply};
use crate::dialect::{Dialect, Problem, Request};
use crate::relay::error_event;
use crate::sse;

/// A completion in OpenAI's dialect.
pub async fn openai(house: Shared<State>, request: HttpRequest) -> Result<Response, Refusal> {
    complete(house, request, Dialect::Openai).await.map_err(|problem| Refusal(Dialect::Openai, problem))
}

/// A completion in Anthropic's dialect.
pub async fn anthropic(house: Shared<State>, request: HttpRequest) -> Result<Response, Refusal> {
    complete(house, request, Dialect::Anthropic).await.map_err(|problem| Refusal(Dialect::Anthropic, problem))
}

type Answering = Pin<Box<dyn Future<Output = Result<Reply, Problem>> + Send>>;

async fn complete(Shared(house): Shared<State>, request: HttpRequest, dialect: Dialect) -> Result<Response, Problem> {
    let settings = house.gateway.settings();
    let (parts, content) = request.into_parts();
    // Before the body: nobody without a key makes the gateway read one.
    let caller = house.caller(&settings, &parts.headers)?;
    let content = body::read(&parts.headers, content, settings.http.most_body_bytes).await?;
    let request = Request::read(dialect, content)?;
    let (is_stream, request_id) = (request.stream, request_id::current());
    let call = Call {
        request,
        key: caller.key.name.clone(),
        job: caller.job,
        priority: caller.priority,
        sample: caller.sample,
        deadline: caller.deadline,
        request_id: request_id.clone(),
    };
    let gateway = house.gateway.clone();
    let heartbeat = settings.http.heartbeat;
    if !is_stream {
        return Ok(respond_to(gateway.ask(call).await?));
    }
    let mut answering: Answering = Box::pin(async move { gateway.ask(call).await });
    match tokio::time::timeout(heartbeat, &mut answering).await {
        Ok(reply) => Ok(respond_to(reply?)),
        // A stream whose first event is long in coming: its head goes out, so that nobody between here and there takes it for dead. What goes
        // wrong from here on is an error within the stream; other upstreams are still tried, since nothing of an answer has gone out.
        Err(_) => Ok(respond::stream(waiting(answering, heartbeat, dialect, request_id))),
    }
}

fn respond_to(reply: Reply) -> Response {
    match reply {
        Reply::Whole { body, charged } => respond::whole(body, &charged),
        Reply::Stream(relay) => respond::stream(relay.into_stream()),
    }
}

/// Heartbeats until there is an answer, then the answer.
fn waiting(answering: Answering, heartbeat: Duration, dialect: Dialect, request_id: Option<String>) -> impl Stream<Item = Bytes> + Send {
    enum Now {
        First(Answering),
        Waiting(Answering),
        Events(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    }
    stream::unfold(Now::First(answering), move |now| {
        let request_id = request_id.clone();
        async move {
            let mut events = match now {
                Now::First(answering) => return Some((sse::HEARTBEAT, Now::Waiting(answering))),
                Now::Events(events) => events,
                Now::Waiting(mut answering) => match tokio::time::timeout(heartbeat, &mut answering).await {
                    Err(_) => return Some((sse::HEARTBEAT, Now::Waiting(answering))),
                    Ok(Ok(Reply::Stream(relay))) => relay.into_stream().boxed(),
                    Ok(Ok(Reply::Whole { body, .. })) => stream::iter([sse::write(None, &body)]).boxed(),
                    Ok(Err(problem)) => stream::iter([error_event(&problem, dialect, request_id.as_deref())]).boxed(),
                },
            };
            events.next().await.map(|bytes| (bytes, Now::Events(events)))
        }
    })
}
