//! The life of a request: it is admitted, sent, settled, and where an upstream fails it goes on by the table of [`failure`](crate::upstream::failure).
//!
//! Nothing is sent twice in secret: every attempt has its own reservation and is settled on its own. Another attempt is made only while nothing
//! of an answer has gone out. A provider's wish for a pause closes its deployment for everybody; a request then goes elsewhere, or waits in
//! the queue if its deadline allows, or fails with that wish as its `retry-after`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::dialect::answer::{self, NoAnswer};
use crate::dialect::request::{self, Request};
use crate::dialect::{Fault, Problem};
use crate::estimate::{Estimate, Estimator};
use crate::flight::{Charged, Flight};
use crate::gateway::Gateway;
use crate::names::{DeploymentId, JobName, KeyName, ModelName};
use crate::queue::{Ask, Permit, Refused, RefusedKind};
use crate::record::Record;
use crate::relay::{Relay, Way, Withheld};
use crate::settings::{Model, Settings};
use crate::upstream::failure::{Failure, Kind, Next};

/// A request and who it is from.
#[derive(Clone, Debug)]
pub struct Call {
    /// What is asked.
    pub request: Request,
    /// Who pays.
    pub key: KeyName,
    /// For what.
    pub job: JobName,
    /// From 0, which goes first, to 9.
    pub priority: u8,
    /// Which of several answers to the same request this asks for.
    pub sample: u32,
    /// No attempt begins after this.
    pub deadline: Instant,
    /// Its name in logs.
    pub request_id: Option<String>,
}

/// What came of it.
pub enum Reply {
    /// An answer in one piece.
    Whole {
        /// In the caller's dialect.
        body: Bytes,
        /// What it took.
        charged: Charged,
    },
    /// An answer that comes event by event.
    Stream(Box<Relay>),
}

/// What has been tried.
#[derive(Default)]
struct Tried {
    /// Not to be tried again.
    never: Vec<DeploymentId>,
    /// Not to be tried again before the others were.
    not_now: Vec<DeploymentId>,
    attempts: u32,
    last: Option<Failure>,
}

impl Gateway {
    /// Has a request answered by an upstream.
    ///
    /// # Errors
    /// It is refused, or no upstream answers it.
    pub(crate) async fn fetch(self: &Arc<Self>, call: Call) -> Result<Reply, Problem> {
        let settings = self.settings();
        let unknown = || {
            Problem::new(Fault::NotFound, format!("the model {:?} does not exist or this key may not call it", call.request.model))
                .about("model")
        };
        let model = ModelName::parse(&call.request.model).ok().and_then(|name| settings.models.get(&name)).ok_or_else(unknown);
        let known = model.as_ref().map_or(kernelopt_shared::telemetry::OTHER, |model| model.name.as_str());
        let mut record = Record::new(self.clone(), call.request_id.clone(), known.into(), call.job.to_string(), call.key.to_string());
        let model = model.inspect_err(|problem| record.outcome(problem.fault.name()))?;
        let estimate =
            estimate(self.admission().estimator(), model, &call.request).inspect_err(|problem| record.outcome(problem.fault.name()))?;
        let mut tried = Tried::default();
        loop {
            let (permit, waited) = match self.admitted(&call, model, estimate, &tried).await {
                Ok(admitted) => admitted,
                Err(refused) => {
                    let problem = refusal(refused, tried.last.as_ref());
                    record.outcome(problem.fault.name());
                    return Err(problem);
                }
            };
            record.elsewhere(waited);
            record.attempt();
            let id = permit.deployment().id.clone();
            match self.attempt(&settings, &call, model, estimate, permit, record).await {
                Ok(reply) => return Ok(reply),
                Err((failure, given_back)) => {
                    record = given_back;
                    tracing::info!(deployment = %id, outcome = failure.outcome(), what = failure.what, id = record.request_id(), "attempt failed");
                    if let Some(problem) = tried.failed(failure, id, &settings) {
                        record.outcome(problem.fault.name());
                        return Err(problem);
                    }
                }
            }
            let pause = tried.pause(model, &settings);
            if !pause.is_zero() {
                if Instant::now() + pause > call.deadline {
                    let problem = tried.problem();
                    record.outcome(problem.fault.name());
                    return Err(problem);
                }
                tokio::time::sleep(pause).await;
                record.elsewhere(pause);
            }
        }
    }

