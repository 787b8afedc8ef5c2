//! An inspection as plain text: aligned columns, no colour.

use std::fmt::Write as _;

use super::row::{ArgumentShape, TargetRow};
use super::{GraphCounts, Inspection};
use crate::columns::{Align, UNKNOWN, columns, cut, shorten};

/// Widest cell of the columns that are cut, in characters. The last column is never cut.
const NAME_WIDTH: usize = 44;
const LIST_WIDTH: usize = 36;
/// Operations of a kernel that is known by its text alone.
const AUTHORS: &str = "the author's: launch only";
/// Statements that are not understood and shown; the JSON has them all.
const OPAQUE_SHOWN: usize = 20;

/// The whole text, with a newline at its end.
pub(super) fn render(inspection: &Inspection) -> String {
    let mut text = String::new();
    for graph in &inspection.graphs {
        text.push_str(&graph_line(graph));
        vendor_table(&mut text, graph);
        let here = || inspection.targets.iter().filter(|row| row.graph == graph.graph);
        kernel_table(&mut text, "targets", here().filter(|row| row.reason.is_none()));
        kernel_table(&mut text, "left alone", here().filter(|row| row.reason.is_some()));
        opaque_list(&mut text, graph);
        text.push('\n');
    }
    let searchable = inspection.targets.iter().filter(|row| row.reason.is_none()).count();
    let _ = writeln!(text, "{searchable} of {} can be searched", count(inspection.targets.len(), "generated kernel"));
    text
}

fn graph_line(graph: &GraphCounts) -> String {
    let kind = graph.kind.as_ref().map(|kind| format!(" ({kind})")).unwrap_or_default();
    format!(
        "graph {}{kind}: {}, {}, {}; {} launched {}, {}; {}, {}\n",
        graph.graph,
        count(graph.inputs, "input"),
        count(graph.outputs, "output"),
        count(graph.symbols, "size symbol"),
        count(graph.generated_kernels, "generated kernel"),
        count(graph.kernel_launches, "time"),
        count(graph.vendor_calls, "vendor call"),
        count(graph.buffers, "buffer"),
        count(graph.views, "view"),
    )
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn vendor_table(text: &mut String, graph: &GraphCounts) {
    let mut rows: Vec<(&String, &usize)> = graph.vendor.iter().collect();
    rows.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let cells = rows.into_iter().map(|(name, calls)| vec![name.clone(), calls.to_string()]).collect();
    columns(text, &["vendor call", "calls"], &[Align::Left, Align::Right], cells);
}

fn kernel_table<'a>(text: &mut String, title: &str, rows: impl Iterator<Item = &'a TargetRow>) {
    let cells = rows.map(|row| {
        let unknown = || UNKNOWN.to_owned();
        vec![
            shorten(&row.name, NAME_WIDTH),
            row.calls.map_or_else(unknown, |calls| calls.to_string()),
            row.bytes_min.map_or_else(unknown, bytes),
            if row.launch_only { AUTHORS.to_owned() } else { row.ops.as_ref().map_or_else(unknown, |ops| operations(ops)) },
            row.shapes.as_ref().map_or_else(unknown, |shapes| cut(&shapes_text(shapes), LIST_WIDTH)),
            row.reason.clone().unwrap_or_default(),
        ]
    });
    let align = [Align::Left, Align::Right, Align::Right, Align::Left, Align::Left, Align::Left];
    let last = if title == "targets" { "" } else { "why" };
    columns(text, &[title, "calls", "must move", "operations", "shapes", last], &align, cells.collect());
}

fn opaque_list(text: &mut String, graph: &GraphCounts) {
    let cells: Vec<Vec<String>> = graph
        .opaque
        .iter()
        .take(OPAQUE_SHOWN)
        .map(|statement| vec![format!("line {}", statement.line), cut(statement.text.lines().next().unwrap_or_default(), 2 * LIST_WIDTH)])
        .collect();
    columns(text, &["not understood", "statement"], &[Align::Left, Align::Left], cells);
    if graph.opaque.len() > OPAQUE_SHOWN {
        let _ = writeln!(text, "    and {} more", graph.opaque.len() - OPAQUE_SHOWN);
    }
}

/// A kernel that computes nothing moves elements to other places.
fn operations(ops: &[String]) -> String {
    if ops.is_empty() { "copy".into() } else { cut(&ops.join(" "), LIST_WIDTH) }
}

/// `float32[256, 256] x3, float32[256]`: equal shapes once, in order of first appearance.
fn shapes_text(shapes: &[ArgumentShape]) -> String {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for shape in shapes {
        let size: Vec<&str> = shape.size.iter().map(|extent| extent.0.as_str()).collect();
        let text = format!("{}[{}]", shape.dtype.as_deref().unwrap_or("?"), size.join(", "));
        match counted.iter_mut().find(|(known, _)| *known == text) {
            Some((_, number)) => *number += 1,
            None => counted.push((text, 1)),
        }
    }
    let items: Vec<String> =
        counted.into_iter().map(|(text, number)| if number > 1 { format!("{text} x{number}") } else { text }).collect();
    items.join(", ")
}

/// Bytes in powers of a thousand, as bandwidths are given: `512 B`, `1.31 MB`.
fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1e3;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_humanised() {
        let texts: Vec<String> = [0, 999, 1000, 9_994, 99_949, 524_288, 999_499, 999_500, 32_768_000_000].into_iter().map(bytes).collect();
        assert_eq!(texts, ["0 B", "999 B", "1.00 kB", "9.99 kB", "99.9 kB", "524 kB", "999 kB", "1.00 MB", "32.8 GB"]);
    }
}
