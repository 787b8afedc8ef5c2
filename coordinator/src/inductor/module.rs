//! Reads a whole module: its names first, then its functions.

use ruff_python_ast::{CmpOp, Expr, ExprCall, Parameters, Stmt, StmtAssign, StmtClassDef, StmtFunctionDef};
use ruff_text_size::Ranged;

use kernelopt_shared::target::Language;

use super::error::{ParseError, ParseErrorKind};
use super::graph::{Function, Graph, ModuleOpaque, Role};
use super::kernel::{Kernel, KernelKind, Source};
use super::read_value::span_of;
use super::reader::{Reader, opaque};
use super::scope::{Binding, EVERYTHING, Scope};
use super::signature;
use super::text::{LineIndex, Position};

/// Everything that a module holds.
pub(super) struct Module {
    pub(super) kernels: Vec<Kernel>,
    pub(super) functions: Vec<Function>,
    pub(super) graphs: Vec<Graph>,
    pub(super) constants: Vec<String>,
}

/// A function whose body waits until every module-level name is known: a body may use names that are bound after it.
struct Pending<'a> {
    function: &'a StmtFunctionDef,
    role: Role,
    receiver: Option<&'a str>,
    arguments: &'a str,
}

struct ModuleReader<'a> {
    text: &'a str,
    lines: &'a LineIndex,
    scope: Scope,
    /// Each with the number of entries read before it.
    kernels: Vec<(usize, Kernel)>,
    constants: Vec<String>,
    pending: Vec<Pending<'a>>,
    /// Partitions of each `Runner(partitions=[...])`, with the number of entries read before it.
    partitions: Vec<(usize, Vec<String>)>,
    opaque: Vec<(usize, ModuleOpaque)>,
    entries: usize,
}

/// Functions that the compiler adds to try the file out; `call` does not use them.
const SUPPORT: [&str; 3] = ["get_args", "benchmark_compiled_module", "benchmark_all_configs"];

/// Reads the statements of a module.
pub(super) fn read(text: &str, lines: &LineIndex, body: &[Stmt]) -> Result<Module, ParseError> {
    let mut reader = ModuleReader {
        text,
        lines,
        scope: Scope::default(),
        kernels: Vec::new(),
        constants: Vec::new(),
        pending: Vec::new(),
        partitions: Vec::new(),
        opaque: Vec::new(),
        entries: 0,
    };
    body.iter().for_each(|statement| reader.statement(statement));
    reader.finish()
}

impl<'a> ModuleReader<'a> {
    fn statement(&mut self, statement: &'a Stmt) {
        let understood = match statement {
            Stmt::Import(_) | Stmt::ImportFrom(_) => self.scope.import(statement),
            Stmt::Assign(assign) => self.assign(assign),
            Stmt::FunctionDef(function) => self.function(function),
            Stmt::ClassDef(class) => self.class(class),
            Stmt::Expr(expr) => self.is_wait(&expr.value) || matches!(&*expr.value, Expr::StringLiteral(_)),
            Stmt::Delete(delete) => delete.targets.iter().all(|target| self.is_compiler(target)),
            Stmt::If(check) => check.elif_else_clauses.is_empty() && is_main_check(&check.test),
            _ => false,
        };
        if !understood {
            self.keep(statement);
        }
    }

    fn keep(&mut self, statement: &Stmt) {
        let what = opaque(statement, &[]);
        what.binds.iter().for_each(|name| self.scope.bind(name, Binding::Other));
        if what.reaches_all || what.binds.iter().any(|name| name == EVERYTHING) {
            self.scope.forget_all();
        }
        let span = span_of(statement);
        self.opaque.push((self.entries, ModuleOpaque { line: self.lines.line(span.start), span, mentions: what.mentions }));
    }

