//! Places in a file: byte spans, lines and columns.

use serde::Serialize;

/// A range of bytes of the parsed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
}

impl Span {
    /// The text that it covers; empty where `text` is not the text that it belongs to.
    pub fn of(self, text: &str) -> &str {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// A line and a column, both from one; the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// Line, from one.
    pub line: u32,
    /// Column, from one.
    pub column: u32,
}

/// Where each line of a text starts.
#[derive(Debug)]
pub(super) struct LineIndex {
    starts: Vec<usize>,
}

impl LineIndex {
    pub(super) fn new(text: &str) -> Self {
        let after_newline = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(i, _)| i + 1);
        Self { starts: std::iter::once(0).chain(after_newline).collect() }
    }

    /// Line of the byte at `offset`, from one.
    pub(super) fn line(&self, offset: usize) -> u32 {
        u32::try_from(self.starts.partition_point(|start| *start <= offset)).unwrap_or(u32::MAX)
    }

    /// Line and column of the byte at `offset` of `text`.
    pub(super) fn position(&self, text: &str, offset: usize) -> Position {
        let line = self.line(offset);
        let start = self.starts.get(line as usize - 1).copied().unwrap_or(0);
        let before = text.get(start..offset).map_or(offset - start, |s| s.chars().count());
        Position { line, column: u32::try_from(before + 1).unwrap_or(u32::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_from_one_and_in_characters() {
        let text = "ab\nä=1\n";
        let lines = LineIndex::new(text);
        assert_eq!(lines.position(text, 0), Position { line: 1, column: 1 });
        assert_eq!(lines.position(text, 2), Position { line: 1, column: 3 });
        assert_eq!(lines.position(text, 3), Position { line: 2, column: 1 });
        assert_eq!(lines.position(text, 5), Position { line: 2, column: 2 });
        assert_eq!(lines.position(text, text.len()), Position { line: 3, column: 1 });
    }
}
