//! The page: head line, facts, pictures, tables.

use std::fmt::Display;

use kernelopt_shared::result::{ModelResult, ModelVerdict, TuneResult};

use super::format::{Bracket, Micros, Seconds, Times, counted};
use super::markup::Markup;
use super::palette::Palette;
use super::{Report, parts, speedups, tables, timeline, verdicts};

/// Nothing is fetched and nothing runs; the browser holds the page to it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The whole document.
pub(super) fn document(report: &Report<'_>) -> String {
    let mut m = Markup::default();
    m.fixed("<!doctype html>\n");
    m.element("html", &[("lang", &"en")], |m| {
        head(m, report);
        m.element("body", &[], |m| {
            m.element("header", &[], |m| headline(m, report));
            m.element("main", &[], |m| body(m, report));
            m.element("footer", &[], |m| footer(m, report.result));
        });
    });
    m.fixed("\n");
    m.finish()
}

fn head(m: &mut Markup, report: &Report<'_>) {
    m.element("head", &[], |m| {
        m.empty("meta", &[("charset", &"utf-8")]);
        m.empty("meta", &[("http-equiv", &"Content-Security-Policy"), ("content", &POLICY)]);
        m.empty("meta", &[("name", &"viewport"), ("content", &"width=device-width, initial-scale=1")]);
        m.empty("meta", &[("name", &"color-scheme"), ("content", &"light dark")]);
        m.leaf("title", &[], format_args!("{} · {}", report.model, summary(&report.result.model)));
        m.element("style", &[], |m| m.fixed(include_str!("style.css")));
    });
}

fn summary(model: &ModelResult) -> String {
    match model.verdict {
        ModelVerdict::Improved => format!("{} faster", Times(model.speedup)),
        ModelVerdict::Kept => "no gain".to_owned(),
    }
}

fn headline(m: &mut Markup, report: &Report<'_>) {
    let model = &report.result.model;
    m.element("p", &[("class", &"eyebrow")], |m| {
        m.text("KernelOPT ");
        m.leaf("span", &[("class", &"code")], report.model);
    });
    match model.verdict {
        ModelVerdict::Improved => m.element("h1", &[("class", &"improved")], |m| {
            m.leaf("span", &[("class", &"from")], Times(1.0));
            m.text(" → ");
            m.leaf("span", &[("class", &"to")], Times(model.speedup));
            m.text(" ");
            m.leaf("span", &[("class", &"interval")], Bracket(model.ci95));
        }),
        ModelVerdict::Kept => m.leaf("h1", &[("class", &"kept")], "No gain: the compiler's code is kept"),
    }
    m.leaf("p", &[("class", &"reason")], &model.reason);
    m.leaf("p", &[("class", &"device")], &report.result.device);
    facts(m, report.result);
}

fn facts(m: &mut Markup, result: &TuneResult) {
    let model = &result.model;
    m.element("dl", &[("class", &"facts")], |m| {
        if model.verdict == ModelVerdict::Improved {
            fact(
                m,
                "One model call",
                format_args!("{} → {}", Micros(model.baseline_us), Micros(model.optimized_us)),
                "median, measured in turns",
            );
        } else {
            fact(m, "One model call", Micros(model.baseline_us), "the compiler's code");
        }
        let error = format!("{} before, against float64", Error(model.baseline_max_error));
        fact(m, "Greatest output error", Error(model.max_error), error);
        fact(m, "Outputs compared on", counted(model.inputs_checked.into(), "input set"), "whole model");
        let won = result.targets.iter().filter(|t| t.winner.is_some()).count();
        fact(
            m,
            "Kernels improved",
            format_args!("{won} of {}", result.targets.len()),
            format_args!("{} left alone", result.untouched.len()),
        );
        fact(m, "Candidates judged", result.budget.candidates, format_args!("in {}", Seconds(result.budget.seconds)));
    });
}

fn fact(m: &mut Markup, term: &str, value: impl Display, more: impl Display) {
    m.element("div", &[], |m| {
        m.leaf("dt", &[], term);
        m.leaf("dd", &[("class", &"value")], value);
        m.leaf("dd", &[("class", &"more")], more);
    });
}

/// A relative error: `2.4e-7`.
struct Error(f64);

impl Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            error if !error.is_finite() => f.write_str("unknown"),
            0.0 => f.write_str("0"),
            error => write!(f, "{error:.1e}"),
        }
    }
}

fn body(m: &mut Markup, report: &Report<'_>) {
    let result = report.result;
    let palette = Palette::of(result);
    figure(
        m,
        "Model time before and after",
        "One call of the model. Before: each part as measured inside the call. After: divided by its kernel's confirmed speed-up. Totals are measured.",
        |m| {
            parts::draw(m, report, &palette);
        },
        |m| parts::table(m, report, &palette),
    );
    if result.targets.is_empty() {
        m.leaf(
            "p",
            &[("class", &"absent card")],
            "This model has no target: no generated kernel could be searched. The reasons are below.",
        );
    } else {
        figure(
            m,
            "Each target",
            "Speed-up over the compiler's kernel with its 95% interval; and the least time that its bytes need, as a share of its time.",
            |m| {
                speedups::draw(m, report, &palette);
            },
            |_| (),
        );
        figure(
            m,
            "The search over time",
            "Lines: the best speed-up so far of what was measured in full. Marks: one for each verdict.",
            |m| {
                timeline::draw(m, report, &palette);
            },
            |_| (),
        );
        figure(
            m,
            "Verdicts by kind",
            "Every candidate gets one; only the accepted can be used.",
            |m| {
                verdicts::draw(m, result);
            },
            |m| tables::verdict_kinds(m, result),
        );
        section(m, "Targets", |m| tables::targets(m, result, &palette));
    }
    if !result.untouched.is_empty() {
        section(m, "Left as they are", |m| tables::untouched(m, &result.untouched));
    }
    m.element("div", &[("class", &"columns")], |m| {
        section(m, "Budget", |m| tables::budget(m, &result.budget));
        section(m, "Versions", |m| tables::versions(m, result));
    });
}

/// A picture with its words, which stay on one sheet of paper, and the figures below it.
fn figure(m: &mut Markup, title: &str, caption: &str, picture: impl FnOnce(&mut Markup), below: impl FnOnce(&mut Markup)) {
    m.element("section", &[("class", &"card")], |m| {
        m.element("div", &[("class", &"picture")], |m| {
            m.leaf("h2", &[], title);
            m.leaf("p", &[("class", &"caption")], caption);
            picture(m);
        });
        below(m);
    });
}

fn section(m: &mut Markup, title: &str, body: impl FnOnce(&mut Markup)) {
    m.element("section", &[("class", &"card")], |m| {
        m.leaf("h2", &[], title);
        body(m);
    });
}

fn footer(m: &mut Markup, result: &TuneResult) {
    m.element("p", &[], |m| {
        m.text("Speed-ups are medians of paired, interleaved measurements with 95% bootstrap intervals, on this device only. ");
        m.leaf("span", &[("class", &"code")], "kernelopt verify OUT");
        m.text(" measures the claim again in fresh processes.");
    });
    m.element("p", &[("class", &"faint")], |m| {
        m.text("Bundle ");
        m.leaf("span", &[("class", &"code")], result.bundle);
    });
}
