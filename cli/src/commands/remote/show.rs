//! Answers of a coordinator as text for a terminal.

use std::time::{SystemTime, UNIX_EPOCH};

use kernelopt_coordinator::columns::{Align, UNKNOWN, columns, cut, shorten};
use kernelopt_shared::api::{
    AgentAvailability, AgentList, AgentView, Explanation, FrontierPage, JobPage, JobRow, JobView, TargetPhase, TargetView,
};
use kernelopt_shared::message::DeviceClass;

/// Widest name, in characters.
const NAME_WIDTH: usize = 44;
/// Widest sentence in a table.
const SENTENCE_WIDTH: usize = 60;
/// An agent that was heard within this time, in milliseconds, needs no word about it: it beats every five seconds.
const LATELY_MS: u64 = 15_000;

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_millis() as u64)
}

/// Without what would move a terminal's cursor: it was written elsewhere.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A line for each job.
pub fn jobs(page: &JobPage, now_ms: u64) -> String {
    if page.jobs.is_empty() {
        return "no jobs\n".into();
    }
    let mut text = String::new();
    let heading = ["job", "name", "phase", "class", "priority", "judged", "worked", "submitted", "model", "why"];
    let align = [
        Align::Left,
        Align::Left,
        Align::Left,
        Align::Left,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Left,
    ];
    columns(&mut text, &heading, &align, page.jobs.iter().map(|job| job_row(job, now_ms)).collect());
    if page.next.is_some() {
        text.push_str("    there are more: --limit\n");
    }
    text
}

fn job_row(job: &JobRow, now_ms: u64) -> Vec<String> {
    vec![
        job.id.to_string(),
        cut(&plain(&job.name), NAME_WIDTH),
        job.phase.words().into(),
        class(job.class.as_ref()),
        job.priority.to_string(),
        job.judged.to_string(),
        duration(job.active_seconds),
        ago(now_ms.saturating_sub(job.submitted_unix_ms)),
        job.speedup.map_or_else(|| UNKNOWN.into(), |speedup| format!("{:.2}x", speedup.estimate)),
        job.reason.as_deref().map_or_else(|| UNKNOWN.into(), |reason| cut(&plain(reason), SENTENCE_WIDTH)),
    ]
}

fn class(class: Option<&DeviceClass>) -> String {
    class.map_or_else(|| UNKNOWN.into(), ToString::to_string)
}

/// Everything of one job.
pub fn job(job: &JobView) -> String {
    let mut text = format!("job {}, {}: {}\n", job.id, plain(&job.name), job.phase.words());
    let reason = job.reason.iter().map(|reason| ("why", plain(reason)));
    let facts = [
        ("model", plain(&job.model)),
        ("class", class(job.class.as_ref())),
        ("share", format!("priority {}, weight {}", job.priority, job.weight)),
        ("spent", format!("{} of {}", duration(job.active_seconds), duration(job.budget.seconds as f64))),
        ("judged", format!("{} of {} candidates", job.judged, job.budget.max_candidates)),
    ];
    for (name, value) in reason.chain(facts) {
        text.push_str(&format!("  {name:8}{value}\n"));
    }
    let heading = ["kernel", "share", "before us", "best", "95 % interval", "tried", "", "why"];
    let mut align = [Align::Right; 8];
    (align[0], align[6], align[7]) = (Align::Left, Align::Left, Align::Left);
    columns(&mut text, &heading, &align, job.targets.iter().map(target_row).collect());
    if let Some(verdict) = &job.verdict {
        let speedup = verdict.speedup.map(|s| format!("{:.2}x [{:.2}, {:.2}]; ", s.estimate, s.low, s.high)).unwrap_or_default();
        let what = if verdict.improved { "improved" } else { "kept" };
        text.push_str(&format!("\nmodel: {what}, {speedup}{}\n", plain(&verdict.reason)));
    }
    text
}

