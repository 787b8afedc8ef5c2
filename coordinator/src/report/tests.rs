pub(super) mod samples;
mod well_formed;

use kernelopt_shared::result::TuneResult;
use well_formed::{Outline, outline};

use super::{Report, TimelinePoint, render};

type Sample = (TuneResult, Vec<TimelinePoint>);

fn rendered((result, timeline): &Sample) -> String {
    render(&Report { model: "examples/token_loss.py:make", result, timeline })
}

fn read(sample: &Sample) -> Outline {
    outline(&rendered(sample)).unwrap()
}

fn count(outline: &Outline, element: &str) -> usize {
    outline.elements.iter().filter(|name| *name == element).count()
}

#[test]
fn every_case_is_well_formed_and_needs_nothing_from_outside() {
    for sample in [samples::one_target(), samples::twelve_targets(), samples::kept(), samples::no_targets()] {
        let found = read(&sample);
        for element in ["script", "link", "img", "iframe", "image", "use", "object", "foreignObject", "a"] {
            assert_eq!(count(&found, element), 0, "{element}");
        }
        let text = rendered(&sample);
        assert!(!text.contains("url(") && !text.contains("@import") && !text.contains("http:") && !text.contains("https:"));
        assert!(!text.contains("NaN") && !text.contains(">inf"), "a number that is none");
    }
}

#[test]
fn pictures_say_what_they_show_and_tables_follow() {
    let found = read(&samples::one_target());
    for id in ["parts", "speedups", "rooflines", "timeline", "verdicts"] {
        assert!(found.attributes.contains(&format!("svg.aria-labelledby={id}-title {id}-description")), "{id}");
        assert!(
            found.attributes.contains(&format!("title.id={id}-title")) && found.attributes.contains(&format!("desc.id={id}-description"))
        );
    }
    assert_eq!(count(&found, "table"), count(&found, "caption"));
    assert_eq!(count(&found, "table"), 6, "parts, targets, verdicts, untouched, budget, versions");
}

#[test]
fn headline_of_a_gain_holds_the_speedup_and_its_interval() {
    let (mut result, timeline) = samples::one_target();
    result.model.speedup = 3.9;
    result.model.ci95 = [3.7, 4.1];
    let text = rendered(&(result, timeline));
    let headline = "<h1 class=\"improved\"><span class=\"from\">1.00×</span> → <span class=\"to\">3.90×</span> <span class=\"interval\">[3.70, 4.10]</span></h1>";
    assert!(text.contains(headline));
}

#[test]
fn without_a_gain_the_headline_says_so_and_no_speedup_is_claimed() {
    let text = rendered(&samples::kept());
    assert!(text.contains("No gain: the compiler&#39;s code is kept"));
    assert!(!text.contains("class=\"to\"") && !text.contains("class=\"improved\""));
    assert_eq!(text.matches(">baseline stands</text>").count(), 2);
}

#[test]
fn every_target_stands_in_picture_and_table_with_its_colour() {
    let sample = samples::twelve_targets();
    let found = read(&sample);
    let text = rendered(&sample);
    for (index, target) in sample.0.targets.iter().enumerate() {
        let label = format!("{}/{}", target.graph, target.name);
        assert!(found.text.matches(&label).count() >= 3, "{label}: two pictures and the table");
        let row = text.split("<tr>").find(|row| row.contains(&format!("fingerprint {}", target.fingerprint))).unwrap();
        let class = if index < 6 { format!("s{}", index + 1) } else { "s0".into() };
        assert!(row.contains(&format!("swatch {class}\"")), "{label}: {class}");
    }
    assert!(found.text.contains("6 other kernels"));
}

