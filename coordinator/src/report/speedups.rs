//! The second picture: each target's speed-up with its interval, and its distance to the roofline before and after.

use kernelopt_shared::result::TargetResult;

use super::Report;
use super::axis::Axis;
use super::format::{Bracket, Roofline, Share, Times, counted};
use super::markup::Markup;
use super::palette::Palette;
use super::svg::{self, Frame};

const ROW_HEIGHT: f64 = 38.0;
const TOP: f64 = 10.0;
/// Half the height of a whisker's end.
const CAP: f64 = 5.0;

/// Adds both panels, side by side where there is room.
pub(super) fn draw(m: &mut Markup, report: &Report<'_>, palette: &Palette<'_>) {
    m.element("div", &[("class", &"panels")], |m| {
        m.element("div", &[], |m| {
            m.leaf("h3", &[("class", &"over-names")], "Speed-up, log scale");
            intervals(m, &report.result.targets, palette);
        });
        m.element("div", &[], |m| {
            m.leaf("h3", &[], "Share of the roofline");
            rooflines(m, &report.result.targets, palette);
        });
    });
}

/// Middle of row `index`. The name stands above it on a phone, so the row's dot sits low.
fn row(index: usize) -> f64 {
    TOP + ROW_HEIGHT * index as f64 + 24.0
}

fn bottom(targets: &[TargetResult]) -> f64 {
    TOP + ROW_HEIGHT * targets.len() as f64 + 6.0
}

fn intervals(m: &mut Markup, targets: &[TargetResult], palette: &Palette<'_>) {
    let axis = Axis::ratios(targets.iter().flat_map(|t| [t.speedup, t.ci95[0], t.ci95[1]]));
    let bottom = bottom(targets);
    let description = describe(targets);
    let frame = Frame {
        id: "speedups",
        class: "names figures",
        title: "Speed-up of each target with its 95% interval",
        description: &description,
        height: bottom + 24.0,
    };
    frame.draw(m, |m| {
        svg::grid(m, &axis, &axis.ticks(7), (TOP, bottom), |t| format!("{t}×", t = (t * 1000.0).round() / 1000.0));
        svg::line(m, "one", (axis.place(1.0), TOP), (axis.place(1.0), bottom));
        for (index, target) in targets.iter().enumerate() {
            let y = row(index);
            svg::row_name(m, y, &palette.name(target));
            whisker(m, &axis, target, index, y);
        }
    });
}

fn whisker(m: &mut Markup, axis: &Axis, target: &TargetResult, index: usize, y: f64) {
    let class = Palette::class(index);
    if target.winner.is_none() {
        svg::dot(m, &format!("hollow {class}"), (axis.place(1.0), y), 5.0, "the baseline stands");
        svg::row_figure(m, y, "baseline stands");
        return;
    }
    let [low, high] = target.ci95.map(|end| axis.place(end));
    if target.ci95.iter().all(|end| end.is_finite()) {
        let class = format!("whisker {class}");
        svg::line(m, &class, (low, y), (high, y));
        svg::line(m, &class, (low, y - CAP), (low, y + CAP));
        svg::line(m, &class, (high, y - CAP), (high, y + CAP));
    }
    let words = format!("{} {}", Times(target.speedup), Bracket(target.ci95));
    svg::dot(m, &format!("full {class}"), (axis.place(target.speedup), y), 5.5, &words);
    svg::row_figure(m, y, &words);
}

fn describe(targets: &[TargetResult]) -> String {
    let won = targets.iter().filter(|t| t.winner.is_some()).count();
    let best = targets.iter().filter(|t| t.winner.is_some()).max_by(|a, b| a.speedup.total_cmp(&b.speedup));
    let best = best.map(|t| format!(" The greatest is {} {} on {}.", Times(t.speedup), Bracket(t.ci95), t.name)).unwrap_or_default();
    format!(
        "One row for each of {}; {won} with a confirmed speed-up.{best} The table of targets holds all figures.",
        counted(targets.len() as u64, "target")
    )
}

fn rooflines(m: &mut Markup, targets: &[TargetResult], palette: &Palette<'_>) {
    let fractions = targets.iter().flat_map(|t| [t.baseline_roofline_fraction, t.roofline_fraction]);
    let axis = Axis::from_zero(fractions.filter(|f| f.is_finite()).fold(1.0, f64::max));
    let bottom = bottom(targets);
    let description = "For each target an open dot before and a full dot after; at 100% the kernel takes no longer than its bytes need to move. \
                       The table of targets holds all figures.";
    Frame { id: "rooflines", class: "figures again", title: "Share of the roofline before and after", description, height: bottom + 24.0 }
        .draw(m, |m| {
            svg::grid(m, &axis, &axis.ticks(4), (TOP, bottom), |t| format!("{}%", (t * 100.0).round()));
            svg::line(m, "one", (axis.place(1.0), TOP), (axis.place(1.0), bottom));
            for (index, target) in targets.iter().enumerate() {
                let y = row(index);
                svg::row_name(m, y, &palette.name(target));
                dumbbell(m, &axis, target, index, y);
            }
        });
}

fn dumbbell(m: &mut Markup, axis: &Axis, target: &TargetResult, index: usize, y: f64) {
    let (before, after) = (target.baseline_roofline_fraction, target.roofline_fraction);
    if before <= 0.0 || after <= 0.0 || !(before + after).is_finite() {
        svg::row_figure(m, y, "unknown");
        return;
    }
    let class = Palette::class(index);
    svg::line(m, &format!("bridge {class}"), (axis.place(before), y), (axis.place(after), y));
    svg::dot(m, &format!("hollow {class}"), (axis.place(before), y), 4.5, format_args!("before: {}", Share(before)));
    if target.winner.is_some() {
        svg::dot(m, &format!("full {class}"), (axis.place(after), y), 5.5, format_args!("after: {}", Share(after)));
        svg::row_figure(m, y, format_args!("{} → {}", Roofline(before), Roofline(after)));
    } else {
        svg::row_figure(m, y, Roofline(before));
    }
}
