//! Plain text in aligned columns, for people.

/// A cell of which nothing is known.
pub const UNKNOWN: &str = "-";

/// How a column's cells stand.
#[derive(Clone, Copy)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Adds a table with a heading; nothing where there are no rows. A column that says nothing in any row is left out.
pub fn columns(text: &mut String, heading: &[&str], align: &[Align], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let says_something = |column: &usize| rows.iter().any(|row| row.get(*column).is_some_and(|cell| !cell.is_empty() && cell != UNKNOWN));
    let kept: Vec<usize> = (0..heading.len()).filter(|column| *column == 0 || says_something(column)).collect();
    let heading: Vec<String> = kept.iter().filter_map(|column| heading.get(*column)).map(|cell| (*cell).to_owned()).collect();
    let align: Vec<Align> = kept.iter().filter_map(|column| align.get(*column).copied()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| kept.iter().filter_map(|column| row.get(*column).cloned()).collect()).collect();
    let width =
        |column: usize| rows.iter().chain([&heading]).filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    text.push('\n');
    for (number, row) in std::iter::once(&heading).chain(&rows).enumerate() {
        let mut line = String::from(if number == 0 { "  " } else { "    " });
        for ((cell, width), align) in row.iter().zip(&widths).zip(&align) {
            let padding = " ".repeat(width - cell.chars().count());
            match align {
                Align::Left => line.extend([cell.as_str(), &padding]),
                Align::Right => line.extend([padding.as_str(), cell]),
            }
            // The heading starts two characters to the left of its rows; its first gap makes up for it.
            let first_of_heading = number == 0 && line.chars().count() == 2 + widths[0];
            line.push_str(if first_of_heading { "    " } else { "  " });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// Cuts in the middle: the number at the end of a kernel's name tells it from the others.
pub fn shorten(name: &str, width: usize) -> String {
    let characters: Vec<char> = name.chars().collect();
    if characters.len() <= width {
        return name.to_owned();
    }
    let tail = 12;
    let head: String = characters[..width - tail - 1].iter().collect();
    let end: String = characters[characters.len() - tail..].iter().collect();
    format!("{head}…{end}")
}

/// Cuts at the end.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width { text.to_owned() } else { text.chars().take(width - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_its_number() {
        let short = shorten(&format!("cpp_fused_{}_add_17", "x".repeat(80)), 44);
        assert_eq!(short.chars().count(), 44);
        assert!(short.ends_with("_add_17"));
    }

    #[test]
    fn columns_stand_where_characters_do_and_not_bytes() {
        let mut text = String::new();
        let row = |name: &str, time: &str| vec![name.to_owned(), time.to_owned(), "end".to_owned()];
        let long = shorten(&"é".repeat(60), 20);
        columns(
            &mut text,
            &["kernel", "µs", "note"],
            &[Align::Left, Align::Right, Align::Left],
            vec![row(&long, "1"), row("short", "12.5 µs")],
        );
        let column_of = |line: &str, word: &str| line.split_once(word).map(|(before, _)| before.chars().count());
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            [lines[0], lines[1], lines[2]].map(|line| column_of(line, if line.contains("note") { "note" } else { "end" })),
            [Some(35); 3]
        );
        assert_eq!(column_of(lines[0], "µs"), Some(31));
    }
}
