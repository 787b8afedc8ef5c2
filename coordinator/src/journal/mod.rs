//! The journal: an append-only record of a coordinator's jobs. Everything else can be rebuilt from it (invariant 3).
//!
//! One SQLite file (WAL, full sync), so that people can open it with any SQLite tool:
//! `sqlite3 OUT/journal.db "select seq, job, kind, active_ms from event"`. A coordinator of many jobs has one journal, so that one
//! commit serves them all; a finished job takes a journal of its own events along with its outputs.

mod event;
mod reader;

use std::path::{Path, PathBuf};
use std::time::Duration;

use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::message::JobId;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, params};

pub use event::{Event, ModelVerdictRecord, WinnerRef};
pub use reader::Reader;

/// File name in a job's folder.
pub const JOURNAL: &str = "journal.db";
/// Version of the event schema; a journal of another version is refused.
const SCHEMA_VERSION: i64 = 2;
/// How long to wait for another process that reads or writes.
const BUSY: Duration = Duration::from_secs(5);

/// An event as it stands in the journal.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Position, from one, rising; without gaps where there is one job.
    pub seq: i64,
    /// The job; none for what concerns the fleet.
    pub job: Option<JobId>,
    /// Time that the job had been worked on when it was appended, over all runs.
    pub active: Duration,
    /// What happened.
    pub event: Event,
}

/// An event that is yet to be appended.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The job; none for what concerns the fleet.
    pub job: Option<JobId>,
    /// Time that the job has been worked on.
    pub active: Duration,
    /// What happened.
    pub event: Event,
}

impl Draft {
    /// Of an event that concerns no job.
    pub const fn of_fleet(event: Event) -> Self {
        Self { job: None, active: Duration::ZERO, event }
    }
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum JournalError {
    #[error("{}: {source}", path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
    #[error("{}: event {seq} does not decode: {source}", path.display())]
    Event { path: PathBuf, seq: i64, source: serde_json::Error },
    #[error("{}: an event does not encode: {source}", path.display())]
    Encode { path: PathBuf, source: serde_json::Error },
    #[error("{}: journal schema {found}, this program reads {SCHEMA_VERSION}", path.display())]
    Schema { path: PathBuf, found: i64 },
    #[error("{}: a coordinator of epoch {found} writes it now; this one is of epoch {ours}", path.display())]
    Fenced { path: PathBuf, ours: u64, found: u64 },
}

impl JournalError {
    /// True where the same append may succeed later: the disk is full, or cannot be written just now.
    pub fn is_transient(&self) -> bool {
        let Self::Sqlite { source, .. } = self else { return false };
        let codes = [ErrorCode::DiskFull, ErrorCode::SystemIoFailure, ErrorCode::DatabaseBusy, ErrorCode::CannotOpen, ErrorCode::ReadOnly];
        source.sqlite_error_code().is_some_and(|code| codes.contains(&code))
    }
}

impl UserError for JournalError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Fenced { .. } => ExitCode::Failure,
            _ => ExitCode::Output,
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Sqlite { .. } => "Check that the disk is not full and the folder can be written.".into(),
            Self::Event { .. } | Self::Encode { .. } | Self::Schema { .. } => "Start again in a new output folder.".into(),
            Self::Fenced { .. } => "Nothing is lost: the other one goes on. Start this one again to have it wait for its turn.".into(),
        })
    }
}

/// An open journal. Opening it for writing begins a new epoch: whoever had it open before can append no more (invariant 5).
pub struct Journal {
    path: PathBuf,
    connection: Connection,
    epoch: u64,
}

