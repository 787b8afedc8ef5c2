//! A batch on its way: many lines at a time, each through admission as any other request.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::document::{self, Batch, Counts, Status};
use super::input::{self, Line, Lines};
use super::output::Output;
use super::{Batches, new_id};
use crate::attempt::{Call, Reply};
use crate::dialect::{Dialect, Fault, Problem};
use crate::gateway::Gateway;
use crate::queue::LOWEST;
use crate::usage::Usage;

/// Most lines of a batch that wait or are under way.
const AT_ONCE: usize = 64;
/// Most times that a line is asked again after an error that may have cost something.
const MOST_AGAIN: u32 = 2;
/// The wait before a line is asked again where no hint says how long, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What came of a line.
struct Done {
    line: Line,
    request_id: String,
    answer: Result<(Value, Usage), Problem>,
}

/// Runs a batch to its end, or until the process ends.
pub async fn run(batches: &Arc<Batches>, batch: Batch, cancel: &CancellationToken) -> io::Result<()> {
    let (id, input) = (batch.id.clone(), batches.files.path(&batch.input_file_id));
    if batch.status == Status::Validating {
        let checked = blocking({
            let input = input.clone();
            move || input::check(&input)
        })
        .await?;
        match checked {
            Err(errors) => {
                batches.update(&id, |batch| {
                    batch.errors = errors;
                    batch.enter(Status::Failed);
                });
                return Ok(());
            }
            Ok(total) => batches.update(&id, |batch| {
                batch.counts.total = total;
                batch.output_file_id = Some(new_id("file-"));
                batch.error_file_id = Some(new_id("file-"));
                if batch.status == Status::Validating {
                    batch.enter(Status::InProgress);
                }
            }),
        };
    }
    let Some(batch) = batches.lock().get(&id).cloned() else { return Ok(()) };
    let (Some(output), Some(errors)) = (batch.output_file_id.clone(), batch.error_file_id.clone()) else { return Ok(()) };
    let (answers, answered) = Output::open(&batches.files.path(&output))?;
    let (failures, failed) = Output::open(&batches.files.path(&errors))?;
    batches.update(&id, |batch| {
        batch.counts = Counts { total: batch.counts.total, completed: answered.ids.len() as u64, failed: failed.ids.len() as u64 };
        (batch.input_tokens, batch.output_tokens) = answered.tokens;
    });
    let mut writing = Writing { batches, id: &id, answers, failures };
    let known: BTreeSet<String> = answered.ids.into_iter().chain(failed.ids).collect();
    let late = writing.lines(&batch, Lines::open(&input)?, &known, cancel).await?;
    let Some(end) = late else { return Ok(()) };
    writing.finish(&batch, &output, &errors, end)
}

struct Writing<'a> {
    batches: &'a Arc<Batches>,
    id: &'a str,
    answers: Output,
    failures: Output,
}

