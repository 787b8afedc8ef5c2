//! Recursive-descent parser of the expressions that sympy prints.
//!
//! Grammar: sums of products of `name`, integers, `(…)` and the functions of [`call`]; `//` and `%` as in Python.
//! Length and depth are capped: an expression is untrusted input.

use super::expr::{Comparison, Condition, Expr};

/// Longest expression that is parsed, in bytes.
const MAX_BYTES: usize = 16 << 10;
/// Deepest nesting.
const MAX_DEPTH: usize = 64;

/// Why an expression does not parse.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("index expression {text:?}, byte {at}: {detail}")]
pub struct ExprError {
    text: String,
    at: usize,
    detail: String,
}

pub(super) fn parse(text: &str) -> Result<Expr, ExprError> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    if text.len() > MAX_BYTES {
        return parser.fail("too long");
    }
    let expr = parser.sum()?;
    if parser.peek().is_some() { parser.fail("unexpected text") } else { Ok(expr) }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn fail<T>(&self, detail: impl Into<String>) -> Result<T, ExprError> {
        let text = self.text.chars().take(200).collect();
        Err(ExprError { text, at: self.at, detail: detail.into() })
    }

    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn take(&mut self, token: &str) -> bool {
        self.peek();
        let found = self.text.as_bytes()[self.at..].starts_with(token.as_bytes());
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), ExprError> {
        if self.take(token) { Ok(()) } else { self.fail(format!("expected {token:?}")) }
    }

    fn sum(&mut self) -> Result<Expr, ExprError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail("nested too deeply");
        }
        let mut terms = vec![self.product()?];
        loop {
            if self.take("+") {
                terms.push(self.product()?);
            } else if self.take("-") {
                let term = self.product()?;
                terms.push(Expr::mul(vec![Expr::Int(-1), term]));
            } else {
                self.depth -= 1;
                return Ok(Expr::add(terms));
            }
        }
    }

    fn product(&mut self) -> Result<Expr, ExprError> {
        let mut left = self.factor()?;
        loop {
            if self.take("//") {
                left = Expr::FloorDiv(Box::new(left), Box::new(self.factor()?));
            } else if self.take("%") {
                left = Expr::Mod(Box::new(left), Box::new(self.factor()?));
            } else if !self.text.as_bytes()[self.at..].starts_with(b"**") && self.take("*") {
                let right = self.factor()?;
                left = Expr::mul(vec![left, right]);
            } else {
                return Ok(left);
            }
        }
    }

    fn factor(&mut self) -> Result<Expr, ExprError> {
        let negative = self.take("-");
        let mut base = self.atom()?;
        if self.take("**") {
            let Expr::Int(power @ 1..=8) = self.atom()? else { return self.fail("expected a power from 1 to 8") };
            base = Expr::mul(vec![base; power as usize]);
        }
        Ok(if negative { Expr::mul(vec![Expr::Int(-1), base]) } else { base })
    }

    fn atom(&mut self) -> Result<Expr, ExprError> {
        match self.peek() {
            Some(b'(') => {
                self.at += 1;
                let inner = self.sum()?;
                self.expect(")")?;
                Ok(inner)
            }
            Some(b'0'..=b'9') => {
                let digits = self.word(|b| b.is_ascii_digit());
                match digits.parse() {
                    Ok(value) => Ok(Expr::Int(value)),
                    Err(_) => self.fail("integer out of range"),
                }
            }
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => {
                let name = self.word(|b| b.is_ascii_alphanumeric() || b == b'_').to_owned();
                if self.take("(") { self.call(&name) } else { Ok(Expr::Var(name)) }
            }
            _ => self.fail("expected a number, a name or a parenthesis"),
        }
    }

    fn word(&mut self, belongs: impl Fn(u8) -> bool) -> &str {
        let start = self.at;
        while self.text.as_bytes().get(self.at).is_some_and(|b| belongs(*b)) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn call(&mut self, name: &str) -> Result<Expr, ExprError> {
        if name == "Where" {
            return self.where_call();
        }
        let mut args = vec![self.sum()?];
        while self.take(",") {
            args.push(self.sum()?);
        }
        self.expect(")")?;
        call(name, args).or_else(|detail| self.fail(detail))
    }

    fn where_call(&mut self) -> Result<Expr, ExprError> {
        let left = self.sum()?;
        let comparison = self.comparison()?;
        let right = self.sum()?;
        self.expect(",")?;
        let yes = self.sum()?;
        self.expect(",")?;
        let no = self.sum()?;
        self.expect(")")?;
        Ok(Expr::Where(Box::new(Condition { comparison, left, right }), Box::new(yes), Box::new(no)))
    }

    fn comparison(&mut self) -> Result<Comparison, ExprError> {
        const TOKENS: [(&str, Comparison); 6] = [
            ("<=", Comparison::Le),
            (">=", Comparison::Ge),
            ("==", Comparison::Eq),
            ("!=", Comparison::Ne),
            ("<", Comparison::Lt),
            (">", Comparison::Gt),
        ];
        match TOKENS.iter().find(|(token, _)| self.take(token)) {
            Some((_, comparison)) => Ok(*comparison),
            None => self.fail("expected a comparison"),
        }
    }
}

/// Sympy functions of integer expressions (torch/utils/_sympy/functions.py).
fn call(name: &str, mut args: Vec<Expr>) -> Result<Expr, String> {
    let arity = args.len();
    let mut next = || Box::new(args.remove(0));
    match (name, arity) {
        ("FloorDiv" | "CleanDiv", 2) => Ok(Expr::FloorDiv(next(), next())),
        ("Mod" | "PythonMod", 2) => Ok(Expr::Mod(next(), next())),
        ("ModularIndexing", 3) => Ok(Expr::Mod(Box::new(Expr::FloorDiv(next(), next())), next())),
        ("CeilDiv", 2) => {
            let (a, b) = (next(), next());
            let negated = Expr::FloorDiv(Box::new(Expr::mul(vec![Expr::Int(-1), *a])), b);
            Ok(Expr::mul(vec![Expr::Int(-1), negated]))
        }
        ("Identity", 1) => Ok(*next()),
        ("Min", 2..) => Ok(Expr::Min(args)),
        ("Max", 2..) => Ok(Expr::Max(args)),
        _ => Err(format!("unknown function {name} of {arity} arguments")),
    }
}
