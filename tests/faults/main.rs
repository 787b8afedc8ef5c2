//! The fault suite: real servers and real processes, killed, stopped, cut off, wiped and lied to in mid-job. Each row is a failure that a
//! fleet survives, and what shows that it did (docs/faults.md); `make faults` prints one line for each, with its time.
//!
//! Without `KERNELOPT_FAULTS=all` only the rows that are marked `brief` run, or those that are named, and some in a shorter form. What a row needs and this host lacks is an error, never a row
//! passed over. Nextest lists and runs rows one by one, as any tests.

mod agents;
mod broker;
mod coordinator;
mod devices;
mod disk;
mod fleet;
mod frontier;
mod lying;
mod metrics;
mod preload;
mod shares;
mod wire;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::Instant;

/// A failure, and the test that it is survived.
struct Row {
    /// In docs/faults.md.
    number: u8,
    name: &'static str,
    /// It runs in `make test` too.
    brief: bool,
    run: fn(),
}

macro_rules! rows {
    ($($number:literal $module:ident::$name:ident $($brief:ident)?),* $(,)?) => {
        [$(Row { number: $number, name: stringify!($name), brief: !stringify!($($brief)?).is_empty(), run: $module::$name }),*]
    };
}

const ROWS: &[Row] = &rows![
    1 agents::killed_at_each_stage_another_ends_its_tasks,
    2 agents::stopped_for_half_a_minute_its_late_result_is_evidence,
    3 coordinator::killed_at_journal_writes_replays_what_it_had_said brief,
    4 coordinator::the_older_of_two_is_fenced brief,
    5 broker::killed_in_mid_job_loses_nothing,
    5 broker::cut_and_slow_loses_nothing,
    6 broker::purged_and_deleted_queues_are_filled_again,
    7 broker::a_channel_closed_for_a_late_acknowledgement_is_made_again,
    8 lying::messages_three_times_and_out_of_order_count_once,
    9 agents::a_poison_task_is_put_aside_and_harms_no_other brief,
    10 agents::a_black_hole_tests_itself_and_leaves,
    12 frontier::emptied_read_only_and_full_it_is_rebuilt,
    13 frontier::wiped_together_with_the_broker_the_journal_restores_both,
    16 lying::a_late_reply_is_filed_under_its_own_task,
    17 devices::two_agents_never_measure_at_once,
    22 agents::told_to_end_it_goes_in_good_order,
    24 shares::a_thousand_tasks_do_not_hold_back_one,
    25 shares::waiting_is_not_running,
    26 disk::a_full_one_refuses_and_corrupts_nothing brief,
    28 lying::other_versions_are_refused_and_the_work_is_done brief,
    29 metrics::series_do_not_grow_with_candidates,
    30 agents::a_cancelled_job_leaves_its_agent_idle brief,
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|given| given == word);
    if has("--list") {
        // None is ignored.
        ROWS.iter().filter(|row| !has("--ignored") && (row.brief || in_full())).for_each(|row| println!("{}: test", row.title()));
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
    let is_wanted =
        |row: &&Row| wanted.is_empty() && (row.brief || in_full()) || wanted.iter().any(|name| row.title().contains(name.as_str()));
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