    async fn admitted(&self, call: &Call, model: &Model, estimate: Estimate, tried: &Tried) -> Result<(Permit, Duration), Refused> {
        let began = Instant::now();
        let ask = Ask {
            job: call.job.clone(),
            key: call.key.clone(),
            model: model.name.clone(),
            estimate,
            priority: call.priority,
            deadline: call.deadline,
            without: tried.never.iter().chain(&tried.not_now).cloned().collect(),
            again: tried.attempts > 0,
        };
        let admitted = self.admission().admit(ask).await;
        let waited = began.elapsed();
        self.metrics.admitted(waited);
        admitted.map(|permit| (permit, waited))
    }

    /// Sends it once.
    async fn attempt(
        self: &Arc<Self>,
        settings: &Arc<Settings>,
        call: &Call,
        model: &Model,
        estimate: Estimate,
        permit: Permit,
        mut record: Record,
    ) -> Result<Reply, (Failure, Record)> {
        let deployment = permit.deployment().clone();
        let Some(place) = self.place(&deployment.upstream.name) else {
            return Err((Failure::new(Kind::Unreachable, "an upstream that is no longer set"), record));
        };
        let upstream = &place.upstream;
        let (from, to) = (upstream.dialect(), call.request.dialect);
        let wanted = request::Upstream {
            dialect: from,
            model: &deployment.model,
            max_output: u64::from(model.output_tokens),
            output_field: upstream.output_field(),
        };
        let body = match call.request.for_upstream(wanted) {
            Ok(body) => body,
            Err(problem) => return Err((Failure::new(Kind::Refused(problem.fault), problem.message), record)),
        };
        let secret = deployment.credential.secret.as_ref();
        let withheld = Withheld::of(secret, &deployment.model);
        let flight = Flight::start(self.clone(), settings.clone(), place.clone(), model.name.clone(), estimate, permit);
        let began = Instant::now();
        let incoming = upstream.send(body, secret, call.request.stream, &[&deployment.model]).await;
        let mut incoming = match incoming {
            Ok(incoming) => incoming,
            Err(failure) => {
                record.elsewhere(began.elapsed());
                flight.failed(&failure);
                return Err((failure, record));
            }
        };
        flight.observe(&incoming.levels());
        if call.request.stream {
            let way = Way { from, to, wants_usage: call.request.wants_usage, heartbeat: settings.http.heartbeat };
            let relay = Relay::new(incoming, way, flight, record, withheld);
            return match relay.first().await {
                Ok(mut relay) => {
                    let record = relay.record_mut();
                    record.elsewhere(began.elapsed());
                    record.first_byte();
                    Ok(Reply::Stream(Box::new(relay)))
                }
                Err((failure, flight, record)) => {
                    flight.into_iter().for_each(|flight| flight.failed(&failure));
                    Err((failure, record))
                }
            };
        }
        let whole = incoming.whole().await;
        record.elsewhere(began.elapsed());
        incoming.first_byte().into_iter().for_each(|took| flight.first_byte(took));
        let read = whole.and_then(|body| {
            let no_answer = |none: NoAnswer| match none {
                NoAnswer::Complaint(complaint) => Failure::of_complaint(&complaint, &withheld.key, &[&withheld.model]),
                NoAnswer::Corrupt(what) => Failure::new(Kind::Corrupt, what),
            };
            let (told, value) = answer::read(from, &body).map_err(no_answer)?;
            let translated = answer::translate(from, to, &value, told.usage.as_ref()).map_err(no_answer)?;
            Ok((translated.unwrap_or(body), told))
        });
        match read {
            Ok((body, told)) => {
                let charged = flight.answered(told.usage, told.said_bytes, 0);
                record.first_byte();
                record.outcome("answered");
                Ok(Reply::Whole { body, charged })
            }
            Err(failure) => {
                flight.failed(&failure);
                Err((failure, record))
            }
        }
    }
}