    fn text_of(&self, ranged: &impl Ranged) -> &'a str {
        span_of(ranged).of(self.text)
    }

    fn is_compiler(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Name(name) if self.scope.get(name.id.as_str()) == Some(&Binding::Compiler))
    }

    /// `async_compile.wait(globals())`.
    fn is_wait(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Call(call) if self.compiler_method(call) == Some("wait"))
    }

    /// The method in `async_compile.method(...)`.
    fn compiler_method<'e>(&self, call: &'e ExprCall) -> Option<&'e str> {
        match &*call.func {
            Expr::Attribute(method) if self.is_compiler(&method.value) => Some(method.attr.as_str()),
            _ => None,
        }
    }

    fn assign(&mut self, assign: &StmtAssign) -> bool {
        let [Expr::Name(target)] = assign.targets.as_slice() else { return false };
        let name = target.id.as_str();
        if let Some(binding) = self.scope.alias(&assign.value) {
            self.scope.bind(name, binding);
            return true;
        }
        match &*assign.value {
            Expr::Call(call) => match self.compiler_method(call) {
                Some(method) => {
                    let kernel = self.kernel(name, method, call, assign.start().to_usize());
                    self.kernels.push((self.entries, kernel));
                    self.scope.bind(name, Binding::Kernel);
                    true
                }
                None => self.runner(name, call),
            },
            // Tensors of the module are filled in when it is loaded.
            Expr::NoneLiteral(_) => {
                self.constants.push(name.to_owned());
                self.scope.bind(name, Binding::Constant);
                true
            }
            // `call = runner.call`.
            Expr::Attribute(attribute) => {
                attribute.attr.as_str() == name && matches!(&*attribute.value, Expr::Name(object) if object.id.as_str() == "runner")
            }
            value if is_data(value) => {
                self.scope.bind(name, Binding::Other);
                true
            }
            _ => false,
        }
    }

    /// `runner = Runner(partitions=[partition_0, partition_1])`.
    fn runner(&mut self, name: &str, call: &ExprCall) -> bool {
        let is_runner = name == "runner" && matches!(&*call.func, Expr::Name(class) if class.id.as_str() == "Runner");
        let [partitions] = call.arguments.keywords.as_slice() else { return false };
        let Expr::List(list) = &partitions.value else { return false };
        let names: Option<Vec<String>> = list
            .elts
            .iter()
            .map(|item| match item {
                Expr::Name(name) => Some(name.id.to_string()),
                _ => None,
            })
            .collect();
        match names {
            Some(names) if is_runner => {
                self.partitions.push((self.entries, names));
                true
            }
            _ => false,
        }
    }

    fn kernel(&self, name: &str, method: &str, call: &ExprCall, start: usize) -> Kernel {
        let source = match (method, &*call.arguments.args) {
            ("cpp_pybinding", [types, Expr::StringLiteral(source)]) => strings(types).map(|types| {
                let author = signature::author_of_cpp(source.value.to_str());
                (source, Language::Cpp, author, signature::of_cpp(source.value.to_str(), &types), 0)
            }),
            ("triton", [Expr::StringLiteral(_), Expr::StringLiteral(source)]) => {
                let author = signature::author_of_triton(source.value.to_str());
                let (parameters, extra) = signature::of_triton(source.value.to_str(), author);
                Some((source, Language::Triton, author, parameters, extra))
            }
            _ => None,
        };
        let kind = match source {
            Some((literal, language, author, parameters, extra)) if !literal.value.is_implicit_concatenated() => {
                KernelKind::Source(Source {
                    language,
                    text: literal.value.to_str().to_owned(),
                    literal: span_of(literal),
                    author,
                    parameters,
                    extra,
                })
            }
            _ => KernelKind::Foreign { maker: self.text_of(&*call.func).to_owned(), members: self.kernels_in(call) },
        };
        Kernel { name: name.to_owned(), line: self.lines.line(start), kind, origins: origins(&self.text[..start]) }
    }

    /// Names of kernels among the arguments of a call, in lists and dictionaries too.
    fn kernels_in(&self, call: &ExprCall) -> Vec<String> {
        let mut names = Vec::new();
        let mut add = |expr: &Expr| {
            if let Expr::Name(name) = expr
                && self.scope.get(name.id.as_str()) == Some(&Binding::Kernel)
            {
                names.push(name.id.to_string());
            }
        };
        for argument in &*call.arguments.args {
            match argument {
                Expr::List(list) => list.elts.iter().for_each(&mut add),
                Expr::Dict(dict) => dict.items.iter().for_each(|item| add(&item.value)),
                other => add(other),
            }
        }
        names
    }

    /// `def call(args)`, a partition, a subgraph, or one of the functions that try the file out.
    fn function(&mut self, function: &'a StmtFunctionDef) -> bool {
        let name = function.name.as_str();
        if SUPPORT.contains(&name) {
            return true;
        }
        let plain = !function.is_async && function.decorator_list.is_empty();
        let arguments = match positional(&function.parameters).as_deref() {
            Some([only]) if plain && *only == "args" => *only,
            _ => return false,
        };
        if name == "call" {
            self.entry(function, None, arguments);
        } else {
            self.scope.bind(name, Binding::Function);
            self.pending.push(Pending { function, role: Role::Part { graph: self.entries }, receiver: None, arguments });
        }
        true
    }

    fn entry(&mut self, function: &'a StmtFunctionDef, receiver: Option<&'a str>, arguments: &'a str) {
        self.pending.push(Pending { function, role: Role::Entry { graph: self.entries }, receiver, arguments });
        self.entries += 1;
    }

    /// `class Runner` with its method `call(self, args)`.
    fn class(&mut self, class: &'a StmtClassDef) -> bool {
        let mut understood = class.name.as_str() == "Runner" && class.decorator_list.is_empty() && class.arguments.is_none();
        for statement in &class.body {
            understood &= match statement {
                Stmt::FunctionDef(method) if !method.is_async && method.decorator_list.is_empty() => match method.name.as_str() {
                    "__init__" | "recursively_apply_fns" => true,
                    "call" => match positional(&method.parameters).as_deref() {
                        Some([receiver, arguments]) if understood => {
                            self.entry(method, Some(receiver), arguments);
                            true
                        }
                        _ => false,
                    },
                    _ => false,
                },
                _ => false,
            };
        }
        understood
    }

    fn finish(self) -> Result<Module, ParseError> {
        let Self { text, lines, scope, kernels, constants, pending, partitions, opaque, entries } = self;
        // A wrapper in C++ has no function `call`; what binds the name is kept, and is all that there is.
        if entries == 0 && scope.get("call").is_none() {
            return Err(ParseError { at: Position { line: 1, column: 1 }, kind: ParseErrorKind::NoCall });
        }
        let mut graphs: Vec<Graph> = (0..entries.max(1)).map(Graph::new).collect();
        let functions: Vec<Function> = pending
            .into_iter()
            .map(|item| Function {
                name: item.function.name.to_string(),
                role: item.role,
                line: lines.line(item.function.start().to_usize()),
                statements: Reader::new(text, lines, &scope, item.arguments, item.receiver).read(&item.function.body),
            })
            .collect();
        let last = graphs.len() - 1;
        for (index, function) in functions.iter().enumerate() {
            let (Role::Entry { graph } | Role::Part { graph }) = function.role;
            graphs[graph.min(last)].functions.push(index);
        }
        let mut definitions = Vec::with_capacity(kernels.len());
        for (entries_before, kernel) in kernels {
            graphs[entries_before.min(last)].kernels.push(definitions.len());
            definitions.push(kernel);
        }
        for (entries_before, names) in partitions {
            graphs[entries_before.saturating_sub(1).min(last)].partitions = names;
        }
        for (entries_before, statement) in opaque {
            graphs[entries_before.min(last)].opaque.push(statement);
        }
        Ok(Module { kernels: definitions, functions, graphs, constants })
    }
}

