//! Indented lines of Python, some of which are known only after those that follow them.

/// Text under construction.
#[derive(Default)]
pub struct Writer {
    lines: Vec<(usize, String)>,
    depth: usize,
}

/// A place between lines, into which lines can go later.
#[derive(Clone, Copy)]
pub struct Mark {
    at: usize,
    depth: usize,
}

impl Writer {
    /// One line.
    pub fn line(&mut self, line: impl Into<String>) {
        self.lines.push((self.depth, line.into()));
    }

    /// A line that opens a block.
    pub fn open(&mut self, line: impl Into<String>) {
        self.line(line);
        self.depth += 1;
    }

    /// Ends the innermost block.
    pub fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Here.
    pub fn mark(&self) -> Mark {
        Mark { at: self.lines.len(), depth: self.depth }
    }

    /// Lines since `mark`.
    pub fn since(&self, mark: Mark) -> Vec<String> {
        self.lines[mark.at..].iter().map(|(_, line)| line.clone()).collect()
    }

    /// Writes another line in place of the one behind `mark`.
    pub fn replace(&mut self, mark: Mark, line: impl Into<String>) {
        if let Some((_, old)) = self.lines.get_mut(mark.at) {
            *old = line.into();
        }
    }

    /// Puts lines where `mark` was taken. Later marks no longer hold.
    pub fn insert(&mut self, mark: Mark, lines: Vec<String>) {
        self.lines.splice(mark.at..mark.at, lines.into_iter().map(|line| (mark.depth, line)));
    }

    /// All of it.
    pub fn text(&self) -> String {
        self.lines.iter().map(|(depth, line)| format!("{}{line}\n", "    ".repeat(if line.is_empty() { 0 } else { *depth }))).collect()
    }
}
