//! The third picture: the search over time.
//!
//! Above, a step line for each target's best confirmed speed-up and one for the model's estimate, with a dot for every
//! candidate that was right. Below, one lane for each kind of verdict that was not.

use super::axis::{Axis, time_ticks, time_words};
use super::format::{Seconds, Times, counted, middle_cut};
use super::markup::Markup;
use super::palette::{OTHERS, Palette};
use super::svg::{self, Down, Frame};
use super::verdicts::{KINDS, Kind, is_right};
use super::{Report, TimelinePoint};

const TOP: f64 = 12.0;
const PLOT_HEIGHT: f64 = 250.0;
const LANE_HEIGHT: f64 = 20.0;
/// More marks than this are thinned out: they would lie on each other and make the file heavy.
const MOST_MARKS: usize = 3000;

/// Adds the picture and its legend.
pub(super) fn draw(m: &mut Markup, report: &Report<'_>, palette: &Palette<'_>) {
    let mut points: Vec<&TimelinePoint> = report.timeline.iter().filter(|p| p.seconds.is_finite() && p.seconds >= 0.0).collect();
    points.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let Some(last) = points.last() else {
        m.leaf("p", &[("class", &"absent")], "No candidate was judged, so there is no search to show.");
        return;
    };
    let span = last.seconds.max(1e-3);
    let chart = Chart { points: &points, palette, span, time: Axis::from_zero(span), ratio: ratios(&points), lanes: lanes(&points) };
    legend(m, report, palette, &chart);
    chart.draw(m);
    if chart.stride() > 1 {
        m.leaf("p", &[("class", &"note")], format_args!("One mark in {} is drawn; the lines hold every verdict.", chart.stride()));
    }
}

fn ratios(points: &[&TimelinePoint]) -> Axis {
    Axis::ratios(points.iter().flat_map(|p| [p.speedup.unwrap_or(1.0), p.best, p.model_estimate.unwrap_or(1.0)]))
}

fn lanes(points: &[&TimelinePoint]) -> Vec<&'static Kind> {
    KINDS.iter().filter(|kind| !is_right(kind.key) && points.iter().any(|p| p.kind == kind.key)).collect()
}

struct Chart<'a> {
    points: &'a [&'a TimelinePoint],
    palette: &'a Palette<'a>,
    /// Seconds.
    span: f64,
    time: Axis,
    ratio: Axis,
    lanes: Vec<&'static Kind>,
}