/// Names of the parameters, where all are plain.
fn positional(parameters: &Parameters) -> Option<Vec<&str>> {
    let plain =
        parameters.vararg.is_none() && parameters.kwarg.is_none() && parameters.posonlyargs.is_empty() && parameters.kwonlyargs.is_empty();
    let no_defaults = parameters.args.iter().all(|parameter| parameter.default.is_none());
    (plain && no_defaults).then(|| parameters.args.iter().map(|parameter| parameter.parameter.name.as_str()).collect())
}

/// `__name__ == "__main__"`: the body does not run when the file is loaded.
fn is_main_check(test: &Expr) -> bool {
    let Expr::Compare(compare) = test else { return false };
    let is_name = matches!(&*compare.left, Expr::Name(name) if name.id.as_str() == "__name__");
    is_name
        && matches!((&*compare.ops, &*compare.comparators), ([CmpOp::Eq], [Expr::StringLiteral(main)]) if main.value.to_str() == "__main__")
}

/// The strings of a list of string literals.
fn strings(expr: &Expr) -> Option<Vec<String>> {
    let Expr::List(list) = expr else { return None };
    list.elts
        .iter()
        .map(|item| match item {
            Expr::StringLiteral(text) => Some(text.value.to_str().to_owned()),
            _ => None,
        })
        .collect()
}

/// Literals, containers of them, and slices: `arg_index = {0: [slice(0, 6, None)]}`.
fn is_data(expr: &Expr) -> bool {
    match expr {
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::BooleanLiteral(_) | Expr::NoneLiteral(_) => true,
        Expr::UnaryOp(unary) => is_data(&unary.operand),
        Expr::List(list) => list.elts.iter().all(is_data),
        Expr::Tuple(tuple) => tuple.elts.iter().all(is_data),
        Expr::Dict(dict) => dict.items.iter().all(|item| item.key.as_ref().is_some_and(is_data) && is_data(&item.value)),
        Expr::Call(call) => {
            let is_slice = matches!(&*call.func, Expr::Name(name) if name.id.as_str() == "slice");
            is_slice && call.arguments.keywords.is_empty() && call.arguments.args.iter().all(is_data)
        }
        _ => false,
    }
}

/// Operators named in the comment that ends `before`: `Original ATen: [aten.pow, aten.mean]`.
fn origins(before: &str) -> Vec<String> {
    let comment = before.lines().rev().take_while(|line| line.starts_with('#'));
    let named = comment.filter_map(|line| line.split_once("Original ATen: [")).filter_map(|(_, rest)| rest.split(']').next()).next();
    named.map(|list| list.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect()).unwrap_or_default()
}
