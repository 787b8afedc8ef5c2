//! What all pictures share: the frame with its words, places in percent, row labels.

use std::fmt::{self, Display};

use super::axis::Axis;
use super::format::middle_cut;
use super::markup::Markup;

/// Characters of a name that fit beside a picture, on a phone too.
const NAME_CHARACTERS: usize = 28;

/// A fraction of a picture's width.
#[derive(Clone, Copy)]
pub(super) struct Across(pub(super) f64);

impl Display for Across {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}%", self.0 * 100.0)
    }
}

/// Pixels from a picture's top, or a height.
#[derive(Clone, Copy)]
pub(super) struct Down(pub(super) f64);

impl Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}", self.0)
    }
}

/// Name and words of a picture.
pub(super) struct Frame<'a> {
    /// Identifier, unique in the document.
    pub(super) id: &'static str,
    /// Class of the room that labels take left and right.
    pub(super) class: &'static str,
    /// What the picture is.
    pub(super) title: &'a str,
    /// What it shows, for who cannot see it.
    pub(super) description: &'a str,
    /// Pixels.
    pub(super) height: f64,
}

impl Frame<'_> {
    /// Draws the picture: as wide as its place, `height` pixels high.
    pub(super) fn draw(&self, m: &mut Markup, body: impl FnOnce(&mut Markup)) {
        let (title, description) = (format!("{}-title", self.id), format!("{}-description", self.id));
        let words = format!("{title} {description}");
        m.element("div", &[("class", &format_args!("plot {}", self.class))], |m| {
            m.element("svg", &[("role", &"img"), ("aria-labelledby", &words), ("width", &"100%"), ("height", &Down(self.height))], |m| {
                m.leaf("title", &[("id", &title)], self.title);
                m.leaf("desc", &[("id", &description)], self.description);
                body(m);
            });
        });
    }
}

/// Text at a place.
pub(super) fn text(m: &mut Markup, class: &'static str, x: f64, y: f64, words: impl Display) {
    m.leaf("text", &[("class", &class), ("x", &Across(x)), ("y", &Down(y))], words);
}

/// A straight line.
pub(super) fn line(m: &mut Markup, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    m.empty("line", &[("class", &class), ("x1", &Across(x1)), ("y1", &Down(y1)), ("x2", &Across(x2)), ("y2", &Down(y2))]);
}

/// A rectangle from its upper left corner.
pub(super) fn rectangle(m: &mut Markup, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
    m.empty(
        "rect",
        &[("class", &class), ("x", &Across(x)), ("y", &Down(y)), ("width", &Across(width.max(0.0))), ("height", &Down(height))],
    );
}

/// A dot; `words` come up when the pointer rests on it.
pub(super) fn dot(m: &mut Markup, class: &str, (x, y): (f64, f64), radius: f64, words: impl Display) {
    m.element("circle", &[("class", &class), ("cx", &Across(x)), ("cy", &Down(y)), ("r", &Down(radius))], |m| m.leaf("title", &[], words));
}

/// The name of a row: left of the picture, on a phone above the row.
pub(super) fn row_name(m: &mut Markup, y: f64, name: &str) {
    m.element("text", &[("class", &"row-name"), ("x", &Across(0.0)), ("y", &Down(y + 4.0))], |m| {
        m.leaf("title", &[], name);
        m.text(middle_cut(name, NAME_CHARACTERS));
    });
}

/// The figure of a row: right of the picture, on a phone above the row.
pub(super) fn row_figure(m: &mut Markup, y: f64, words: impl Display) {
    text(m, "row-figure", 1.0, y + 4.0, words);
}

/// Vertical grid lines from `top` to `bottom` with their values below.
pub(super) fn grid<T: Display>(m: &mut Markup, axis: &Axis, ticks: &[f64], (top, bottom): (f64, f64), words: impl Fn(f64) -> T) {
    for tick in ticks {
        let x = axis.place(*tick);
        line(m, "grid", (x, top), (x, bottom));
        text(m, "tick", x, bottom + 16.0, words(*tick));
    }
}