impl Journal {
    /// Opens the journal in `folder`, making it where there is none, and begins an epoch.
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        let path = folder.join(JOURNAL);
        let error = |source| JournalError::Sqlite { path: path.clone(), source };
        let connection = open_connection(&path).map_err(error)?;
        let found: i64 = connection.query_row("select version from schema", [], |row| row.get(0)).map_err(error)?;
        if found != SCHEMA_VERSION {
            return Err(JournalError::Schema { path, found });
        }
        let epoch: i64 = connection.query_row("update term set epoch = epoch + 1 returning epoch", [], |row| row.get(0)).map_err(error)?;
        Ok(Self { path, connection, epoch: epoch.unsigned_abs() })
    }

    /// A reader of the same file, which disturbs its writer in nothing.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn reader(folder: &Path) -> Result<Reader, JournalError> {
        let path = folder.join(JOURNAL);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let error = |source| JournalError::Sqlite { path: path.clone(), source };
        let connection = Connection::open_with_flags(&path, flags).map_err(error)?;
        connection.busy_timeout(BUSY).map_err(error)?;
        Ok(Reader { path, connection })
    }

    /// Reads a whole journal without a right to write it.
    ///
    /// # Errors
    /// It cannot be read, or an event does not decode.
    pub fn read_only(folder: &Path) -> Result<Vec<Entry>, JournalError> {
        Self::reader(folder)?.read("true", [])
    }

    /// Writes a new journal that holds `entries` as they are, for the outputs of a job.
    pub fn export(folder: &Path, entries: &[Entry]) -> Result<(), JournalError> {
        let path = folder.join(JOURNAL);
        let error = |source| JournalError::Sqlite { path: path.clone(), source };
        let mut connection = open_connection(&path).map_err(error)?;
        let transaction = connection.transaction().map_err(error)?;
        transaction.execute("delete from event", []).map_err(error)?;
        for entry in entries {
            let draft = Draft { job: entry.job.clone(), active: entry.active, event: entry.event.clone() };
            insert(&transaction, Some(entry.seq), &draft, &body(&path, &draft.event)?).map_err(error)?;
        }
        transaction.commit().map_err(error)?;
        // One file is what people copy.
        connection.pragma_update(None, "journal_mode", "delete").map_err(error)
    }

    /// The epoch that this opening began.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Writes nothing new, to see whether an append would do.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn probe(&mut self) -> Result<(), JournalError> {
        let path = &self.path;
        let error = |source| JournalError::Sqlite { path: path.clone(), source };
        let transaction = begin(&mut self.connection, path, self.epoch)?;
        transaction.execute("update term set epoch = epoch", []).map_err(error)?;
        transaction.commit().map_err(error)
    }

    /// Appends `drafts` in one transaction; they are on the disk when this returns, or none is.
    ///
    /// # Errors
    /// [`JournalError::Fenced`] where another process has opened the journal since.
    pub fn append(&mut self, drafts: &[Draft]) -> Result<Vec<Entry>, JournalError> {
        let path = &self.path;
        let error = |source| JournalError::Sqlite { path: path.clone(), source };
        let bodies = drafts.iter().map(|draft| body(path, &draft.event)).collect::<Result<Vec<_>, _>>()?;
        let transaction = begin(&mut self.connection, path, self.epoch)?;
        let mut entries = Vec::with_capacity(drafts.len());
        for (draft, body) in drafts.iter().zip(&bodies) {
            let seq = insert(&transaction, None, draft, body).map_err(error)?;
            entries.push(Entry { seq, job: draft.job.clone(), active: draft.active, event: draft.event.clone() });
        }
        transaction.commit().map_err(error)?;
        Ok(entries)
    }
}

/// Begins to write, unless a later epoch has begun.
fn begin<'c>(connection: &'c mut Connection, path: &Path, epoch: u64) -> Result<Transaction<'c>, JournalError> {
    let error = |source| JournalError::Sqlite { path: path.into(), source };
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(error)?;
    let found: i64 = transaction.query_row("select epoch from term", [], |row| row.get(0)).map_err(error)?;
    match found.unsigned_abs() {
        found if found == epoch => Ok(transaction),
        found => Err(JournalError::Fenced { path: path.into(), ours: epoch, found }),
    }
}

fn body(path: &Path, event: &Event) -> Result<String, JournalError> {
    serde_json::to_string(event).map_err(|source| JournalError::Encode { path: path.into(), source })
}

