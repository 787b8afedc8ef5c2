//! The fourth picture: verdicts by kind. Also the one place that knows the kinds, their order and their words.

use std::collections::BTreeMap;

use kernelopt_shared::result::TuneResult;

use super::axis::Axis;
use super::format::{Share, counted};
use super::markup::Markup;
use super::svg::{self, Frame};

/// A kind of verdict as the report shows it.
pub(super) struct Kind {
    /// As serialised.
    pub(super) key: &'static str,
    /// For people.
    pub(super) words: &'static str,
    /// What it means, in a sentence.
    pub(super) meaning: &'static str,
    /// Class of its colour: right and faster, right, not right.
    pub(super) class: &'static str,
}

/// All kinds, those that were right first.
pub(super) const KINDS: [Kind; 9] = [
    Kind { key: "accepted", words: "accepted", meaning: "right, and faster than the compiler's kernel", class: "v-accepted" },
    Kind { key: "no_change", words: "no change", meaning: "right, and not told apart from the compiler's kernel", class: "v-right" },
    Kind { key: "slower", words: "slower", meaning: "right, and slower", class: "v-right" },
    Kind { key: "wrong", words: "wrong", meaning: "some output is not what the kernel means", class: "v-not" },
    Kind { key: "build_failed", words: "build failed", meaning: "the compiler refused it", class: "v-not" },
    Kind { key: "crashed", words: "crashed", meaning: "its process died", class: "v-not" },
    Kind { key: "hung", words: "hung", meaning: "it did not answer in time", class: "v-not" },
    Kind {
        key: "rejected",
        words: "rejected",
        meaning: "it broke the contract: a forbidden call, a forged answer, an impossible speed",
        class: "v-not",
    },
    Kind { key: "unstable", words: "unstable", meaning: "its time cannot be stated", class: "v-not" },
];

/// Kinds under which a candidate counts as right.
pub(super) fn is_right(key: &str) -> bool {
    KINDS.iter().any(|kind| kind.key == key && kind.class != "v-not")
}

/// Kinds that occur, with their counts over all targets.
pub(super) fn counts(result: &TuneResult) -> Vec<(&'static Kind, u64)> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (key, count) in result.targets.iter().flat_map(|t| &t.verdict_counts) {
        *sums.entry(key).or_default() += count;
    }
    KINDS.iter().filter_map(|kind| sums.get(kind.key).filter(|count| **count > 0).map(|count| (kind, *count))).collect()
}

const ROW_HEIGHT: f64 = 38.0;
const BAR_HEIGHT: f64 = 16.0;

/// Adds the picture.
pub(super) fn draw(m: &mut Markup, result: &TuneResult) {
    let counts = counts(result);
    let Some(greatest) = counts.iter().map(|(_, count)| *count).max() else {
        m.leaf("p", &[("class", &"absent")], "No candidate was judged.");
        return;
    };
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    let axis = Axis::from_zero(greatest as f64);
    let parts: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {}", kind.words)).collect();
    let description = format!("{}: {}.", counted(all, "verdict"), parts.join(", "));
    let height = ROW_HEIGHT * counts.len() as f64 + 8.0;
    Frame { id: "verdicts", class: "lanes figures", title: "Verdicts by kind", description: &description, height }.draw(m, |m| {
        for (index, (kind, count)) in counts.iter().enumerate() {
            let y = ROW_HEIGHT * index as f64 + 24.0;
            m.element("g", &[], |m| {
                m.leaf("title", &[], format_args!("{}: {}", kind.words, kind.meaning));
                svg::rectangle(m, "trough", (0.0, y - BAR_HEIGHT / 2.0), (1.0, BAR_HEIGHT));
                svg::rectangle(m, kind.class, (0.0, y - BAR_HEIGHT / 2.0), (axis.place(*count as f64).max(0.004), BAR_HEIGHT));
            });
            svg::row_name(m, y, kind.words);
            svg::row_figure(m, y, format_args!("{count} ({})", Share(*count as f64 / all as f64)));
        }
    });
}
