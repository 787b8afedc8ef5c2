//! Sentences for people: bounded, so that no message fails for a long one.

/// Length beyond which a sentence is cut.
const LONGEST_BYTES: usize = 16 << 10;

/// The sentence, cut where it is too long.
pub(super) fn cut(text: &str) -> String {
    if text.len() <= LONGEST_BYTES { text.to_owned() } else { format!("{}...", &text[..text.floor_char_boundary(LONGEST_BYTES)]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = "ü".repeat(LONGEST_BYTES);
        let cut = cut(&long);
        assert!(cut.ends_with("ü...") && cut.len() <= LONGEST_BYTES + 3);
    }
}
