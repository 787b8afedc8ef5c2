//! Caps on untrusted text, checked before the Python parser sees it.
//!
//! The parser recurses over brackets, operators, lambdas and blocks, and so does everything that walks or frees its tree.
//! One linear pass over the text bounds them all: it understands strings and comments, and counts, for the innermost
//! expression and all around it, every token that could deepen the tree. A comma ends an element (lists are flat),
//! except for keywords, since `lambda a,: lambda a,: ...` nests across commas. Text that the pass and the parser could
//! understand differently (unbalanced brackets, f-strings with quotes) is refused, so that nothing hides in a string.

use super::error::{ParseError, ParseErrorKind};
use super::text::LineIndex;

/// Greatest size, in bytes. The greatest captured file has 0.26 MB.
pub const MAX_BYTES: usize = 16 << 20;
/// Most tokens outside strings and comments; bounds the memory of the tree.
pub const MAX_TOKENS: usize = 1_000_000;
/// Deepest brackets.
pub const MAX_BRACKETS: usize = 64;
/// Most tokens that may nest in one another; see the module's text.
pub const MAX_NESTING: usize = 2_000;
/// Most white space in front of a line, in bytes: bounds the depth of blocks.
pub const MAX_INDENT: usize = 400;
/// Greatest size of an f-string, in bytes.
pub const MAX_FORMAT_BYTES: usize = 2_000;

/// Checks `text` against every limit of this module.
pub(super) fn check(text: &str) -> Result<(), ParseError> {
    Scanner { bytes: text.as_bytes(), text, at: 0, tokens: 0, nesting: 0, frames: vec![Frame::default()] }.run()
}

/// One open bracket, or the file itself.
#[derive(Default)]
struct Frame {
    /// Where it opened, and the byte that closes it.
    opened: Option<(usize, u8)>,
    /// Tokens since the last comma.
    element: usize,
    /// Keywords since it opened.
    keywords: usize,
}

struct Scanner<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    tokens: usize,
    /// Sum over all frames of `element` and `keywords`.
    nesting: usize,
    frames: Vec<Frame>,
}

/// Python's keywords, hard and soft, except the three that are values.
const KEYWORDS: [&[u8]; 35] = [
    b"and",
    b"as",
    b"assert",
    b"async",
    b"await",
    b"break",
    b"case",
    b"class",
    b"continue",
    b"def",
    b"del",
    b"elif",
    b"else",
    b"except",
    b"finally",
    b"for",
    b"from",
    b"global",
    b"if",
    b"import",
    b"in",
    b"is",
    b"lambda",
    b"match",
    b"nonlocal",
    b"not",
    b"or",
    b"pass",
    b"raise",
    b"return",
    b"try",
    b"type",
    b"while",
    b"with",
    b"yield",
];