#[test]
fn kernels_of_one_name_in_several_graphs_are_kept_apart() {
    let (mut result, timeline) = samples::twelve_targets();
    for (target, part) in result.targets.iter_mut().zip(&mut result.model.parts) {
        target.name = "cpp_fused_add_0".into();
        part.0 = target.name.clone();
    }
    for (graph, target) in result.targets.iter_mut().enumerate() {
        target.graph = graph as u32;
    }
    let text = rendered(&(result, timeline));
    let table = text.split("Time per model call by part</caption>").nth(1).and_then(|rest| rest.split("</table>").next()).unwrap();
    for graph in 0..6 {
        assert_eq!(table.matches(&format!(">{graph}/cpp_fused_add_0<")).count(), 1, "graph {graph}");
    }
}

#[test]
fn unknown_roofline_is_said_not_drawn_as_zero() {
    let text = rendered(&samples::twelve_targets());
    let picture = text.split("id=\"rooflines-title\"").nth(1).and_then(|rest| rest.split("</svg>").next()).unwrap();
    assert_eq!(picture.matches(">unknown</text>").count(), 1);
    assert_eq!(picture.matches("<line class=\"bridge").count(), 11);
}

#[test]
fn a_model_without_targets_has_no_empty_axes() {
    let found = read(&samples::no_targets());
    assert!(found.text.contains("This model has no target"));
    assert!(found.text.contains("cpp_fused_bernoulli_4") && found.text.contains("random numbers"));
    assert!(!found.attributes.iter().any(|a| a.contains("timeline-title") || a.contains("speedups-title")));
}

#[test]
fn timeline_has_a_mark_for_each_verdict_and_a_lane_for_each_kind_of_failure() {
    let sample = samples::one_target();
    let text = rendered(&sample);
    let picture = text.split("id=\"timeline-title\"").nth(1).and_then(|rest| rest.split("</section>").next()).unwrap();
    let right = sample.1.iter().filter(|p| p.speedup.is_some()).count();
    assert_eq!(picture.matches("<circle").count(), right);
    assert_eq!(picture.matches("class=\"tally\"").count(), sample.1.len() - right);
    for lane in ["wrong", "build failed", "crashed", "rejected"] {
        assert!(picture.contains(&format!(">{lane}</text>")), "{lane}");
    }
    assert!(!picture.contains(">hung</text>"));
    assert_eq!(picture.matches("<path class=\"step").count(), 2, "the target and the model");
}

#[test]
fn a_long_search_stays_a_small_file() {
    let (result, timeline) = samples::one_target();
    let many: Vec<_> = (0..40_000).map(|i| TimelinePoint { seconds: i as f64, ..timeline[i % timeline.len()].clone() }).collect();
    let text = rendered(&(result, many));
    assert!(text.len() < 2 << 20, "{} bytes", text.len());
    assert!(text.contains("One mark in 14 is drawn"));
}

#[test]
fn text_from_outside_cannot_break_out() {
    for text in ["<script>alert(1)</script>", "\"><svg onload=\"x", "'-->]]>&amp;</style></title>", "\u{0}\u{202e}\u{1b}[31m", "&#x3c;b"] {
        let sample = samples::hostile(text);
        let document = render(&Report { model: text, result: &sample.0, timeline: &sample.1 });
        let found = outline(&document).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        assert_eq!(count(&found, "script") + count(&found, "b"), 0);
        assert!(!found.attributes.iter().any(|a| a.contains(".onload=")));
        assert!(!document.contains('\u{0}') && !document.contains('\u{202e}') && !document.contains('\u{1b}'));
        if text.is_ascii() && !text.contains('\u{1b}') {
            assert!(found.text.matches(text).count() >= 8, "{text:?} is shown as it is");
        }
    }
}

#[test]
fn the_checker_sees_what_is_broken() {
    let wrap = |inner: &str| outline(&format!("<!doctype html><html>{inner}</html>"));
    assert!(wrap("<p>a &amp; b</p><br/>").is_ok());
    for broken in [
        "<p>",
        "</p>",
        "<p><b></p></b>",
        "<p a=b></p>",
        "<p a=\"1\" a=\"2\"></p>",
        "a & b",
        "&nbsp;",
        "<p id=\"x\"/><p id=\"x\"/>",
        "<a<b/>",
    ] {
        assert!(wrap(broken).is_err(), "{broken}");
    }
}
