//! Triton: a module of allowed imports, constants and jitted functions, whose entries take what their launches pass.

use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::launch::Launch;
use kernelopt_shared::target::Target;
use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Alias, Expr, ParameterWithDefault, Stmt, StmtFunctionDef};

use super::super::answer::Refusal;
use crate::inductor::triton::{TritonError, on_tree};

/// What may be imported from where; the empty name stands for the module itself. A part of what the agents' own screen allows
/// (`python/kernelopt/build/screen.py`).
const IMPORTS: [(&str, &[&str]); 6] = [
    ("triton", &["", "cdiv", "jit", "language", "next_power_of_2"]),
    ("triton.language", &["", "math"]),
    ("triton.language.extra", &["libdevice"]),
    ("triton.language.extra.cuda", &["libdevice"]),
    ("torch._inductor.runtime", &["triton_helpers"]),
    ("torch._inductor.runtime.triton_helpers", &["libdevice", "math"]),
];
/// Names by which Python leaves what a kernel is.
const FORBIDDEN: [&str; 13] = [
    "__builtins__",
    "__import__",
    "breakpoint",
    "compile",
    "delattr",
    "eval",
    "exec",
    "getattr",
    "globals",
    "inline_asm_elementwise",
    "open",
    "setattr",
    "vars",
];

pub(super) fn check(candidate: &Candidate, target: &Target) -> Result<(), Refusal> {
    let source = candidate.source.as_str();
    let read = |body: &[Stmt]| Ok(body.iter().try_for_each(statement).and_then(|()| entries(body, candidate, target)));
    match on_tree(source, read) {
        Ok(done) => done,
        Err(TritonError::NotUnderstood(why)) => Err(Refusal::new(format!("the python block cannot be read: {why}"))),
        Err(other) => Err(Refusal::new(format!("the python block cannot be read: {other}"))),
    }
}

/// One statement of the module.
fn statement(statement: &Stmt) -> Result<(), Refusal> {
    match statement {
        Stmt::Import(import) => import.names.iter().try_for_each(|alias| imported(&alias.name, "", alias)),
        Stmt::ImportFrom(import) => {
            let module = import.module.as_ref().filter(|_| import.level == 0).map_or(".", |module| module.as_str());
            import.names.iter().try_for_each(|alias| imported(module, &alias.name, alias))
        }
        Stmt::FunctionDef(function) => {
            if function.is_async || !matches!(function.decorator_list.as_slice(), [only] if is_jit(&only.expression)) {
                return Err(Refusal::new(format!("{}: every function stands under @triton.jit and nothing else", function.name)));
            }
            let mut look = Look(None);
            function.body.iter().for_each(|statement| look.visit_stmt(statement));
            look.0.map_or(Ok(()), Err)
        }
        Stmt::Assign(assign) if matches!(assign.targets.as_slice(), [Expr::Name(_)]) => constant(&assign.value),
        Stmt::AnnAssign(assign) if assign.target.is_name_expr() => assign.value.as_deref().map_or(Ok(()), constant),
        Stmt::Expr(words) if words.value.is_string_literal_expr() => Ok(()),
        _ => Err(Refusal::new("only imports, constants and @triton.jit functions may stand in the module")),
    }
}

fn imported(module: &str, name: &str, alias: &Alias) -> Result<(), Refusal> {
    let allowed = IMPORTS.iter().any(|(place, names)| *place == module && names.contains(&name));
    let binds = alias.asname.as_ref().map_or(alias.name.as_str(), |name| name.as_str());
    if allowed && !binds.starts_with('_') {
        return Ok(());
    }
    let from = if name.is_empty() { String::new() } else { format!(".{name}") };
    Err(Refusal::new(format!("import of {module}{from}: only triton, triton.language and libdevice may be imported")))
}

/// `triton.jit`, without arguments.
fn is_jit(expression: &Expr) -> bool {
    matches!(expression, Expr::Attribute(method) if method.attr.as_str() == "jit" && matches!(&*method.value, Expr::Name(module) if module.id.as_str() == "triton"))
}

