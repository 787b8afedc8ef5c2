//! The fault suite: real servers and real processes, killed, stopped, cut off, wiped and lied to in mid-job. Each row is a failure that a
//! fleet survives, and what shows that it did; `make faults` prints one line for each, with its time.
//!
//! A row that takes long runs in a shorter form unless `KERNELOPT_FAULTS=all`. What a row needs and this host lacks is an error, never a row
//! passed over. Nextest lists and runs rows one by one, as any tests.

mod coordinator;
mod disk;
mod fleet;
mod preload;
mod wire;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::Instant;

/// A failure, and the test that it is survived.
struct Row {
    /// In the table of failures of docs/fleet.md.
    number: u8,
    name: &'static str,
    run: fn(),
}

macro_rules! rows {
    ($($number:literal $module:ident::$name:ident),* $(,)?) => {
        [$(Row { number: $number, name: stringify!($name), run: $module::$name }),*]
    };
}

const ROWS: &[Row] = &rows![
    3 coordinator::killed_at_journal_writes_replays_what_it_had_said,
    4 coordinator::the_older_of_two_is_fenced,
    26 disk::a_full_one_refuses_and_corrupts_nothing,
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|given| given == word);
    if has("--list") {
        // None is ignored.
        ROWS.iter().filter(|_| !has("--ignored")).for_each(|row| println!("{}: test", row.title()));
        return ExitCode::SUCCESS;
    }
    let mut values = words.iter();
    let mut wanted = Vec::new();
    while let Some(word) = values.next() {
        match word.as_str() {
            "--test-threads" | "--format" | "--color" | "--skip" => drop(values.next()),
            flag if flag.starts_with('-') => {}
            name => wanted.push(name.to_owned()),
        }
    }
    let is_wanted = |row: &&Row| wanted.is_empty() || wanted.iter().any(|name| row.title().contains(name.as_str()));
    let (mut failed, started) = (0, Instant::now());
    for row in ROWS.iter().filter(is_wanted) {
        let begun = Instant::now();
        let passed = catch_unwind(row.run).is_ok();
        failed += usize::from(!passed);
        let seconds = begun.elapsed().as_secs_f64();
        println!("row {:2}  {seconds:6.1} s  {}  {}", row.number, if passed { "ok    " } else { "FAILED" }, row.name.replace('_', " "));
    }
    println!("{:16.1} s  {}", started.elapsed().as_secs_f64(), if failed == 0 { "all passed".into() } else { format!("{failed} FAILED") });
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Row {
    fn title(&self) -> String {
        format!("row_{:02}_{}", self.number, self.name)
    }
}

/// True where rows are to run in full.
fn in_full() -> bool {
    std::env::var_os("KERNELOPT_FAULTS").is_some_and(|what| what == "all")
}