impl Tried {
    /// Takes a failure in. Gives what the caller hears where it was the last.
    fn failed(&mut self, failure: Failure, id: DeploymentId, settings: &Settings) -> Option<Problem> {
        self.attempts += 1;
        match failure.next() {
            Next::Stop => return Some(failure.problem()),
            Next::NotHere => self.never.push(id),
            Next::Another => self.not_now.push(id),
        }
        self.last = Some(failure);
        (self.attempts >= settings.retry.most_attempts).then(|| self.problem())
    }

    /// Time until the next attempt. None while there is a deployment that has not been tried; once there is not, they are tried again after
    /// a while, those that closed when they open.
    fn pause(&mut self, model: &Model, settings: &Settings) -> Duration {
        let is_left =
            model.deployments.iter().any(|deployment| !self.never.contains(&deployment.id) && !self.not_now.contains(&deployment.id));
        if is_left {
            return Duration::ZERO;
        }
        self.not_now.clear();
        if self.never.len() >= model.deployments.len() || self.last.as_ref().is_some_and(|last| last.kind == Kind::RateLimited) {
            // Admission waits for a deployment that is closed, and knows for how long.
            return Duration::ZERO;
        }
        let doubled =
            settings.retry.first_wait.saturating_mul(1 << self.attempts.saturating_sub(1).min(16)).min(settings.retry.longest_wait);
        // Requests that failed together do not come back together.
        doubled.mul_f64(1.0 - 0.25 * rand::random::<f64>())
    }

    fn problem(&self) -> Problem {
        self.last.as_ref().map_or_else(|| Problem::new(Fault::Internal, "no attempt was made"), Failure::problem)
    }
}

impl Withheld {
    fn of(secret: Option<&kernelopt_shared::secret::SecretString>, model: &str) -> Self {
        use kernelopt_shared::secret::ExposeSecret as _;
        Self { key: secret.map_or_else(String::new, |secret| secret.expose_secret().to_owned()), model: model.to_owned() }
    }
}

/// What the caller hears of a refusal. After a failed attempt it is the failure that matters, and the longer of both waits.
fn refusal(refused: Refused, last: Option<&Failure>) -> Problem {
    if let Some(last) = last.filter(|_| matches!(refused.kind, RefusedKind::NoneLeft | RefusedKind::Deadline | RefusedKind::QueueFull)) {
        let problem = last.problem();
        let wait = problem.retry_after.max(refused.retry_after);
        return problem.after(wait);
    }
    let fault = match refused.kind {
        RefusedKind::UnknownModel => Fault::NotFound,
        RefusedKind::Budget => Fault::BudgetSpent,
        RefusedKind::TooLarge => Fault::NeverFits,
        RefusedKind::TooLong => Fault::ContextLength,
        RefusedKind::QueueFull | RefusedKind::LimitsDown => Fault::Overloaded,
        RefusedKind::NoneLeft => Fault::Upstream,
        RefusedKind::Deadline => Fault::RateLimited,
    };
    Problem::new(fault, refused.what).after(refused.retry_after)
}

/// Tokens of a picture: likely, and at most. Providers cut large ones down.
const PICTURE: (u64, u64) = (1500, 6000);

fn estimate(estimator: &Estimator, model: &Model, request: &Request) -> Result<Estimate, Problem> {
    let prompt = request.prompt()?;
    let output = request.max_output.unwrap_or(u64::from(model.output_tokens)).saturating_mul(request.answers);
    let texts = estimator.estimate(model, prompt.texts.iter().map(String::as_str), output);
    let (likely, most) = (prompt.others.saturating_mul(PICTURE.0), prompt.others.saturating_mul(PICTURE.1));
    Ok(Estimate { input: texts.input.saturating_add(likely), most_input: texts.most_input.saturating_add(most), ..texts })
}