/// A number, or what is made of numbers: `1 << 10`, `tl.constexpr(8)`.
fn constant(value: &Expr) -> Result<(), Refusal> {
    match value {
        Expr::NumberLiteral(_) | Expr::BooleanLiteral(_) | Expr::Name(_) => Ok(()),
        Expr::UnaryOp(operation) => constant(&operation.operand),
        Expr::BinOp(operation) => constant(&operation.left).and_then(|()| constant(&operation.right)),
        Expr::Call(call) if call.arguments.keywords.is_empty() && call.arguments.args.len() == 1 && is_constexpr(&call.func) => {
            constant(&call.arguments.args[0])
        }
        _ => Err(Refusal::new("a constant of the module is made of numbers")),
    }
}

fn is_constexpr(expression: &Expr) -> bool {
    match expression {
        Expr::Attribute(attribute) => attribute.attr.as_str() == "constexpr",
        Expr::Name(name) => name.id.as_str() == "constexpr",
        _ => false,
    }
}

/// Looks for what no kernel needs; the first is kept.
struct Look(Option<Refusal>);

impl Look {
    fn name(&mut self, name: &str) {
        if FORBIDDEN.contains(&name) || name.starts_with("__") {
            self.0.get_or_insert_with(|| Refusal::new(format!("{name} is not allowed in a kernel")));
        }
    }
}

impl<'a> Visitor<'a> for Look {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        let what = match statement {
            Stmt::Import(_) | Stmt::ImportFrom(_) => "an import",
            Stmt::FunctionDef(_) => "a function",
            Stmt::ClassDef(_) => "a class",
            Stmt::Global(_) | Stmt::Nonlocal(_) => "global",
            Stmt::Try(_) => "try",
            Stmt::With(_) => "with",
            _ => return walk_stmt(self, statement),
        };
        self.0.get_or_insert_with(|| Refusal::new(format!("{what} within a kernel is not allowed")));
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Name(name) => self.name(&name.id),
            Expr::Attribute(attribute) => self.name(&attribute.attr),
            _ => {}
        }
        walk_expr(self, expression);
    }
}

fn entries(body: &[Stmt], candidate: &Candidate, target: &Target) -> Result<(), Refusal> {
    candidate.launches().try_for_each(|launch| entry(body, launch, candidate, target))
}

/// The entry's runtime parameters are what the launch passes, by name and in order; the others have values.
fn entry(body: &[Stmt], launch: &Launch, candidate: &Candidate, target: &Target) -> Result<(), Refusal> {
    let function = body.iter().find_map(|statement| match statement {
        Stmt::FunctionDef(function) if function.name.as_str() == launch.entry => Some(function),
        _ => None,
    });
    let function: &StmtFunctionDef = function.ok_or_else(|| Refusal::new(format!("there is no function {}", launch.entry)))?;
    let parameters = &function.parameters;
    if parameters.vararg.is_some() || parameters.kwarg.is_some() || !parameters.kwonlyargs.is_empty() {
        return Err(Refusal::new(format!("{} takes plain parameters only", launch.entry)));
    }
    let all: Vec<&ParameterWithDefault> = parameters.posonlyargs.iter().chain(&parameters.args).collect();
    let is_constant = |p: &ParameterWithDefault| p.parameter.annotation.as_deref().is_some_and(is_constexpr);
    let name = |p: &&ParameterWithDefault| p.parameter.name.as_str().to_owned();
    let unknown = all.iter().find(|p| is_constant(p) && !launch.constants.contains_key(p.parameter.name.as_str()));
    if let Some(unknown) = unknown {
        return Err(Refusal::new(format!("the launch of {} gives no value to the constant {}", launch.entry, name(unknown))));
    }
    let taken: Vec<String> = all.iter().filter(|p| !launch.constants.contains_key(p.parameter.name.as_str())).map(name).collect();
    let signature = candidate.signature(launch, &target.meaning).map_err(|error| Refusal::new(error.to_string()))?;
    let passed: Vec<&str> = signature.iter().map(|(name, _)| *name).filter(|name| !launch.constants.contains_key(*name)).collect();
    if taken == passed {
        return Ok(());
    }
    let (taken, passed, entry) = (taken.join(", "), passed.join(", "), &launch.entry);
    Err(Refusal::new(format!("{entry} takes ({taken}), but its launch passes ({passed}): the same names in the same order")))
}
