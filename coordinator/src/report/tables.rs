//! The tables under the pictures: every figure as text.

use std::fmt::Display;

use kernelopt_shared::result::{BudgetSpent, TargetResult, TuneResult, Untouched};

use super::format::{Bracket, Micros, Roofline, Seconds, Share, Times};
use super::markup::Markup;
use super::palette::Palette;
use super::verdicts;

/// Head of a column.
pub(super) enum Head {
    /// Of names, which the rows begin with, or of figures.
    Short(&'static str),
    /// Of sentences.
    Words(&'static str),
}

use Head::{Short, Words};

/// Adds a table with its caption, for screen readers, and its column heads. It scrolls by itself where it is too wide.
pub(super) fn table(m: &mut Markup, caption: &str, heads: &[Head], rows: impl FnOnce(&mut Markup)) {
    m.element("div", &[("class", &"scroll"), ("role", &"region"), ("tabindex", &"0"), ("aria-label", &caption)], |m| {
        m.element("table", &[], |m| {
            m.leaf("caption", &[], caption);
            m.element("thead", &[], |m| {
                m.element("tr", &[], |m| {
                    heads.iter().for_each(|head| match head {
                        Short(text) => m.leaf("th", &[("scope", &"col")], text),
                        Words(text) => m.leaf("th", &[("scope", &"col"), ("class", &"words")], text),
                    });
                });
            });
            m.element("tbody", &[], rows);
        });
    });
}

/// Adds one row for each target.
pub(super) fn targets(m: &mut Markup, result: &TuneResult, palette: &Palette<'_>) {
    let heads = [
        Short("Kernel"),
        Short("Share"),
        Short("Before"),
        Short("After"),
        Short("Speed-up"),
        Short("Roofline"),
        Short("Judged"),
        Words("Winner"),
    ];
    table(m, "Targets, greatest share first", &heads, |m| {
        for (index, target) in result.targets.iter().enumerate() {
            m.element("tr", &[], |m| target_row(m, target, Palette::class(index), &palette.name(target)));
        }
    });
}

fn target_row(m: &mut Markup, target: &TargetResult, class: &'static str, name: &str) {
    m.element("th", &[("scope", &"row")], |m| {
        m.leaf("span", &[("class", &format_args!("swatch {class}")), ("aria-hidden", &"true")], "");
        m.leaf("span", &[("class", &"code"), ("title", &format_args!("graph {}, fingerprint {}", target.graph, target.fingerprint))], name);
    });
    let judged: u64 = target.verdict_counts.values().sum();
    let kinds: Vec<String> = target.verdict_counts.iter().map(|(kind, count)| format!("{count} {}", kind.replace('_', " "))).collect();
    m.leaf("td", &[], Share(target.share));
    m.leaf("td", &[], Micros(target.baseline_us));
    m.leaf("td", &[], Micros(target.best_us));
    m.element("td", &[], |m| match &target.winner {
        Some(_) => {
            m.leaf("strong", &[], Times(target.speedup));
            m.text(format_args!(" {}", Bracket(target.ci95)));
        }
        None => m.text("–"),
    });
    match &target.winner {
        Some(_) => {
            m.leaf("td", &[], format_args!("{} → {}", Roofline(target.baseline_roofline_fraction), Roofline(target.roofline_fraction)))
        }
        None => m.leaf("td", &[], Roofline(target.baseline_roofline_fraction)),
    }
    m.leaf("td", &[("title", &kinds.join(", "))], judged);
    match &target.winner {
        Some(winner) => m.element("td", &[("class", &"words")], |m| {
            m.text(&winner.note);
            m.leaf("span", &[("class", &"faint")], format_args!(" {} {}", winner.proposer, short(winner.candidate)));
        }),
        None => m.leaf("td", &[("class", &"words faint")], "none: the compiler's kernel stands"),
    }
}

/// First digits of a digest: enough to find it.
fn short(digest: impl Display) -> String {
    digest.to_string().chars().take(8).collect()
}

/// Adds the kinds of verdicts that occur, with their meanings.
pub(super) fn verdict_kinds(m: &mut Markup, result: &TuneResult) {
    if verdicts::counts(result).is_empty() {
        return;
    }
    table(m, "Verdicts by kind", &[Short("Verdict"), Short("Candidates"), Words("Meaning")], |m| {
        for (kind, count) in verdicts::counts(result) {
            m.element("tr", &[], |m| {
                m.leaf("th", &[("scope", &"row")], kind.words);
                m.leaf("td", &[], count);
                m.leaf("td", &[("class", &"words")], kind.meaning);
            });
        }
    });
}

/// Adds the kernels that are no targets.
pub(super) fn untouched(m: &mut Markup, untouched: &[Untouched]) {
    table(m, "Kernels left as they are", &[Short("Kernel"), Short("Graph"), Words("Reason")], |m| {
        for kernel in untouched {
            m.element("tr", &[], |m| {
                m.element("th", &[("scope", &"row")], |m| m.leaf("span", &[("class", &"code")], &kernel.name));
                m.leaf("td", &[], kernel.graph);
                m.leaf("td", &[("class", &"words")], &kernel.reason);
            });
        }
    });
}

/// Adds what was spent.
pub(super) fn budget(m: &mut Markup, budget: &BudgetSpent) {
    let mut rows: Vec<(String, String)> =
        vec![("Wall time".into(), Seconds(budget.seconds).to_string()), ("Candidates judged".into(), budget.candidates.to_string())];
    if budget.seconds > 0.0 {
        rows.push(("Candidates per minute".into(), format!("{:.1}", 60.0 * budget.candidates as f64 / budget.seconds)));
    }
    rows.extend(budget.share.iter().map(|(what, share)| (format!("Wall time, {what}"), Share(*share).to_string())));
    if let Some(used) = &budget.language_model {
        rows.push(("Language-model questions".into(), used.questions.to_string()));
        rows.push(("Language-model answers".into(), used.answers.to_string()));
        rows.push(("Language-model answers without a kernel".into(), used.no_kernel.to_string()));
        rows.push(("Candidates by language model".into(), used.candidates.to_string()));
        if let Some(problem) = &used.last_problem {
            let count: u64 = used.unanswered.values().sum();
            rows.push(("Language-model questions not answered".into(), format!("{count}, the last: {problem}")));
        }
    }
    if budget.tokens > 0 {
        rows.push(("Language-model tokens".into(), budget.tokens.to_string()));
        rows.push(("Language-model cost".into(), format!("{:.4} USD", budget.cost_usd)));
    }
    pairs(m, "Budget spent", [Short("What"), Short("Spent")], rows.iter().map(|(what, spent)| (what.as_str(), spent.as_str())));
}

/// Adds the versions of what took part.
pub(super) fn versions(m: &mut Markup, result: &TuneResult) {
    pairs(
        m,
        "Versions",
        [Short("What"), Short("Version")],
        result.versions.iter().map(|(what, version)| (what.as_str(), version.as_str())),
    );
}

fn pairs<'a>(m: &mut Markup, caption: &str, heads: [Head; 2], rows: impl Iterator<Item = (&'a str, &'a str)>) {
    table(m, caption, &heads, |m| {
        for (key, value) in rows {
            m.element("tr", &[], |m| {
                m.leaf("th", &[("scope", &"row")], key);
                m.leaf("td", &[], value);
            });
        }
    });
}