impl Writing<'_> {
    /// Asks every line that has no answer yet. Gives the state that the batch ends in; `None` where the process ends first.
    async fn lines(
        &mut self,
        batch: &Batch,
        mut lines: Lines,
        known: &BTreeSet<String>,
        cancel: &CancellationToken,
    ) -> io::Result<Option<Status>> {
        let left = Duration::from_secs(batch.expires_at.saturating_sub(document::now()));
        let expires = Instant::now() + left;
        let most = AT_ONCE.min(self.batches.gateway.settings().queue.most_per_job / 2).max(1);
        let mut under_way: FuturesUnordered<BoxFuture<'static, Done>> = FuturesUnordered::new();
        let mut more = true;
        loop {
            let stops = cancel.is_cancelled() || self.batches.stop.is_cancelled();
            while more && !stops && under_way.len() < most && Instant::now() < expires {
                match lines.next_line()? {
                    None => more = false,
                    Some(Ok(line)) if !known.contains(&line.custom_id) => {
                        under_way.push(Box::pin(ask(self.batches.gateway.clone(), batch.clone(), line, expires)));
                    }
                    // What cannot be asked was found before any line was; answered lines are passed over.
                    Some(_) => {}
                }
            }
            let done = tokio::select! {
                done = under_way.next() => done,
                () = cancel.cancelled(), if !stops => continue,
                () = self.batches.stop.cancelled(), if !stops => continue,
            };
            match done {
                Some(done) => self.write(done)?,
                None if more && stops && self.batches.stop.is_cancelled() && !cancel.is_cancelled() => return Ok(None),
                None if cancel.is_cancelled() => return Ok(Some(Status::Cancelled)),
                None if more => {
                    self.expire(&mut lines, known)?;
                    return Ok(Some(Status::Expired));
                }
                None => return Ok(Some(Status::Completed)),
            }
        }
    }

    fn write(&mut self, done: Done) -> io::Result<()> {
        let Done { line, request_id, answer } = done;
        let metrics = &self.batches.gateway.metrics;
        match answer {
            Ok((body, usage)) => {
                self.answers.response(&line.custom_id, 200, &request_id, &body)?;
                metrics.batch_line("completed");
                self.batches.note(self.id, |batch| {
                    batch.counts.completed += 1;
                    batch.took(usage);
                });
            }
            Err(problem) => {
                let status = problem.status(Dialect::Openai).as_u16();
                self.failures.response(&line.custom_id, status, &request_id, &problem.body(Dialect::Openai, None))?;
                metrics.batch_line("failed");
                self.batches.note(self.id, |batch| batch.counts.failed += 1);
            }
        }
        Ok(())
    }

    /// The lines that there was no time for.
    fn expire(&mut self, lines: &mut Lines, known: &BTreeSet<String>) -> io::Result<()> {
        while let Some(line) = lines.next_line()? {
            let Some(line) = line.ok().filter(|line| !known.contains(&line.custom_id)) else { continue };
            self.failures.error(&line.custom_id, "batch_expired", "the batch's time ran out before this line was asked")?;
            self.batches.gateway.metrics.batch_line("expired");
            self.batches.note(self.id, |batch| batch.counts.failed += 1);
        }
        Ok(())
    }

    fn finish(self, batch: &Batch, output: &str, errors: &str, end: Status) -> io::Result<()> {
        if end == Status::Completed {
            self.batches.update(self.id, |batch| batch.enter(Status::Finalizing));
        }
        self.answers.sync()?;
        self.failures.sync()?;
        let counts = self.batches.lock().get(self.id).map(|batch| batch.counts).unwrap_or_default();
        // A file without a line is no file.
        let files = &self.batches.files;
        for (id, count, name) in [(output, counts.completed, "output"), (errors, counts.failed, "error")] {
            if count > 0 {
                files.adopt(id, &batch.key, &format!("{}_{name}.jsonl", batch.id))?;
            } else {
                std::fs::remove_file(files.path(id))?;
            }
        }
        self.batches.update(self.id, |batch| {
            batch.output_file_id = batch.output_file_id.take().filter(|_| counts.completed > 0);
            batch.error_file_id = batch.error_file_id.take().filter(|_| counts.failed > 0);
            batch.enter(end);
        });
        Ok(())
    }
}

impl Batches {
    /// Changes a batch in memory only: what its files say anyway.
    fn note(&self, id: &str, change: impl FnOnce(&mut Batch)) {
        if let Some(batch) = self.lock().get_mut(id) {
            change(batch);
        }
    }
}

/// Asks a line, again and again where only its turn has not come.
async fn ask(gateway: Arc<Gateway>, batch: Batch, line: Line, expires: Instant) -> Done {
    let request_id = new_id("req_");
    let (mut again, mut pause) = (0, PAUSES.0);
    loop {
        let call = Call {
            request: line.request.clone(),
            key: batch.key.clone(),
            job: batch.job.clone(),
            priority: LOWEST,
            sample: 0,
            deadline: expires,
            request_id: Some(request_id.clone()),
        };
        let problem = match gateway.ask(call).await {
            Ok(Reply::Whole { body, charged }) => match serde_json::from_slice(&body) {
                Ok(body) => return Done { line, request_id, answer: Ok((body, charged.usage)) },
                Err(_) => Problem::new(Fault::Upstream, "an answer that is no JSON"),
            },
            Ok(Reply::Stream(_)) => Problem::new(Fault::Internal, "a stream that nobody asked for"),
            Err(problem) => problem,
        };
        let waits = match problem.fault {
            Fault::RateLimited | Fault::Overloaded => true,
            Fault::Upstream | Fault::Timeout => again < MOST_AGAIN,
            _ => false,
        };
        let wait = problem.retry_after.unwrap_or(pause).max(pause);
        if !waits || Instant::now() + wait >= expires {
            return Done { line, request_id, answer: Err(problem) };
        }
        again += u32::from(!matches!(problem.fault, Fault::RateLimited | Fault::Overloaded));
        tokio::time::sleep(wait).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
