//! Preprocessing tokens of C++17, as far as screening needs them.

use std::borrow::Cow;

use super::screen::Refusal;

/// A token and the line that it starts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub kind: Kind,
    pub text: Cow<'a, str>,
    pub line: u32,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An identifier or keyword.
    Name,
    /// A preprocessing number.
    Number,
    /// The inside of a string literal.
    Text,
    /// The inside of a character literal.
    Character,
    /// A header's name with its brackets or quotes, after `#include` only.
    Header,
    /// `#` or `%:` that begins a directive.
    Hash,
    /// `##` or `%:%:`.
    Paste,
    /// Any other character.
    Other,
    /// The end of a logical line.
    Newline,
}

/// Reads a source character by character, with line splices taken out.
pub(super) struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: u32,
    tokens: Vec<Token<'a>>,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(source: &'a str) -> Self {
        let mut lexer = Self { source, at: 0, line: 1, tokens: Vec::new() };
        lexer.skip_splices();
        lexer
    }

    pub(super) fn tokens(mut self) -> Result<Vec<Token<'a>>, Refusal> {
        self.refuse_trigraphs()?;
        while let Some(c) = self.peek() {
            self.token(c)?;
        }
        Ok(self.tokens)
    }

    fn token(&mut self, c: char) -> Result<(), Refusal> {
        let line = self.line;
        match c {
            '\0' => self.refuse(line, "a zero byte"),
            // Splices are gone, so this could only spell a name in a way that hides it (`\u0061sm`).
            '\\' => self.refuse(line, "a backslash outside of a literal"),
            '\n' => {
                self.bump();
                self.push(Kind::Newline, "\n".into(), line);
                Ok(())
            }
            '/' if self.second() == Some('/') => {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.bump();
                }
                Ok(())
            }
            '/' if self.second() == Some('*') => self.block_comment(),
            '<' | '"' if self.after_include() => self.header(if c == '<' { '>' } else { '"' }),
            '"' => self.literal('"', Kind::Text, "string literal"),
            '\'' => self.literal('\'', Kind::Character, "character literal"),
            '#' | '%' => {
                self.hash();
                Ok(())
            }
            c if c.is_ascii_digit() || c == '.' && self.second().is_some_and(|c| c.is_ascii_digit()) => {
                self.number();
                Ok(())
            }
            c if starts_name(c) => self.name(),
            c => {
                self.bump();
                if !c.is_whitespace() {
                    self.push(Kind::Other, c.to_string().into(), line);
                }
                Ok(())
            }
        }
    }

    fn refuse<T>(&self, line: u32, rule: &str) -> Result<T, Refusal> {
        Err(Refusal { line, rule: rule.into() })
    }

    fn push(&mut self, kind: Kind, text: Cow<'a, str>, line: u32) {
        self.tokens.push(Token { kind, text, line });
    }

    fn peek(&self) -> Option<char> {
        self.source[self.at..].chars().next()
    }

    /// The character after the next one, splices taken out.
    fn second(&self) -> Option<char> {
        let mut ahead = Lexer { source: self.source, at: self.at, line: self.line, tokens: Vec::new() };
        ahead.bump();
        ahead.peek()
    }

    /// Moves past one character, and past the splices behind it.
    fn bump(&mut self) {
        if let Some(c) = self.peek() {
            self.at += c.len_utf8();
            self.line += u32::from(c == '\n');
            self.skip_splices();
        }
    }

    /// A backslash, blanks (GCC allows them) and a newline are nothing at all.
    fn skip_splices(&mut self) {
        while let Some(rest) = self.source[self.at..].strip_prefix('\\') {
            let Some(after) = rest.trim_start_matches([' ', '\t', '\r', '\u{b}', '\u{c}']).strip_prefix('\n') else { return };
            self.at = self.source.len() - after.len();
            self.line += 1;
        }
    }

    fn refuse_trigraphs(&self) -> Result<(), Refusal> {
        for (index, line) in self.source.split('\n').enumerate() {
            if line.split("??").skip(1).any(|rest| rest.starts_with(['=', '/', '\'', '(', ')', '!', '<', '>', '-', '?'])) {
                return self.refuse(u32::try_from(index + 1).unwrap_or(u32::MAX), "a trigraph");
            }
        }
        Ok(())
    }

    fn block_comment(&mut self) -> Result<(), Refusal> {
        let line = self.line;
        self.bump();
        self.bump();
        loop {
            match self.peek() {
                None => return self.refuse(line, "a comment without an end"),
                Some('*') if self.second() == Some('/') => break,
                Some(_) => self.bump(),
            }
        }
        self.bump();
        self.bump();
        Ok(())
    }

    /// True right after `#include` at the start of a line.
    fn after_include(&self) -> bool {
        matches!(self.tokens.as_slice(), [.., hash, name] if hash.kind == Kind::Hash && name.text == "include")
    }

    fn header(&mut self, close: char) -> Result<(), Refusal> {
        let line = self.line;
        let mut text = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => return self.refuse(line, "a header's name without an end"),
                Some(c) => {
                    text.push(c);
                    self.bump();
                    if c == close && text.len() > 1 {
                        break;
                    }
                }
            }
        }
        self.push(Kind::Header, text.into(), line);
        Ok(())
    }

    fn literal(&mut self, close: char, kind: Kind, what: &str) -> Result<(), Refusal> {
        let line = self.line;
        let mut text = String::new();
        self.bump();
        loop {
            match self.peek() {
                None | Some('\n') => return self.refuse(line, &format!("a {what} without an end")),
                Some('\\') => {
                    text.push('\\');
                    self.bump();
                    text.extend(self.peek());
                    self.bump();
                }
                Some(c) if c == close => break,
                Some(c) => {
                    text.push(c);
                    self.bump();
                }
            }
        }
        self.bump();
        self.push(kind, text.into(), line);
        Ok(())
    }

    /// `#`, `##`, or a digraph of them; a lone `%` is an operator.
    fn hash(&mut self) {
        let line = self.line;
        let first = self.take_hash();
        let doubled = first && matches!(self.peek(), Some('#' | '%')) && (self.peek() == Some('#') || self.second() == Some(':'));
        if doubled {
            self.take_hash();
        }
        let begins_line = self.tokens.last().is_none_or(|token| token.kind == Kind::Newline);
        let (kind, text) = match (first, doubled) {
            (true, true) => (Kind::Paste, "##"),
            (true, false) if begins_line => (Kind::Hash, "#"),
            (true, false) => (Kind::Other, "#"),
            (false, _) => (Kind::Other, "%"),
        };
        self.push(kind, text.into(), line);
    }

    /// Moves past `#`, `%:` or `%`; false for the last.
    fn take_hash(&mut self) -> bool {
        let digraph = self.peek() == Some('%');
        self.bump();
        if digraph && self.peek() == Some(':') {
            self.bump();
            return true;
        }
        !digraph
    }

    fn number(&mut self) {
        let line = self.line;
        let mut text = String::new();
        while let Some(c) = self.peek() {
            let exponent_sign = matches!(c, '+' | '-') && text.ends_with(['e', 'E', 'p', 'P']);
            let separator = c == '\'' && self.second().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
            if !(c == '.' || exponent_sign || separator || continues_name(c)) {
                break;
            }
            text.push(c);
            self.bump();
        }
        self.push(Kind::Number, text.into(), line);
    }

    fn name(&mut self) -> Result<(), Refusal> {
        let (line, start) = (self.line, self.at);
        let mut text = String::new();
        while let Some(c) = self.peek().filter(|&c| continues_name(c)) {
            text.push(c);
            self.bump();
        }
        if self.peek() == Some('"') && matches!(text.as_str(), "R" | "LR" | "uR" | "UR" | "u8R") {
            return self.refuse(line, "a raw string literal");
        }
        let whole = self.source.get(start..start + text.len()).filter(|slice| *slice == text);
        self.push(Kind::Name, whole.map_or(Cow::Owned(text), Cow::Borrowed), line);
        Ok(())
    }
}

fn starts_name(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || c == '$' || !c.is_ascii() && c.is_alphabetic()
}

fn continues_name(c: char) -> bool {
    starts_name(c) || c.is_ascii_digit()
}