fn insert(connection: &Connection, seq: Option<i64>, draft: &Draft, body: &str) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached("insert into event (seq, job, kind, active_ms, body) values (?1, ?2, ?3, ?4, ?5)")?;
    let job = draft.job.as_ref().map(JobId::as_str);
    statement.execute(params![seq, job, draft.event.kind(), draft.active.as_millis() as i64, body])?;
    Ok(connection.last_insert_rowid())
}

fn open_connection(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.execute_batch(&format!(
        "begin immediate;
         create table if not exists schema (version integer not null);
         insert into schema select {SCHEMA_VERSION} where not exists (select * from schema);
         create table if not exists term (epoch integer not null);
         insert into term select 0 where not exists (select * from term);
         create table if not exists event (
             seq integer primary key autoincrement,
             job text,
             kind text not null,
             active_ms integer not null,
             body text not null
         );
         create index if not exists event_of_job on event (job, seq);
         commit;"
    ))?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exhausted(target: &str) -> Draft {
        let job = Some(JobId::parse("local").unwrap());
        Draft { job, active: Duration::from_secs(5), event: Event::Exhausted { target: target.into() } }
    }

    #[test]
    fn what_was_appended_is_read_back_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        journal.append(&[exhausted("a"), exhausted("b")]).unwrap();
        drop(journal);
        let journal = Journal::open(folder.path()).unwrap();
        let entries = Journal::read_only(folder.path()).unwrap();
        assert_eq!(entries.iter().map(|e| e.seq).collect::<Vec<_>>(), [1, 2]);
        assert!(matches!(&entries[1].event, Event::Exhausted { target } if target == "b"));
        assert_eq!((entries[1].active, journal.epoch()), (Duration::from_secs(5), 2));
    }

    #[test]
    fn an_earlier_epoch_appends_nothing_more() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Journal::open(folder.path()).unwrap();
        first.append(&[exhausted("a")]).unwrap();
        let mut second = Journal::open(folder.path()).unwrap();
        assert!(matches!(first.append(&[exhausted("b")]), Err(JournalError::Fenced { ours: 1, found: 2, .. })));
        second.append(&[exhausted("c")]).unwrap();
        let entries = Journal::read_only(folder.path()).unwrap();
        assert!(matches!(&entries[..], [_, Entry { event: Event::Exhausted { target }, .. }] if target == "c"));
    }

    #[test]
    fn a_probe_writes_nothing_and_is_fenced_too() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Journal::open(folder.path()).unwrap();
        first.append(&[exhausted("a")]).unwrap();
        first.probe().unwrap();
        assert_eq!((first.epoch(), Journal::read_only(folder.path()).unwrap().len()), (1, 1));
        let _second = Journal::open(folder.path()).unwrap();
        assert!(matches!(first.probe(), Err(JournalError::Fenced { ours: 1, found: 2, .. })));
    }

    #[test]
    fn an_export_holds_the_same_entries() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut journal = Journal::open(from.path()).unwrap();
        journal.append(&[exhausted("a"), exhausted("b"), exhausted("c")]).unwrap();
        let some = Journal::read_only(from.path()).unwrap().split_off(1);
        Journal::export(to.path(), &some).unwrap();
        let read = Journal::read_only(to.path()).unwrap();
        assert_eq!(read.iter().map(|e| e.seq).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_journal_of_another_schema_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        journal.connection.execute("update schema set version = 99", []).unwrap();
        drop(journal);
        assert!(matches!(Journal::open(folder.path()), Err(JournalError::Schema { found: 99, .. })));
    }

    #[test]
    fn a_torn_event_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        journal.append(&[exhausted("a")]).unwrap();
        journal.connection.execute("update event set body = '{\"kind\":\"exh'", []).unwrap();
        assert!(matches!(Journal::read_only(folder.path()), Err(JournalError::Event { seq: 1, .. })));
    }
}