fn target_row(target: &TargetView) -> Vec<String> {
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.into());
    let state = match target.state {
        TargetPhase::Waiting => "waiting",
        TargetPhase::Searching => "searching",
        TargetPhase::Exhausted => "searched",
        TargetPhase::Confirmed => "confirmed",
        TargetPhase::Abandoned => "abandoned",
    };
    vec![
        shorten(&plain(&target.label), NAME_WIDTH),
        or_unknown(target.share.map(|share| format!("{:.1} %", 100.0 * share))),
        or_unknown(target.baseline_us.map(|us| format!("{us:.1}"))),
        or_unknown(target.best.map(|best| format!("{:.2}x", best.speedup.estimate))),
        or_unknown(target.best.map(|best| format!("{:.2} to {:.2}", best.speedup.low, best.speedup.high))),
        target.tried.to_string(),
        state.into(),
        or_unknown(target.reason.as_deref().map(|reason| cut(&plain(reason), SENTENCE_WIDTH))),
    ]
}

/// One sentence a line.
pub fn explanation(explanation: &Explanation) -> String {
    explanation.sentences.iter().map(|sentence| format!("{}\n", plain(sentence))).collect()
}

/// A line for each agent.
pub fn agents(list: &AgentList) -> String {
    if list.agents.is_empty() {
        return "no agents\n".into();
    }
    let mut text = String::new();
    let heading = ["agent", "class", "", "busy", "holds", "done", "failed", "version", "heard", "why"];
    let mut align = [Align::Right; 10];
    (align[0], align[1], align[2], align[7], align[9]) = (Align::Left, Align::Left, Align::Left, Align::Left, Align::Left);
    columns(&mut text, &heading, &align, list.agents.iter().map(agent_row).collect());
    text
}

fn agent_row(agent: &AgentView) -> Vec<String> {
    let heard = if agent.last_beat_ms <= LATELY_MS { UNKNOWN.into() } else { ago(agent.last_beat_ms) };
    let is_gone = matches!(agent.mode, AgentAvailability::Left | AgentAvailability::Silent);
    let busy = if is_gone { UNKNOWN.into() } else { format!("{:.0} %", 100.0 * agent.busy) };
    vec![
        agent.id.to_string(),
        agent.class.to_string(),
        agent.mode.words().into(),
        busy,
        agent.holds.len().to_string(),
        agent.done.to_string(),
        agent.failed.to_string(),
        cut(&plain(&agent.version), NAME_WIDTH),
        heard,
        agent.reason.as_deref().map_or_else(|| UNKNOWN.into(), |reason| cut(&plain(reason), SENTENCE_WIDTH)),
    ]
}

/// A line for each kernel and class of devices.
pub fn frontier(page: &FrontierPage) -> String {
    if page.rows.is_empty() {
        return "nothing is known yet\n".into();
    }
    let mut text = String::new();
    let heading = ["kernel's fingerprint", "class", "before us", "best us", "speed-up", "candidate", "job"];
    let align = [Align::Left, Align::Left, Align::Right, Align::Right, Align::Right, Align::Left, Align::Left];
    let rows = page.rows.iter().map(|row| {
        vec![
            row.fingerprint.to_string(),
            row.class.to_string(),
            format!("{:.1}", row.baseline_us),
            format!("{:.1}", row.best_us),
            format!("{:.2}x", row.speedup),
            row.candidate.to_string(),
            row.job.to_string(),
        ]
    });
    columns(&mut text, &heading, &align, rows.collect());
    if page.more {
        text.push_str("    there are more: --limit\n");
    }
    text
}

/// `0:09`, `12:40`, `2:03:00`.
fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// `now`, `5 min ago`, `3 h ago`, `2 d ago`.
fn ago(ms: u64) -> String {
    match ms / 1000 {
        0..60 => "now".into(),
        seconds @ 60..7_200 => format!("{} min ago", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!([9.4, 760.0, 7380.0, -1.0].map(duration), ["0:09", "12:40", "2:03:00", "0:00"]);
        assert_eq!([0, 59_999, 300_000, 3 * 3_600_000, 48 * 3_600_000].map(ago), ["now", "now", "5 min ago", "3 h ago", "2 d ago"]);
    }

    #[test]
    fn what_comes_from_elsewhere_does_not_move_the_cursor() {
        assert_eq!(plain("lost\u{1b}[2J GPU\r\n"), "lost\u{fffd}[2J GPU\u{fffd}\u{fffd}");
    }
}
