//! Reads one function of the file: what its locals are, and its statements in order.

use std::collections::HashMap;

use ruff_python_ast::visitor::{Visitor, walk_except_handler, walk_expr, walk_pattern, walk_stmt};
use ruff_python_ast::{ExceptHandler, Expr, ExprContext, Pattern, Stmt};
use ruff_text_size::Ranged;

use super::read_value::span_of;
use super::scope::{Binding, EVERYTHING, Scope, dotted, imported};
use super::statement::{Opaque, Statement, StatementKind};
use super::text::{LineIndex, Span};

/// What a name inside a function stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Local {
    /// A tensor.
    Buffer,
    /// What a call gave: a tensor or a tuple of them.
    Result,
    /// An argument of the function: a tensor or a number.
    Input,
    /// A list of values.
    List,
    /// A number, or a stream.
    Number,
    /// `None`.
    Nothing,
    /// Something imported.
    Path(String),
}

/// Reads the statements of one function.
pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) lines: &'a LineIndex,
    pub(super) scope: &'a Scope,
    /// Name of the parameter that holds the argument list.
    pub(super) arguments: &'a str,
    /// Name of the parameter that holds the object, in a method.
    pub(super) receiver: Option<&'a str>,
    locals: HashMap<String, Local>,
    statements: Vec<Statement>,
}

/// Names through which a statement may reach locals that it does not mention.
const REACHES_ALL: [&str; 12] =
    ["compile", "ctypes", "eval", "exec", "gc", "getattr", "globals", "inspect", "locals", "setattr", "sys", "vars"];

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, lines: &'a LineIndex, scope: &'a Scope, arguments: &'a str, receiver: Option<&'a str>) -> Self {
        Self { text, lines, scope, arguments, receiver, locals: HashMap::new(), statements: Vec::new() }
    }

    /// The statements of `body`, in order.
    pub(super) fn read(mut self, body: &[Stmt]) -> Vec<Statement> {
        self.block(body);
        self.statements
    }

    pub(super) fn block(&mut self, body: &[Stmt]) {
        for statement in body {
            self.statement(statement);
        }
    }

    pub(super) fn text_of(&self, ranged: &impl Ranged) -> &'a str {
        span_of(ranged).of(self.text)
    }

    /// What `name` stands for here; none where that is not known.
    pub(super) fn local(&self, name: &str) -> Option<Local> {
        if let Some(local) = self.locals.get(name) {
            return Some(local.clone());
        }
        match self.scope.get(name)? {
            Binding::Constant => Some(Local::Buffer),
            Binding::Path(path) => Some(Local::Path(path.clone())),
            _ => None,
        }
    }

    pub(super) fn set(&mut self, name: &str, local: Local) {
        self.locals.insert(name.to_owned(), local);
    }

    pub(super) fn unset(&mut self, name: &str) {
        self.locals.remove(name);
    }

    /// Full name of a chain of attributes of something imported.
    pub(super) fn path(&self, expr: &Expr) -> Option<String> {
        dotted(expr, |root| match self.local(root) {
            Some(Local::Path(path)) => Some(path),
            _ => None,
        })
    }

    /// True for a name that nothing here binds: Python's own.
    pub(super) fn is_builtin(&self, name: &str) -> bool {
        !self.locals.contains_key(name) && self.scope.get(name).is_none()
    }

    /// The name of a module-level `binding` that `expr` is, unless a local hides it.
    pub(super) fn module_name<'e>(&self, expr: &'e Expr, binding: &Binding) -> Option<&'e str> {
        let Expr::Name(name) = expr else { return None };
        let name = name.id.as_str();
        (!self.locals.contains_key(name) && self.scope.get(name) == Some(binding)).then_some(name)
    }

    pub(super) fn push(&mut self, span: Span, kind: StatementKind) {
        self.statements.push(Statement { line: self.lines.line(span.start), span, kind });
    }

    /// Imports inside the function bind names and touch nothing.
    pub(super) fn import(&mut self, statement: &Stmt) {
        if imported(statement).iter().any(|(name, _)| name == EVERYTHING) {
            return self.opaque(statement);
        }
        for (name, path) in imported(statement) {
            match path {
                Some(path) => self.set(&name, Local::Path(path)),
                None => self.set(&name, Local::Number),
            }
        }
        self.push(span_of(statement), StatementKind::Host { name: None });
    }

    /// Keeps a statement that is not understood.
    pub(super) fn opaque(&mut self, statement: &Stmt) {
        let opaque = opaque(statement, &[Some(self.arguments), self.receiver]);
        for name in &opaque.binds {
            self.set(name, Local::Result);
        }
        self.push(span_of(statement), StatementKind::Opaque(opaque));
    }
}

/// What a statement that is not understood can be seen to touch. `owners` are names that give access to everything.
pub(super) fn opaque(statement: &Stmt, owners: &[Option<&str>]) -> Opaque {
    let mut names = Names::default();
    names.visit_stmt(statement);
    let reaches_all =
        names.escapes || names.mentions.iter().any(|name| REACHES_ALL.contains(&name.as_str()) || owners.contains(&Some(name)));
    Opaque { mentions: names.mentions, binds: names.binds, reaches_all }
}

/// Names in a statement, nested ones included.
#[derive(Default)]
struct Names {
    mentions: Vec<String>,
    binds: Vec<String>,
    escapes: bool,
}

impl Names {
    fn bind(&mut self, name: &str) {
        self.mentions.push(name.to_owned());
        self.binds.push(name.to_owned());
    }
}

impl<'a> Visitor<'a> for Names {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::FunctionDef(function) => self.bind(function.name.as_str()),
            Stmt::ClassDef(class) => self.bind(class.name.as_str()),
            Stmt::Import(_) | Stmt::ImportFrom(_) => imported(statement).iter().for_each(|(name, _)| self.bind(name)),
            Stmt::Global(_) | Stmt::Nonlocal(_) => self.escapes = true,
            _ => {}
        }
        walk_stmt(self, statement);
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Name(name) = expr {
            match name.ctx {
                ExprContext::Store | ExprContext::Del => self.bind(name.id.as_str()),
                _ => self.mentions.push(name.id.to_string()),
            }
        }
        walk_expr(self, expr);
    }

    fn visit_except_handler(&mut self, handler: &'a ExceptHandler) {
        let ExceptHandler::ExceptHandler(handler_parts) = handler;
        handler_parts.name.iter().for_each(|name| self.bind(name.as_str()));
        walk_except_handler(self, handler);
    }

    fn visit_pattern(&mut self, pattern: &'a Pattern) {
        let name = match pattern {
            Pattern::MatchAs(pattern) => pattern.name.as_ref(),
            Pattern::MatchStar(pattern) => pattern.name.as_ref(),
            Pattern::MatchMapping(pattern) => pattern.rest.as_ref(),
            _ => None,
        };
        name.iter().for_each(|name| self.bind(name.as_str()));
        walk_pattern(self, pattern);
    }
}
