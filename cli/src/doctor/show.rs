//! The list as people see it.

use std::fmt::Write;
use std::io::IsTerminal;

use super::check::{Check, Status};

/// How the list is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// Marks instead of words.
    pub(super) symbols: bool,
    /// Terminal colours.
    pub(super) colours: bool,
}

impl Style {
    /// What stdout can show: marks where the locale has them, colours on a terminal unless `NO_COLOR` is set.
    pub(super) fn of_stdout() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default().to_lowercase();
        let symbols = locale.contains("utf-8") || locale.contains("utf8");
        Self { symbols, colours: std::io::stdout().is_terminal() && set("NO_COLOR").is_none() }
    }

    fn mark(self, status: Status) -> String {
        let (symbol, word, colour) = match status {
            Status::Ok => ("✓", "ok     ", 32),
            Status::Warn => ("!", "warn   ", 33),
            Status::Missing => ("✗", "MISSING", 31),
        };
        let mark = if self.symbols { symbol } else { word };
        if self.colours { format!("\u{1b}[{colour}m{mark}\u{1b}[0m") } else { mark.to_owned() }
    }
}

/// One line a check, its remedy below it, and the sum.
pub(super) fn list(checks: &[Check], style: Style) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let indent = if style.symbols { 3 } else { 9 } + width;
    let mut out = String::new();
    for check in checks {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{} {:width$}  {}", style.mark(check.status), check.name, check.detail);
        if let Some(remedy) = &check.remedy {
            let _ = writeln!(out, "{:indent$}  {} {remedy}", "", if style.symbols { "→" } else { "->" });
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let _ = writeln!(out, "\n{}", sum(count(Status::Missing), count(Status::Warn)));
    out
}

fn sum(missing: usize, warnings: usize) -> String {
    let counted = |count: usize, noun: &str| if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") };
    match (missing, warnings) {
        (0, 0) => "Ready.".into(),
        (0, warnings) => format!("Ready, with {}.", counted(warnings, "warning")),
        (missing, _) => format!("Not ready: {} missing.", counted(missing, "necessary thing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Check> {
        vec![Check::ok("compiler", "g++ 12"), Check::warn("load", "1.9", "Wait."), Check::missing("torch", "not installed", "Install it.")]
    }

    #[test]
    fn marks_where_the_locale_has_them() {
        let text = list(&some(), Style { symbols: true, colours: false });
        let expected = "\
✓ compiler  g++ 12
! load      1.9
             → Wait.
✗ torch     not installed
             → Install it.

Not ready: 1 necessary thing missing.
";
        assert_eq!(text, expected);
    }

    #[test]
    fn words_where_it_has_not() {
        let text = list(&some()[..2], Style { symbols: false, colours: false });
        let expected = "\
ok      compiler  g++ 12
warn    load      1.9
                   -> Wait.

Ready, with 1 warning.
";
        assert_eq!(text, expected);
        assert!(text.is_ascii());
    }

    #[test]
    fn colours_change_nothing_but_the_marks() {
        let plain = list(&some(), Style { symbols: true, colours: false });
        let coloured = list(&some(), Style { symbols: true, colours: true });
        let stripped: String =
            coloured.replace("\u{1b}[32m", "").replace("\u{1b}[33m", "").replace("\u{1b}[31m", "").replace("\u{1b}[0m", "");
        assert_eq!(stripped, plain);
    }
}
