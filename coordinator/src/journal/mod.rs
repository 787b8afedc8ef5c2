//! The journal: an append-only record of a job. Everything else can be rebuilt from it (invariant 3).
//!
//! One SQLite file (WAL, full sync), so that people can open it with any SQLite tool:
//! `sqlite3 OUT/journal.db "select seq, kind, active_ms from event"`.

mod event;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kernelopt_shared::exit::{ExitCode, UserError};
use rusqlite::{Connection, OpenFlags, params};

pub use event::{Event, ModelVerdictRecord, WinnerRef};

/// File name in a job's folder.
pub const JOURNAL: &str = "journal.db";
/// Version of the event schema; a journal of another version is refused.
const SCHEMA_VERSION: i64 = 1;

/// An event as it stands in the journal.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Position, from one, without gaps.
    pub seq: i64,
    /// Time that the job had been worked on when it was appended, over all runs.
    pub active: Duration,
    /// What happened.
    pub event: Event,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum JournalError {
    #[error("{}: {source}", path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
    #[error("{}: event {seq} does not decode: {source}", path.display())]
    Event { path: PathBuf, seq: i64, source: serde_json::Error },
    #[error("{}: journal schema {found}, this program reads {SCHEMA_VERSION}", path.display())]
    Schema { path: PathBuf, found: i64 },
}

impl UserError for JournalError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Output
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Sqlite { .. } => "Check that the disk is not full and the folder can be written.".into(),
            Self::Event { .. } | Self::Schema { .. } => "Start again in a new output folder.".into(),
        })
    }
}

/// An open journal. There is one writer: the job's lock file sees to that.
pub struct Journal {
    path: PathBuf,
    connection: Connection,
    /// Active time before this run.
    before: Duration,
    opened: Instant,
}

impl Journal {
    /// Opens the journal in `folder`, making it where there is none, and reads everything in it.
    pub fn open(folder: &Path) -> Result<(Self, Vec<Entry>), JournalError> {
        let path = folder.join(JOURNAL);
        let connection = open_connection(&path).map_err(|source| JournalError::Sqlite { path: path.clone(), source })?;
        let found: i64 = connection
            .query_row("select version from schema", [], |row| row.get(0))
            .map_err(|source| JournalError::Sqlite { path: path.clone(), source })?;
        if found != SCHEMA_VERSION {
            return Err(JournalError::Schema { path, found });
        }
        let mut journal = Self { path, connection, before: Duration::ZERO, opened: Instant::now() };
        let entries = journal.read()?;
        journal.before = entries.last().map_or(Duration::ZERO, |e| e.active);
        Ok((journal, entries))
    }

    /// Reads a journal without a right to write it.
    pub fn read_only(folder: &Path) -> Result<Vec<Entry>, JournalError> {
        let path = folder.join(JOURNAL);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags).map_err(|source| JournalError::Sqlite { path: path.clone(), source })?;
        Self { path, connection, before: Duration::ZERO, opened: Instant::now() }.read()
    }

    fn read(&self) -> Result<Vec<Entry>, JournalError> {
        let rows = self.rows().map_err(|source| JournalError::Sqlite { path: self.path.clone(), source })?;
        rows.into_iter()
            .map(|(seq, active_ms, body)| {
                let event = serde_json::from_str(&body).map_err(|source| JournalError::Event { path: self.path.clone(), seq, source })?;
                Ok(Entry { seq, active: Duration::from_millis(active_ms), event })
            })
            .collect()
    }

    fn rows(&self) -> rusqlite::Result<Vec<(i64, u64, String)>> {
        let mut statement = self.connection.prepare("select seq, active_ms, body from event order by seq")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs(), row.get(2)?)))?;
        rows.collect()
    }

    /// Appends `event`; it is on the disk when this returns.
    pub fn append(&mut self, event: Event) -> Result<Entry, JournalError> {
        let active = self.active();
        let error = |source| JournalError::Sqlite { path: self.path.clone(), source };
        let body = serde_json::to_string(&event).map_err(|e| error(rusqlite::Error::ToSqlConversionFailure(e.into())))?;
        self.connection
            .execute(
                "insert into event (kind, active_ms, body) values (?1, ?2, ?3)",
                params![event.kind(), active.as_millis() as i64, body],
            )
            .map_err(error)?;
        Ok(Entry { seq: self.connection.last_insert_rowid(), active, event })
    }

    /// Time that the job has been worked on, over all runs.
    pub fn active(&self) -> Duration {
        self.before + self.opened.elapsed()
    }
}

fn open_connection(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.execute_batch(
        "begin;
         create table if not exists schema (version integer not null);
         insert into schema select 1 where not exists (select * from schema);
         create table if not exists event (
             seq integer primary key autoincrement,
             kind text not null,
             active_ms integer not null,
             body text not null
         );
         commit;",
    )?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_is_read_back_in_order_and_time_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, entries) = Journal::open(folder.path()).unwrap();
        assert!(entries.is_empty());
        journal.before = Duration::from_secs(5);
        journal.append(Event::Exhausted { target: "a".into() }).unwrap();
        journal.append(Event::Exhausted { target: "b".into() }).unwrap();
        drop(journal);
        let (journal, entries) = Journal::open(folder.path()).unwrap();
        assert_eq!(entries.iter().map(|e| e.seq).collect::<Vec<_>>(), [1, 2]);
        assert!(matches!(&entries[1].event, Event::Exhausted { target } if target == "b"));
        assert!(journal.active() >= Duration::from_secs(5));
    }

    #[test]
    fn a_journal_of_another_schema_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(folder.path()).unwrap();
        journal.connection.execute("update schema set version = 99", []).unwrap();
        drop(journal);
        assert!(matches!(Journal::open(folder.path()), Err(JournalError::Schema { found: 99, .. })));
    }

    #[test]
    fn a_torn_event_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path()).unwrap();
        journal.append(Event::Exhausted { target: "a".into() }).unwrap();
        journal.connection.execute("update event set body = '{\"kind\":\"exh'", []).unwrap();
        assert!(matches!(Journal::open(folder.path()), Err(JournalError::Event { seq: 1, .. })));
    }
}
