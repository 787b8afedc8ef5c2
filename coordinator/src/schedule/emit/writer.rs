//! Indented lines.

/// Text under construction.
#[derive(Default)]
pub struct Writer {
    /// What is written so far.
    pub text: String,
    depth: usize,
}

impl Writer {
    /// One line; a line of the preprocessor keeps the indentation of its loop.
    pub fn line(&mut self, line: impl AsRef<str>) {
        self.text.extend(std::iter::repeat_n("    ", self.depth));
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// A line that opens a block.
    pub fn open(&mut self, line: impl AsRef<str>) {
        self.line(line);
        self.depth += 1;
    }

    /// Ends the innermost block.
    pub fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.line("}");
    }
}