impl Chart<'_> {
    fn draw(&self, m: &mut Markup) {
        let bottom = TOP + PLOT_HEIGHT + if self.lanes.is_empty() { 0.0 } else { 12.0 + LANE_HEIGHT * self.lanes.len() as f64 };
        let description = self.describe();
        Frame { id: "timeline", class: "lanes", title: "The search over time", description: &description, height: bottom + 24.0 }.draw(
            m,
            |m| {
                let ticks = time_ticks(self.span, 5);
                svg::grid(m, &self.time, &ticks, (TOP, bottom), |t| time_words(&ticks, t));
                for tick in self.ratio.ticks(7) {
                    let y = self.y(tick);
                    svg::line(m, if (tick - 1.0).abs() < 1e-9 { "one" } else { "grid" }, (0.0, y), (1.0, y));
                    svg::text(m, "tick-left", 0.0, y + 4.0, format_args!("{}×", (tick * 1000.0).round() / 1000.0));
                }
                for (index, kind) in self.lanes.iter().enumerate() {
                    let y = self.lane(index);
                    svg::line(m, "grid", (0.0, y), (1.0, y));
                    svg::text(m, "tick-left", 0.0, y + 4.0, kind.words);
                }
                self.steps(m);
                for point in self.points.iter().step_by(self.stride()) {
                    self.mark(m, point);
                }
            },
        );
    }

    fn describe(&self) -> String {
        let model = self.points.iter().rev().find_map(|p| p.model_estimate);
        let model = model.map(|estimate| format!(" The model's estimate ends at {}.", Times(estimate))).unwrap_or_default();
        format!("{} over {}; speed-ups on a log scale.{model}", counted(self.points.len() as u64, "verdict"), Seconds(self.span))
    }

    fn stride(&self) -> usize {
        self.points.len().div_ceil(MOST_MARKS).max(1)
    }

    fn y(&self, ratio: f64) -> f64 {
        TOP + PLOT_HEIGHT * (1.0 - self.ratio.place(ratio))
    }

    fn lane(&self, index: usize) -> f64 {
        TOP + PLOT_HEIGHT + 14.0 + LANE_HEIGHT * (index as f64 + 0.5)
    }

    /// Paths know no percentages, so the lines live in a box that is stretched to the width; their strokes are not.
    fn steps(&self, m: &mut Markup) {
        let view = format!("0 0 1000 {PLOT_HEIGHT}");
        let (top, height) = (Down(TOP), Down(PLOT_HEIGHT));
        let stretch = [
            ("viewBox", &view as &dyn std::fmt::Display),
            ("preserveAspectRatio", &"none"),
            ("x", &"0"),
            ("y", &top),
            ("width", &"100%"),
            ("height", &height),
        ];
        m.element("svg", &stretch, |m| {
            let mut names: Vec<&str> = self.points.iter().map(|p| p.target.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let of_target = self.points.iter().filter(|p| p.target == name).map(|p| (p.seconds, p.best));
                self.step_line(m, &format!("step {}", self.class(name)), of_target);
            }
            self.step_line(m, "step model", self.points.iter().filter_map(|p| Some((p.seconds, p.model_estimate?))));
        });
    }

    fn step_line(&self, m: &mut Markup, class: &str, values: impl Iterator<Item = (f64, f64)>) {
        use std::fmt::Write as _;
        let mut path = format!("M0,{:.1}", self.y(1.0) - TOP);
        let mut level = 1.0;
        let mut drawn = false;
        for (seconds, value) in values {
            drawn = true;
            if value != level && value.is_finite() {
                level = value;
                let _ = write!(path, "H{:.1}V{:.1}", 1000.0 * self.time.place(seconds), self.y(value) - TOP);
            }
        }
        if drawn {
            path.push_str("H1000");
            m.empty("path", &[("class", &class), ("d", &path), ("vector-effect", &"non-scaling-stroke")]);
        }
    }

    fn mark(&self, m: &mut Markup, point: &TimelinePoint) {
        let x = self.time.place(point.seconds);
        let class = self.class(&point.target);
        let name = self.palette.shown(&point.target);
        if let Some(lane) = self.lanes.iter().position(|kind| kind.key == point.kind) {
            let y = self.lane(lane);
            let words = format!("{name}: {} after {}", self.lanes[lane].words, Seconds(point.seconds));
            m.element("g", &[("class", &format_args!("bad {class}"))], |m| {
                m.leaf("title", &[], words);
                svg::line(m, "tally", (x, y - 6.0), (x, y + 6.0));
            });
        } else if let Some(speedup) = point.speedup {
            let (class, radius) = if point.kind == "accepted" { (format!("full {class}"), 4.5) } else { (format!("hollow {class}"), 3.0) };
            let words = format_args!("{name}: {} after {}", Times(speedup), Seconds(point.seconds));
            svg::dot(m, &class, (x, self.y(speedup)), radius, words);
        }
    }

    fn class(&self, label: &str) -> &'static str {
        self.palette.find(label).map_or(OTHERS, Palette::class)
    }
}

fn legend(m: &mut Markup, report: &Report<'_>, palette: &Palette<'_>, chart: &Chart<'_>) {
    m.element("ul", &[("class", &"legend")], |m| {
        let mut item = |class: &str, words: &str| {
            m.element("li", &[], |m| {
                m.leaf("span", &[("class", &class), ("aria-hidden", &"true")], "");
                m.text(words);
            });
        };
        if chart.points.iter().any(|p| p.model_estimate.is_some()) {
            item("key model", "whole model, estimated");
        }
        let coloured = report.result.targets.iter().enumerate().filter(|(index, _)| Palette::class(*index) != OTHERS);
        coloured.for_each(|(index, target)| item(&format!("key {}", Palette::class(index)), &middle_cut(&palette.name(target), 44)));
        if report.result.targets.iter().enumerate().any(|(index, _)| Palette::class(index) == OTHERS) {
            item("key s0", "other targets");
        }
        item("round full", "accepted");
        item("round hollow", "right, not faster");
    });
}