impl Scanner<'_> {
    fn run(mut self) -> Result<(), ParseError> {
        self.limit("bytes", self.bytes.len(), MAX_BYTES, 0)?;
        self.indent()?;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\n' | b'\r' => self.newline()?,
                b' ' | b'\t' | 0x0c => self.at += 1,
                b'#' => self.skip_comment(),
                b'\\' => self.continuation()?,
                b'"' | b'\'' => self.string(false)?,
                b'(' | b'[' | b'{' => self.open(byte)?,
                b')' | b']' | b'}' => self.close(byte)?,
                b',' => self.end_element(),
                b'0'..=b'9' => self.number()?,
                b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.word()?,
                _ => self.token(false, 1)?,
            }
        }
        match self.frames.last().and_then(|frame| frame.opened) {
            None => Ok(()),
            Some((opened, _)) => self.unbalanced(self.bytes.len(), "the end of the file".into(), Some(opened)),
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn fail<T>(&self, offset: usize, kind: ParseErrorKind) -> Result<T, ParseError> {
        Err(ParseError { at: LineIndex::new(self.text).position(self.text, offset), kind })
    }

    fn limit(&self, what: &'static str, found: usize, limit: usize, offset: usize) -> Result<(), ParseError> {
        if found > limit { self.fail(offset, ParseErrorKind::TooMuch { what, found, limit }) } else { Ok(()) }
    }

    /// Counts one token of `length` bytes and steps over it.
    fn token(&mut self, keyword: bool, length: usize) -> Result<(), ParseError> {
        let start = self.at;
        self.at += length;
        self.tokens += 1;
        self.nesting += 1;
        if let Some(frame) = self.frames.last_mut() {
            if keyword { frame.keywords += 1 } else { frame.element += 1 }
        }
        self.limit("tokens", self.tokens, MAX_TOKENS, start)?;
        self.limit("nested tokens", self.nesting, MAX_NESTING, start)
    }

    fn end_element(&mut self) {
        self.at += 1;
        self.tokens += 1;
        if let Some(frame) = self.frames.last_mut() {
            self.nesting -= std::mem::take(&mut frame.element);
        }
    }

    fn newline(&mut self) -> Result<(), ParseError> {
        self.at += if self.peek(0) == Some(b'\r') && self.peek(1) == Some(b'\n') { 2 } else { 1 };
        if let [file] = self.frames.as_mut_slice() {
            file.element = 0;
            file.keywords = 0;
            self.nesting = 0;
        }
        self.indent()
    }

    /// White space at the start of a line, inside brackets too: the parser may take up blocks there when it recovers.
    fn indent(&mut self) -> Result<(), ParseError> {
        let start = self.at;
        while matches!(self.peek(0), Some(b' ' | b'\t' | 0x0c)) {
            self.at += 1;
        }
        self.limit("bytes of white space before a statement", self.at - start, MAX_INDENT, start)
    }

    /// A backslash: the line goes on after the newline, and so does its white space.
    fn continuation(&mut self) -> Result<(), ParseError> {
        self.token(false, 1)?;
        if self.peek(0) == Some(b'\r') && self.peek(1) == Some(b'\n') {
            self.at += 2;
        } else if matches!(self.peek(0), Some(b'\n' | b'\r')) {
            self.at += 1;
        }
        Ok(())
    }

    fn skip_comment(&mut self) {
        while self.peek(0).is_some_and(|byte| byte != b'\n' && byte != b'\r') {
            self.at += 1;
        }
    }

    fn open(&mut self, byte: u8) -> Result<(), ParseError> {
        let opened = self.at;
        self.token(false, 1)?;
        let closer = match byte {
            b'(' => b')',
            b'[' => b']',
            _ => b'}',
        };
        self.frames.push(Frame { opened: Some((opened, closer)), ..Frame::default() });
        self.limit("open brackets", self.frames.len() - 1, MAX_BRACKETS, opened)
    }

    fn close(&mut self, byte: u8) -> Result<(), ParseError> {
        let opened = self.frames.last().and_then(|frame| frame.opened);
        if opened.is_none_or(|(_, closer)| closer != byte) {
            return self.unbalanced(self.at, format!("'{}'", byte as char), opened.map(|(offset, _)| offset));
        }
        if let Some(frame) = self.frames.pop() {
            self.nesting -= frame.element + frame.keywords;
        }
        self.token(false, 1)
    }

    fn unbalanced(&self, offset: usize, found: String, opened: Option<usize>) -> Result<(), ParseError> {
        let expected = match opened {
            None => "any open bracket".into(),
            Some(opened) => format!("'{}' of line {}", self.bytes[opened] as char, LineIndex::new(self.text).line(opened)),
        };
        self.fail(offset, ParseErrorKind::Bracket { found, expected })
    }

    fn run_of(&self, belongs: impl Fn(u8) -> bool) -> usize {
        self.bytes[self.at..].iter().take_while(|byte| belongs(**byte)).count()
    }

    /// A number. A keyword may follow without a space (`1if`, `1or`), so letters beyond those of numbers count as one.
    fn number(&mut self) -> Result<(), ParseError> {
        let length = self.run_of(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let glued = self.bytes[self.at..self.at + length]
            .iter()
            .any(|b| b.is_ascii_alphabetic() && !b"xXoObBeEjJ".contains(b) && !b.is_ascii_hexdigit());
        self.token(glued, length)
    }

    fn word(&mut self) -> Result<(), ParseError> {
        let length = self.run_of(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80);
        let word = &self.bytes[self.at..self.at + length];
        let quoted = matches!(self.peek(length), Some(b'"' | b'\''));
        match word.to_ascii_lowercase().as_slice() {
            b"r" | b"u" | b"b" | b"br" | b"rb" if quoted => {
                self.at += length;
                self.string(false)
            }
            b"f" | b"t" | b"fr" | b"rf" | b"tr" | b"rt" if quoted => {
                self.at += length;
                self.string(true)
            }
            _ => {
                let keyword = KEYWORDS.contains(&word);
                self.token(keyword, length)
            }
        }
    }

    /// A string from its opening quote. Raw or not, a backslash keeps the character after it from ending the string.
    fn string(&mut self, format: bool) -> Result<(), ParseError> {
        let start = self.at;
        let quote = self.bytes[start];
        let triple = self.bytes[start..].starts_with(&[quote; 3]);
        let width = if triple { 3 } else { 1 };
        let mut at = start + width;
        loop {
            match self.bytes.get(at) {
                None => return self.fail(start, ParseErrorKind::OpenString),
                Some(b'\\') if self.bytes[at + 1..].starts_with(b"\r\n") => at += 3,
                Some(b'\\') => at += 2,
                Some(b'\n' | b'\r') if !triple => return self.fail(start, ParseErrorKind::OpenString),
                Some(byte) if *byte == quote && (!triple || self.bytes[at..].starts_with(&[quote; 3])) => break,
                Some(_) => at += 1,
            }
        }
        if format {
            self.format_string(start, &self.bytes[start + width..at])?;
        }
        self.token(false, at + width - start)
    }

    /// An f-string whose end does not depend on what its braces hold, and which nests little.
    fn format_string(&self, start: usize, content: &[u8]) -> Result<(), ParseError> {
        self.limit("bytes in an f-string", content.len(), MAX_FORMAT_BYTES, start)?;
        let odd = content.iter().find_map(|byte| match byte {
            b'\'' | b'"' => Some("quotes inside"),
            b'\\' => Some("a backslash"),
            b'#' => Some("a comment sign"),
            _ => None,
        });
        match odd {
            Some(found) => self.fail(start, ParseErrorKind::FormatString { found }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Option<ParseErrorKind> {
        check(text).err().map(|e| e.kind)
    }

    fn too_much(text: &str) -> Option<&'static str> {
        match kind(text) {
            Some(ParseErrorKind::TooMuch { what, .. }) => Some(what),
            _ => None,
        }
    }

    #[test]
    fn ordinary_text_passes() {
        let text = "x = [1, 'a', r'''b\n((((\n'''] # ((((\nif x:\n    y = f'{x} is {{not}} {x:>{3}}'\nz = 1.5e-3 + 0x1F\n";
        assert_eq!(check(text), Ok(()));
        assert_eq!(check(&"value_1, ".repeat(100_000)), Ok(()));
    }

    #[test]
    fn everything_that_nests_is_capped() {
        assert_eq!(too_much(&"(".repeat(65)), Some("open brackets"));
        for chain in ["a+", "a.", "-", "not ", "lambda:", "lambda a,:", "await ", "a[0]", "a()", "a if b else ", "**", "1if 1else ", "x x "]
        {
            assert_eq!(too_much(&format!("v = {}", chain.repeat(2_001))), Some("nested tokens"), "{chain}");
        }
        assert_eq!(too_much(&"with a, b: ".repeat(2_001)), Some("nested tokens"));
        assert_eq!(too_much(&"a; if b: ".repeat(2_001)), Some("nested tokens"));
        let split = format!("{}{}", "(a+\n".repeat(60), "b+\n".repeat(2_000));
        assert_eq!(too_much(&split), Some("nested tokens"));
        assert_eq!(too_much(&format!("{}x", " ".repeat(401))), Some("bytes of white space before a statement"));
        assert_eq!(too_much(&format!("(\n{}x)", "\t".repeat(401))), Some("bytes of white space before a statement"));
        assert_eq!(too_much(&"a,".repeat(500_001)), Some("tokens"));
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        for text in ["(]", ")", "(", "x = [(", "'''", "'a\nb'", "f'{\"a\"}'", "f'\\{a}'", "f'{a#}'", "\"a\\"] {
            assert!(check(text).is_err(), "{text}");
        }
    }

    #[test]
    fn errors_name_the_place() {
        let error = check("x = 1\ny = (2\n").unwrap_err();
        assert_eq!(error.to_string(), "line 3, column 1: the end of the file does not fit '(' of line 2");
        assert_eq!(check("a = ']]'\nb = ]").unwrap_err().to_string(), "line 2, column 5: ']' does not fit any open bracket");
    }
}
