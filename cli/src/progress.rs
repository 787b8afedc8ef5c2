//! What a person sees while a job runs.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use kernelopt_coordinator::columns::shorten;
use kernelopt_coordinator::journal::{Entry, Event};
use kernelopt_coordinator::search::exchange::Heard;
use kernelopt_coordinator::search::plan::{Limits, Step};
use kernelopt_coordinator::search::state::JobState;
use kernelopt_coordinator::tune::Observer;
use kernelopt_shared::api::{JobRow, Phase};
use kernelopt_shared::language_model::Unanswered;
use kernelopt_shared::task::Depth;
use kernelopt_shared::verdict::Verdict;

/// A line that is kept up to date on a terminal; elsewhere a line now and then.
pub struct Progress {
    bar: ProgressBar,
    plain: bool,
    budget: Duration,
    max_candidates: u64,
    doing: String,
    last_line: Option<Instant>,
    /// Why a language model did not answer, the last time that it was said.
    problem: Option<Unanswered>,
    /// Judged before this run: they do not count for its rate.
    judged_before: Option<u64>,
    started: Instant,
}

/// Time between lines where stderr is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Widest kernel name, in characters.
const NAME_WIDTH: usize = 44;

impl Progress {
    /// For a job with these limits.
    pub fn new(limits: &Limits) -> Self {
        let plain = !std::io::stderr().is_terminal();
        let bar = if plain { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        if !plain {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        let (budget, max_candidates) = (limits.budget, limits.max_candidates);
        let (doing, started) = (String::new(), Instant::now());
        Self { bar, plain, budget, max_candidates, doing, last_line: None, problem: None, judged_before: None, started }
    }

    /// The line, to take it away when all is over.
    pub fn line(&self) -> ProgressBar {
        self.bar.clone()
    }

    /// That a remote job waits, and why; what else it does, its steps say.
    pub fn job(&mut self, row: &JobRow) {
        let waits = row.reason.as_ref().map_or_else(|| "waiting".to_owned(), |reason| format!("waiting: {reason}"));
        if row.phase == Phase::Waiting && waits != self.doing {
            self.doing = waits;
            self.say(&self.doing.clone());
        }
    }

    /// A line that stays, of the one who waits and not of the job.
    pub fn note(&mut self, line: &str) {
        self.say(line);
    }

    /// Takes the line away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// A line that stays.
    fn say(&mut self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
        self.last_line = Some(Instant::now());
    }

    fn status(&self, state: &JobState) -> String {
        let judged = state.judged();
        let here = judged - self.judged_before.unwrap_or(0).min(judged);
        let rate = here as f64 / self.started.elapsed().as_secs_f64().max(1.0) * 60.0;
        let left = self.budget.saturating_sub(state.active).as_secs();
        let by_count = self.max_candidates.saturating_sub(judged);
        let doing = if self.doing.is_empty() { String::new() } else { format!(" | {}", self.doing) };
        format!("{judged} candidates, {rate:.0}/min, at most {}:{:02} or {by_count} candidates left{doing}", left / 60, left % 60)
    }
}

impl Observer for Progress {
    fn step(&mut self, step: &Step) {
        self.doing = match step {
            Step::Profile => "profiling the compiled model".into(),
            Step::Evaluate { target, depth, .. } => format!("{} {}", verb(*depth), shorten(target, NAME_WIDTH)),
            Step::CheckModel { winners } => format!("checking the whole model with {}", counted(winners.len())),
            Step::Nothing { number } => format!("doing nothing, number {number}"),
        };
        match step {
            Step::Profile | Step::CheckModel { .. } => self.say(&self.doing.clone()),
            _ => self.bar.set_message(self.doing.clone()),
        }
    }

    fn event(&mut self, entry: &Entry, state: &JobState) {
        self.judged_before.get_or_insert(state.judged());
        if let Event::Judged { target, depth, outcome, .. } = &entry.event
            && *depth != Depth::Screen
            && let Verdict::Accepted { speedup } = &outcome.verdict
        {
            let note = state
                .targets
                .get(target)
                .and_then(|t| t.tried.iter().find(|t| t.id == outcome.candidate))
                .map_or("", |t| &t.candidate.origin.note);
            let what = if *depth == Depth::Confirm { "confirmed" } else { "measured" };
            let kernel = shorten(target, NAME_WIDTH);
            self.say(&format!("{what} {:.2}x [{:.2}, {:.2}] {kernel}: {note}", speedup.estimate, speedup.low, speedup.high));
        }
        if let Event::Asked { target, .. } = &entry.event {
            self.doing = format!("asking a language model about {}", shorten(target, NAME_WIDTH));
        }
        if let Event::Answered { heard: Heard::Unanswered(why), .. } = &entry.event
            && self.problem.as_ref() != Some(why)
        {
            self.say(&format!("the language model: {why}"));
            self.problem = Some(why.clone());
        }
        if let Event::ModelChecked { verdict, .. } = &entry.event {
            self.say(&format!("whole model: {}", verdict.reason));
        }
        let status = self.status(state);
        // Before the first candidate there is nothing to count.
        let counts = matches!(entry.event, Event::Judged { .. });
        if self.plain && counts && self.last_line.is_none_or(|at| at.elapsed() > LINE_EVERY) {
            self.say(&status);
        }
        self.bar.set_message(status);
    }
}

fn counted(kernels: usize) -> String {
    if kernels == 1 { "1 new kernel".into() } else { format!("{kernels} new kernels") }
}

const fn verb(depth: Depth) -> &'static str {
    match depth {
        Depth::Screen => "looking at",
        Depth::Full => "measuring",
        Depth::Confirm => "confirming",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_done_and_ends_there() {
        let mut progress = Progress::new(&Limits { budget: Duration::from_secs(39), max_candidates: 1000 });
        assert_eq!(progress.status(&JobState::default()), "0 candidates, 0/min, at most 0:39 or 1000 candidates left");
        progress.doing = "measuring triton_red_0".into();
        assert!(progress.status(&JobState::default()).ends_with("candidates left | measuring triton_red_0"));
    }

    #[test]
    fn kernels_are_counted_in_words() {
        assert_eq!([counted(1), counted(2)], ["1 new kernel", "2 new kernels"]);
    }
}
