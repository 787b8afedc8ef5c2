//! Reading a journal while it is written.

use std::path::PathBuf;
use std::time::Duration;

use kernelopt_shared::message::JobId;
use rusqlite::{Connection, Params, Row, params};

use super::{Entry, JournalError};

/// Kinds of event after which a job is over.
const OVER: &str = "('finished', 'cancelled', 'failed', 'drilled')";

/// A reader.
pub struct Reader {
    pub(super) path: PathBuf,
    pub(super) connection: Connection,
}

/// A job as the journal knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLine {
    /// The job.
    pub job: JobId,
    /// Position of its first event: jobs are in the order in which they were opened.
    pub opened: i64,
    /// True where nothing more will happen to it.
    pub over: bool,
}

impl Reader {
    /// All jobs, in the order in which they were opened.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn jobs(&self) -> Result<Vec<JobLine>, JournalError> {
        let query = format!("select job, min(seq), max(kind in {OVER}) from event where job is not null group by job order by 2");
        let mut statement = self.connection.prepare_cached(&query).map_err(|e| self.error(e))?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?))).map_err(|e| self.error(e))?;
        let mut jobs = Vec::new();
        for row in rows {
            let (job, opened, over) = row.map_err(|e| self.error(e))?;
            jobs.push(JobLine { job: self.job_id(&job, opened)?, opened, over });
        }
        Ok(jobs)
    }

    /// The events of a job.
    ///
    /// # Errors
    /// The file cannot be read, or an event does not decode.
    pub fn of_job(&self, job: &JobId) -> Result<Vec<Entry>, JournalError> {
        self.read("job = ?1", params![job.as_str()])
    }

    /// At most `most` events of a job after position `after`.
    ///
    /// # Errors
    /// As [`Reader::of_job`].
    pub fn after(&self, job: &JobId, after: i64, most: usize) -> Result<Vec<Entry>, JournalError> {
        self.read("job = ?1 and seq > ?2 order by seq limit ?3", params![job.as_str(), after, most as i64])
    }

    /// Position of a job's last event, zero where it has none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn last(&self, job: &JobId) -> Result<u64, JournalError> {
        let query = "select coalesce(max(seq), 0) from event where job = ?1";
        let last: i64 = self.connection.query_row(query, params![job.as_str()], |row| row.get(0)).map_err(|e| self.error(e))?;
        Ok(last.unsigned_abs())
    }

    /// The events of all jobs that are not over, and those that concern the fleet, in order.
    ///
    /// # Errors
    /// As [`Reader::of_job`].
    pub fn open(&self) -> Result<Vec<Entry>, JournalError> {
        self.read(&format!("job is null or job not in (select job from event where job is not null and kind in {OVER})"), [])
    }

    /// Events for which `condition` holds.
    pub(super) fn read(&self, condition: &str, values: impl Params) -> Result<Vec<Entry>, JournalError> {
        let order = if condition.contains("order by") { "" } else { " order by seq" };
        let query = format!("select seq, job, active_ms, body from event where {condition}{order}");
        let mut statement = self.connection.prepare_cached(&query).map_err(|e| self.error(e))?;
        let mut rows = statement.query(values).map_err(|e| self.error(e))?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next().map_err(|e| self.error(e))? {
            entries.push(self.entry(row)?);
        }
        Ok(entries)
    }

    fn entry(&self, row: &Row<'_>) -> Result<Entry, JournalError> {
        let columns = || Ok((row.get(0)?, row.get::<_, Option<String>>(1)?, row.get::<_, i64>(2)?, row.get::<_, String>(3)?));
        let (seq, job, active_ms, body): (i64, _, _, _) = columns().map_err(|e| self.error(e))?;
        let event = serde_json::from_str(&body).map_err(|source| JournalError::Event { path: self.path.clone(), seq, source })?;
        let job = job.map(|job| self.job_id(&job, seq)).transpose()?;
        Ok(Entry { seq, job, active: Duration::from_millis(active_ms.unsigned_abs()), event })
    }

    fn job_id(&self, text: &str, seq: i64) -> Result<JobId, JournalError> {
        let error = |e| JournalError::Event { path: self.path.clone(), seq, source: <serde_json::Error as serde::de::Error>::custom(e) };
        JobId::parse(text).map_err(error)
    }

    fn error(&self, source: rusqlite::Error) -> JournalError {
        JournalError::Sqlite { path: self.path.clone(), source }
    }
}
