//! The first picture: model time before and after, stacked by part.

use std::collections::BTreeSet;

use kernelopt_shared::result::{ModelResult, ModelVerdict};

use super::Report;
use super::axis::Axis;
use super::format::{Micros, RoundMicros, Share, Times};
use super::markup::Markup;
use super::palette::{OTHERS, Palette};
use super::svg::{self, Across, Down, Frame};
use super::tables::{self, Head::Short};

const BAR_HEIGHT: f64 = 44.0;
const BEFORE_TOP: f64 = 20.0;
const AFTER_TOP: f64 = 112.0;
const BOTTOM: f64 = 168.0;
/// Classes of parts that are no kernels: vendor calls, the rest.
const NOT_KERNELS: [&str; 2] = ["r1", "r2"];
/// Share of the picture's width from which a segment can hold its own percentage, on a phone too.
const WORDY: f64 = 0.12;

/// One segment of both bars.
pub(super) struct Part {
    pub(super) class: &'static str,
    pub(super) name: String,
    /// Microseconds per model call.
    pub(super) before_us: f64,
    /// Microseconds per model call.
    pub(super) after_us: f64,
}

impl Part {
    fn is_kernel(&self) -> bool {
        !NOT_KERNELS.contains(&self.class)
    }
}

/// Parts in the order of the bars: coloured targets, other kernels as one, then what no kernel is.
pub(super) fn parts(report: &Report<'_>, palette: &Palette<'_>) -> Vec<Part> {
    let result = report.result;
    let (mut kernels, mut others, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    let mut taken = BTreeSet::new();
    for (name, before, after) in &result.model.parts {
        let (before_us, after_us) = (usable(*before), usable(*after));
        let part = |class, name: &str| Part { class, name: name.to_owned(), before_us, after_us };
        // Bare names may stand for kernels of several graphs: each names the next of them.
        let target = palette.find_of(name, |index| !taken.contains(&index));
        taken.extend(target);
        match target {
            Some(index) if Palette::class(index) != OTHERS => {
                kernels.push((index, part(Palette::class(index), &palette.name(&result.targets[index]))))
            }
            Some(_) => others.push(part(OTHERS, name)),
            None if result.untouched.iter().any(|u| u.name == *name || format!("{}/{}", u.graph, u.name) == *name) => {
                others.push(part(OTHERS, name))
            }
            None => rest.push(part(NOT_KERNELS[rest.len() % NOT_KERNELS.len()], name)),
        }
    }
    kernels.sort_by_key(|(index, _)| *index);
    let kernels = kernels.into_iter().map(|(_, part)| part);
    kernels.chain(folded(others)).chain(rest).collect()
}

/// Kernels without a colour of their own, as one part.
fn folded(others: Vec<Part>) -> Option<Part> {
    let name = match others.as_slice() {
        [] => return None,
        [one] => one.name.clone(),
        many => format!("{} other kernels", many.len()),
    };
    let sum = |of: fn(&Part) -> f64| others.iter().map(of).sum();
    Some(Part { class: OTHERS, name, before_us: sum(|p| p.before_us), after_us: sum(|p| p.after_us) })
}

fn usable(us: f64) -> f64 {
    if us.is_finite() { us.max(0.0) } else { 0.0 }
}

/// Adds the picture.
pub(super) fn draw(m: &mut Markup, report: &Report<'_>, palette: &Palette<'_>) {
    let model = &report.result.model;
    let parts = parts(report, palette);
    let (before, after) = (total(&parts, |p| p.before_us), total(&parts, |p| p.after_us));
    if before <= 0.0 {
        m.leaf("p", &[("class", &"absent")], "The model's time was not taken apart in this run.");
        return;
    }
    let axis = Axis::from_zero(before.max(after));
    let description = describe(model, &parts, before);
    Frame { id: "parts", class: "bars", title: "Model time before and after, by part", description: &description, height: BOTTOM + 26.0 }
        .draw(m, |m| {
            svg::grid(m, &axis, &axis.ticks(5), (BEFORE_TOP - 8.0, BOTTOM), RoundMicros);
            ribbons(m, &axis, &parts);
            bar(m, &axis, BEFORE_TOP, "before", &parts, |p| p.before_us);
            bar(m, &axis, AFTER_TOP, "after", &parts, |p| p.after_us);
            svg::row_figure(m, BEFORE_TOP + BAR_HEIGHT / 2.0, Micros(model.baseline_us));
            svg::row_figure(m, AFTER_TOP + BAR_HEIGHT / 2.0, Micros(model.optimized_us));
        });
}

/// Adds the table, which is the picture's legend too, and a note where the sums need one.
pub(super) fn table(m: &mut Markup, report: &Report<'_>, palette: &Palette<'_>) {
    let parts = parts(report, palette);
    if parts.is_empty() {
        return;
    }
    rows(m, &parts);
    note(m, &report.result.model, total(&parts, |p| p.before_us), total(&parts, |p| p.after_us));
}

fn total(parts: &[Part], of: impl Fn(&Part) -> f64) -> f64 {
    parts.iter().map(of).sum()
}

fn describe(model: &ModelResult, parts: &[Part], before: f64) -> String {
    let kept = if model.verdict == ModelVerdict::Kept { " The compiler's code is kept, so both bars are the same code." } else { "" };
    let greatest = parts.iter().max_by(|a, b| a.before_us.total_cmp(&b.before_us));
    let greatest = greatest.map(|p| format!(" Greatest part before: {}, {}.", p.name, Share(p.before_us / before))).unwrap_or_default();
    format!("Two stacked bars: {} before, {} after.{greatest}{kept}", Micros(model.baseline_us), Micros(model.optimized_us))
}

fn bar(m: &mut Markup, axis: &Axis, top: f64, name: &str, parts: &[Part], of: impl Fn(&Part) -> f64) {
    let all = total(parts, &of);
    let mut start = 0.0;
    for part in parts {
        let (from, to) = (axis.place(start), axis.place(start + of(part)));
        start += of(part);
        m.element("g", &[], |m| {
            m.leaf("title", &[], format_args!("{}, {name}: {} ({})", part.name, Micros(of(part)), Share(of(part) / all)));
            svg::rectangle(m, &format!("segment {}", part.class), (from, top), (to - from, BAR_HEIGHT));
            if to - from >= WORDY {
                let class = format!("inside on-{}", part.class);
                let y = Down(top + BAR_HEIGHT / 2.0 + 4.5);
                m.leaf("text", &[("class", &class), ("x", &Across((from + to) / 2.0)), ("y", &y)], Share(of(part) / all));
            }
        });
    }
    svg::row_name(m, top + BAR_HEIGHT / 2.0, name);
}

/// Joins each segment before with itself after. Polygons know no percentages, so they live in a square that is stretched.
fn ribbons(m: &mut Markup, axis: &Axis, parts: &[Part]) {
    let (top, height) = (Down(BEFORE_TOP + BAR_HEIGHT), Down(AFTER_TOP - BEFORE_TOP - BAR_HEIGHT));
    let stretch = [
        ("viewBox", &"0 0 1000 100" as &dyn std::fmt::Display),
        ("preserveAspectRatio", &"none"),
        ("x", &"0"),
        ("y", &top),
        ("width", &"100%"),
        ("height", &height),
    ];
    m.element("svg", &stretch, |m| {
        let (mut before, mut after) = (0.0, 0.0);
        for part in parts {
            let at = |us: f64| 1000.0 * axis.place(us);
            let (a, b, c, d) = (at(before), at(before + part.before_us), at(after + part.after_us), at(after));
            let points = format!("{a:.1},0 {b:.1},0 {c:.1},100 {d:.1},100");
            m.empty("polygon", &[("class", &format_args!("ribbon {}", part.class)), ("points", &points)]);
            before += part.before_us;
            after += part.after_us;
        }
    });
}

fn rows(m: &mut Markup, parts: &[Part]) {
    tables::table(m, "Time per model call by part", &[Short("Part"), Short("Before"), Short("After"), Short("Speed-up")], |m| {
        for part in parts {
            m.element("tr", &[], |m| {
                m.element("th", &[("scope", &"row")], |m| {
                    m.leaf("span", &[("class", &format_args!("swatch {}", part.class)), ("aria-hidden", &"true")], "");
                    let class = if part.is_kernel() { "code" } else { "plain" };
                    m.leaf("span", &[("class", &class)], &part.name);
                });
                m.leaf("td", &[], Micros(part.before_us));
                m.leaf("td", &[], Micros(part.after_us));
                // What no candidate replaces has no speed-up, only noise.
                if part.is_kernel() { m.leaf("td", &[], Times(part.before_us / part.after_us)) } else { m.leaf("td", &[], "–") }
            });
        }
    });
}

/// Clocks inside a call cost time themselves, and kernels influence each other: where the sums differ, the page says so.
fn note(m: &mut Markup, model: &ModelResult, before: f64, after: f64) {
    let apart = |sum: f64, whole: f64| (sum / whole - 1.0).abs() > 0.02;
    if apart(before, model.baseline_us) || apart(after, model.optimized_us) {
        let words = format!(
            "The parts add up to {} before and {} after. The totals beside the bars are measured on whole calls, without clocks inside.",
            Micros(before),
            Micros(after)
        );
        m.leaf("p", &[("class", &"note")], words);
    }
}
