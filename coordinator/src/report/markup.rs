//! HTML and SVG under construction, escaped by construction.
//!
//! Names of elements and attributes are `'static`, so only this crate's code chooses them; every value passes through the
//! escape. There is no way to add a run-time string unescaped. What comes out is well-formed XML as well as HTML.

use std::fmt::{self, Display, Write};

/// Attributes of one element.
pub(super) type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

/// A document or fragment under construction.
#[derive(Default)]
pub(super) struct Markup {
    out: String,
}

impl Markup {
    /// Adds `<name ...>`, what `inner` adds, and `</name>`.
    pub(super) fn element(&mut self, name: &'static str, attributes: Attributes<'_>, inner: impl FnOnce(&mut Self)) {
        self.tag(name, attributes, ">");
        inner(self);
        self.out.push_str("</");
        self.out.push_str(name);
        self.out.push('>');
    }

    /// Adds `<name .../>`.
    pub(super) fn empty(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.tag(name, attributes, "/>");
    }

    /// Adds an element that holds only text.
    pub(super) fn leaf(&mut self, name: &'static str, attributes: Attributes<'_>, text: impl Display) {
        self.element(name, attributes, |m| m.text(text));
    }

    /// Adds text.
    pub(super) fn text(&mut self, text: impl Display) {
        put_escaped(&mut self.out, text);
    }

    /// Adds text of this crate as it is: the style sheet, the document type.
    pub(super) fn fixed(&mut self, text: &'static str) {
        self.out.push_str(text);
    }

    /// The finished text.
    pub(super) fn finish(self) -> String {
        self.out
    }

    fn tag(&mut self, name: &'static str, attributes: Attributes<'_>, end: &'static str) {
        self.out.push('<');
        self.out.push_str(name);
        for (key, value) in attributes {
            self.out.push(' ');
            self.out.push_str(key);
            self.out.push_str("=\"");
            put_escaped(&mut self.out, value);
            self.out.push('"');
        }
        self.out.push_str(end);
    }
}

fn put_escaped(out: &mut String, value: impl Display) {
    // Writing to a string does not fail; a `Display` that does would only cut its own text short.
    let _ = write!(Escaping(out), "{value}");
}

/// Escapes all that goes through it, for text and for attribute values in double quotes.
struct Escaping<'a>(&'a mut String);

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // XML 1.0 has no place for these. Directional marks could show a name as another one.
                c if is_unprintable(c) => self.0.push(char::REPLACEMENT_CHARACTER),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

fn is_unprintable(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_wherever_they_stand() {
        let mut m = Markup::default();
        let hostile = "</td><script>alert('\"&')</script>";
        m.leaf("td", &[("title", &hostile)], hostile);
        let text = m.finish();
        let safe = "&lt;/td&gt;&lt;script&gt;alert(&#39;&quot;&amp;&#39;)&lt;/script&gt;";
        assert_eq!(text, format!("<td title=\"{safe}\">{safe}</td>"));
    }

    #[test]
    fn control_and_directional_characters_are_replaced() {
        let mut m = Markup::default();
        m.text("a\u{0}b\u{202e}c\u{7}\td");
        assert_eq!(m.finish(), "a\u{fffd}b\u{fffd}c\u{fffd}\td");
    }
}
