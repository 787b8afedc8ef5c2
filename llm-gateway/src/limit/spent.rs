//! What is spent of budgets, kept in a file: a budget is spent once, not once for each start of the process.
//!
//! Writing each call down before it is sent would cost a write to the disk each time. So a *mark* is written: more than is spent and reserved, by a
//! two-hundredth of the budget. Only a call that passes the mark waits for the next one. After an orderly end the file says exactly what is spent;
//! after a kill what the mark says is taken to be spent, which is never too little.
//!
//! The file has one JSON array a line, `["key lab", 1250000, 900]`: the account, nano-dollars, tokens; the last line of an account holds. Where limits are
//! shared through Redis, that has what is spent, and there is no such file.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use kernelopt_shared::language_model::NanoUsd;

use super::Limits;
use super::ledger::AccountName;

/// Its name in the gateway's folder.
const FILE: &str = "spent.jsonl";
/// Part of a budget that a mark is ahead.
const AHEAD: u64 = 200;
/// Lines after which the file is written anew.
const MOST_LINES: usize = 100_000;

/// Money and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Money.
    pub money: NanoUsd,
    /// Tokens.
    pub tokens: u64,
}

/// The file, and the marks in it.
#[derive(Debug)]
pub struct Spent {
    folder: PathBuf,
    file: File,
    lines: usize,
    marks: HashMap<AccountName, Taken>,
}

impl Spent {
    /// Opens the file in `folder`, or makes one. One process at a time has it.
    ///
    /// # Errors
    /// It cannot be read or written, another process has it, or a line of it is none of ours; a last line that was cut off by a kill is left out.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(FILE);
        let file = OpenOptions::new().create(true).read(true).append(true).open(&path)?;
        file.try_lock().map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, format!("{}: another gateway has it", path.display())))?;
        let (mut marks, mut bad) = (HashMap::new(), None);
        for (at, line) in BufReader::new(&file).lines().enumerate() {
            if let Some(at) = bad {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: line {at} is not of a gateway", path.display())));
            }
            match serde_json::from_str::<(String, u64, u64)>(&line?) {
                Ok((name, money, tokens)) => drop(marks.insert(AccountName::from_text(&name), Taken { money: NanoUsd(money), tokens })),
                Err(_) => bad = Some(at + 1),
            }
        }
        let mut spent = Self { folder: folder.into(), file, lines: 0, marks };
        spent.rewrite()?;
        Ok(spent)
    }

    /// What was spent, as far as is known.
    pub fn marks(&self) -> impl Iterator<Item = (&AccountName, Taken)> {
        self.marks.iter().map(|(name, taken)| (name, *taken))
    }

    /// `taken` is spent and reserved of an account: returns when a mark that covers it is on the disk. Seldom that takes a write.
    ///
    /// # Errors
    /// The disk is full or gone; the call must not be sent.
    pub fn cover(&mut self, name: &AccountName, taken: Taken, limits: &Limits) -> io::Result<()> {
        let mark = self.marks.get(name).copied().unwrap_or_default();
        let (money, tokens) = (limits.budget.map(|budget| budget.0), limits.budget_tokens);
        let covered = (money.is_none() || taken.money <= mark.money) && (tokens.is_none() || taken.tokens <= mark.tokens);
        if covered {
            return Ok(());
        }
        let ahead = |taken: u64, budget: Option<u64>| budget.map_or(taken, |budget| (taken + budget / AHEAD).min(budget.max(taken)));
        let next = Taken { money: NanoUsd(ahead(taken.money.0, money)), tokens: ahead(taken.tokens, tokens) };
        self.write(name, next)
    }

    /// Writes down what is spent exactly. The process ends in good order, or might.
    ///
    /// # Errors
    /// The disk is full or gone.
    pub fn settle(&mut self, exact: impl Iterator<Item = (AccountName, Taken)>) -> io::Result<()> {
        for (name, taken) in exact {
            if let Some(mark) = self.marks.get_mut(&name) {
                *mark = taken;
            }
        }
        self.rewrite()
    }

    fn write(&mut self, name: &AccountName, mark: Taken) -> io::Result<()> {
        self.file.write_all(line(name, mark)?.as_bytes())?;
        self.file.sync_data()?;
        self.marks.insert(name.clone(), mark);
        self.lines += 1;
        if self.lines > MOST_LINES + self.marks.len() { self.rewrite() } else { Ok(()) }
    }

    /// Writes the file anew beside the old one, and puts it in its place.
    fn rewrite(&mut self) -> io::Result<()> {
        let mut new = tempfile::NamedTempFile::new_in(&self.folder)?;
        let mut text = String::new();
        for (name, mark) in &self.marks {
            text += &line(name, *mark)?;
        }
        new.write_all(text.as_bytes())?;
        new.as_file().sync_all()?;
        // Locked before it is in place, so that nobody else gets it in between.
        new.as_file().try_lock().map_err(io::Error::other)?;
        self.file = new.persist(self.folder.join(FILE)).map_err(|failed| failed.error)?;
        File::open(&self.folder)?.sync_all()?;
        self.lines = self.marks.len();
        Ok(())
    }
}

fn line(name: &AccountName, mark: Taken) -> io::Result<String> {
    serde_json::to_string(&(name.as_str(), mark.money.0, mark.tokens)).map(|line| line + "\n").map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::KeyName;

    fn name(of: &str) -> AccountName {
        AccountName::key(&KeyName::parse(of).unwrap())
    }

    fn taken(money: u64) -> Taken {
        Taken { money: NanoUsd(money), tokens: 0 }
    }

    fn mark(spent: &Spent, of: &str) -> u64 {
        spent.marks().find(|(found, _)| **found == name(of)).map_or(0, |(_, taken)| taken.money.0)
    }

    #[test]
    fn a_mark_is_ahead_and_never_behind() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { budget: Some(NanoUsd(200_000)), ..Limits::default() };
        let mut spent = Spent::open(folder.path()).unwrap();
        for money in (0..=200_000).step_by(37) {
            spent.cover(&name("a"), taken(money), &limits).unwrap();
            assert!((money..=(money + 1_000).min(200_000)).contains(&mark(&spent, "a")), "{money}");
        }
        let lines = fs::read_to_string(folder.path().join(FILE)).unwrap().lines().count();
        assert!(lines <= 210, "a write per two-hundredth, not per call: {lines}");
        // Killed: the mark holds. Ended: what was spent holds.
        drop(spent);
        let mut spent = Spent::open(folder.path()).unwrap();
        assert!(mark(&spent, "a") >= 199_985);
        spent.settle([(name("a"), taken(123))].into_iter()).unwrap();
        drop(spent);
        assert_eq!(mark(&Spent::open(folder.path()).unwrap(), "a"), 123);
    }

    #[test]
    fn one_process_at_a_time_and_no_foreign_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let spent = Spent::open(folder.path()).unwrap();
        assert!(Spent::open(folder.path()).unwrap_err().to_string().contains("another gateway has it"));
        drop(spent);
        fs::write(&path, "[\"key a\",5,0]\n[\"key a\",7,0]\n[\"key a\",9").unwrap();
        assert_eq!(mark(&Spent::open(folder.path()).unwrap(), "a"), 7, "a line that was cut off by a kill");
        fs::write(&path, "nonsense\n[\"key a\",5,0]\n").unwrap();
        assert!(Spent::open(folder.path()).unwrap_err().to_string().contains("line 1 is not of a gateway"));
    }
}
