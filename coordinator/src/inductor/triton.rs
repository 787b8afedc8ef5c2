//! Modules of Triton kernels: how the compiler defines one, and how ours is put in its place.

use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::launch::{Launch, LaunchError, Scratch};
use kernelopt_shared::meaning::Expr as Size;
use kernelopt_shared::target::Target;
use ruff_python_ast::{Decorator, Expr, ExprCall, ExprDict, Stmt, StmtFunctionDef};
use ruff_python_parser::parse_module;

use super::limits;
use super::read_value::span_of;
use super::text::Span;
use super::user_kernel::UserKernel;
use super::with_stack;

/// What the compiler writes above every kernel (torch 2.11, torch/_inductor/codegen/triton.py, `gen_common_triton_imports`).
const HEADER: &str = "
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()
";
/// Above every function, whatever stood there.
const JIT: &str = "@triton.jit\n";
/// Names that [`HEADER`] binds.
const BOUND: [&str; 9] =
    ["triton", "tl", "triton_helpers", "triton_heuristics", "libdevice", "tl_math", "AutotuneHint", "ReductionHint", "TileHint"];
/// What the compiler says of its own configurations, and would not be true of ours.
const OF_CONFIGURATIONS: [&str; 3] = ["grid_type", "tiling_scores", "autotune_hints"];

/// Why a module is not understood or not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TritonError {
    /// Not what we can read.
    #[error("its Triton module is not understood: {0}")]
    NotUnderstood(String),
    /// Other text for a kernel that the model's author wrote.
    #[error("a kernel of the model's author keeps its text")]
    AuthorsText,
    /// The candidate has no launch.
    #[error("a Triton candidate without a launch")]
    NoLaunch,
    /// The candidate's launches are not those of a candidate for the target.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// A kernel as the compiler defines it: metadata of its decorator, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name of the function.
    pub name: String,
    /// `triton_meta`, in order.
    pub triton_meta: Vec<(String, String)>,
    /// `inductor_meta`, in order.
    pub inductor_meta: Vec<(String, String)>,
    /// Type of each parameter, in order: `*bf16`, `i32`, `constexpr`.
    pub signature: Vec<(String, String)>,
}

impl Definition {
    /// Reads the module of one kernel.
    ///
    /// # Errors
    /// Where it is not in the compiler's form.
    pub fn read(source: &str) -> Result<Self, TritonError> {
        on_tree(source, |body| Self::of(source, body))
    }

    fn of(source: &str, body: &[Stmt]) -> Result<Self, TritonError> {
        let found = body.iter().rev().find_map(|statement| match statement {
            Stmt::FunctionDef(function) => Some((function, function.decorator_list.iter().find_map(heuristic)?)),
            _ => None,
        });
        let (function, call) = found.ok_or_else(|| not_understood("no function under triton_heuristics"))?;
        let dict = |name: &str| match keyword(call, name) {
            Some(Expr::Dict(dict)) => Ok(dict),
            _ => Err(not_understood(format!("no {name}"))),
        };
        let (triton_meta, inductor_meta) = (dict("triton_meta")?, dict("inductor_meta")?);
        let signature = triton_meta.items.iter().find(|item| key(item.key.as_ref()) == Some("signature")).map(|item| &item.value);
        let Some(Expr::Dict(signature)) = signature else { return Err(not_understood("no signature")) };
        let types: Option<Vec<(String, String)>> =
            signature.items.iter().map(|item| Some((key(item.key.as_ref())?.to_owned(), key(Some(&item.value))?.to_owned()))).collect();
        Ok(Self {
            name: function.name.to_string(),
            triton_meta: entries(source, triton_meta)?,
            inductor_meta: entries(source, inductor_meta)?,
            signature: types.ok_or_else(|| not_understood("a signature that is not of strings"))?,
        })
    }

    /// True for a parameter that the compiler's call passes. A size that is always one is passed, although its type is `constexpr`
    /// and its value stands in `triton_meta`.
    fn passes(&self, parameter: &str) -> bool {
        let declared = self.signature.iter().find(|(name, _)| name == parameter);
        declared.is_some_and(|(name, declared)| declared != "constexpr" || name.ends_with("numel"))
    }

    /// Multiprocessors of the device that the compiler wrote for.
    pub fn multiprocessors(&self) -> Option<u32> {
        let (_, device) = self.triton_meta.iter().find(|(name, _)| name == "device")?;
        let parsed = ruff_python_parser::parse_expression(device).ok()?;
        let Expr::Call(call) = parsed.expr() else { return None };
        match keyword(call, "multi_processor_count")? {
            Expr::NumberLiteral(number) => span_of(number).of(device).parse().ok(),
            _ => None,
        }
    }
}

/// Name in the file of the kernel that is launched as number `number`, the first of which is zero and has the compiler's own.
pub fn kernel_name(target: &str, number: usize) -> String {
    if number == 0 { target.to_owned() } else { format!("{target}_then_{number}") }
}

/// The texts of a candidate's kernels, one for each launch: the first stands in place of the target's source literal. Each is
/// the candidate's module with one function under the compiler's own decorator for one fixed configuration, so that it runs
/// with torch and triton alone. Of a kernel of the model's author it is the author's text with another launch.
///
/// # Errors
/// Where the baseline or the candidate is not understood.
pub fn render(candidate: &Candidate, target: &Target) -> Result<Vec<String>, TritonError> {
    if candidate.launch.is_none() {
        return Err(TritonError::NoLaunch);
    }
    candidate.check_launches(&target.meaning)?;
    if target.meaning.program.is_some() {
        return authors_text(candidate, target).map(|text| vec![text]);
    }
    let definition = Definition::read(&target.baseline.source)?;
    let source = candidate.source.as_str();
    let text = |(number, launch): (usize, &Launch)| {
        let others: Vec<&str> = candidate.launches().map(|launch| launch.entry.as_str()).filter(|entry| *entry != launch.entry).collect();
        let kernel = Kernel { launch, scratch: &candidate.scratch, definition: &definition, name: kernel_name(&definition.name, number) };
        on_tree(source, |body| written(source, body, &kernel, &others))
    };
    candidate.launches().enumerate().map(text).collect()
}

/// The text of a kernel of the model's author with the candidate's launch.
fn authors_text(candidate: &Candidate, target: &Target) -> Result<String, TritonError> {
    let (Some(launch), Some(baseline)) = (&candidate.launch, &target.baseline.launch) else { return Err(TritonError::NoLaunch) };
    let text = &target.baseline.source;
    if candidate.source != *text || !candidate.further.is_empty() {
        return Err(TritonError::AuthorsText);
    }
    UserKernel::read(text)?.with_launch(text, launch, baseline)
}

/// One kernel of a candidate.
struct Kernel<'a> {
    launch: &'a Launch,
    scratch: &'a [Scratch],
    /// The compiler's own, whose place it takes.
    definition: &'a Definition,
    /// Name in the file.
    name: String,
}

fn written(source: &str, body: &[Stmt], kernel: &Kernel<'_>, others: &[&str]) -> Result<String, TritonError> {
    let launch = kernel.launch;
    let entry = body.iter().find_map(|statement| match statement {
        Stmt::FunctionDef(function) if function.name.as_str() == launch.entry => Some(function),
        _ => None,
    });
    let entry = entry.ok_or_else(|| not_understood(format!("no function {}", launch.entry)))?;
    let mut text = String::from(HEADER);
    for statement in body.iter().filter(|statement| !is_bound(statement)) {
        // What is launched by itself has a text of its own, unless somebody else calls it.
        if let Stmt::FunctionDef(function) = statement
            && others.contains(&function.name.as_str())
            && !body.iter().any(|other| other != statement && mentions(span_of(other).of(source), &function.name))
        {
            continue;
        }
        text.push('\n');
        match statement {
            Stmt::FunctionDef(function) if function.name == entry.name => {
                let parameters = entry.parameters.iter().map(|parameter| parameter.name().as_str());
                let is_block = |name: &&str| launch.constants.contains_key(*name) && !kernel.definition.passes(name);
                let blocks: Vec<&str> = parameters.filter(is_block).collect();
                text.push_str(&decorator(kernel, &blocks));
                text.push_str(JIT);
                text.push_str(&renamed(source, entry, &kernel.name));
            }
            Stmt::FunctionDef(function) => {
                text.push_str(JIT);
                text.push_str(from_def(source, function).of(source));
            }
            other => text.push_str(span_of(other).of(source)),
        }
        text.push('\n');
    }
    Ok(text)
}

/// True where `word` stands in a text, by itself.
pub(super) fn mentions(text: &str, word: &str) -> bool {
    text.split(|character: char| !character.is_alphanumeric() && character != '_').any(|found| found == word)
}

/// True for an import of nothing but what the header binds.
fn is_bound(statement: &Stmt) -> bool {
    let names = match statement {
        Stmt::Import(import) => &import.names,
        Stmt::ImportFrom(import) => &import.names,
        _ => return false,
    };
    names.iter().all(|alias| BOUND.contains(&alias.asname.as_ref().unwrap_or(&alias.name).as_str()))
}

/// A function without its decorators: a decorator is host code, and ours is the only one.
fn from_def(source: &str, function: &StmtFunctionDef) -> Span {
    let whole = span_of(function);
    let after = function.decorator_list.last().map_or(whole.start, |decorator| span_of(decorator).end);
    let blank = source[after..whole.end].len() - source[after..whole.end].trim_start().len();
    Span { start: after + blank, end: whole.end }
}

fn renamed(source: &str, entry: &StmtFunctionDef, name: &str) -> String {
    let (whole, old) = (from_def(source, entry), span_of(&entry.name));
    let (before, after) = (Span { start: whole.start, end: old.start }, Span { start: old.end, end: whole.end });
    format!("{}{name}{}", before.of(source), after.of(source))
}

/// The compiler's decorator for one configuration; `blocks` are the constexpr parameters in order.
fn decorator(kernel: &Kernel<'_>, blocks: &[&str]) -> String {
    let Kernel { launch, definition, .. } = kernel;
    let numbers = blocks.iter().filter_map(|name| Some(((*name).to_owned(), launch.constants.get(*name)?.to_string())));
    let sizes =
        [("num_warps", launch.num_warps), ("num_stages", launch.num_stages)].map(|(name, value)| (name.to_owned(), value.to_string()));
    let config: Vec<(String, String)> = numbers.chain(sizes).collect();
    let mut triton_meta = definition.triton_meta.clone();
    let signature = signature(kernel, blocks);
    for (name, value) in &mut triton_meta {
        match name.as_str() {
            "signature" => *value = dictionary(&quoted(&signature)),
            "configs" if !launch.arguments.is_empty() => *value = configs(kernel, &signature, value),
            "constants" if !launch.arguments.is_empty() => *value = constants(&signature, value),
            _ => {}
        }
    }
    let name = |name: &str| launch.constants.get(name).map_or_else(|| name.to_owned(), i64::to_string);
    let grid = launch.grid.iter().map(|extent| format!("'{}'", python(extent, &name))).collect::<Vec<_>>().join(", ");
    let fixed = [("grid_type".to_owned(), "'FixedGrid'".to_owned()), ("fixed_grid".to_owned(), format!("[{grid}]"))];
    let others = definition.inductor_meta.iter().filter(|(name, _)| !OF_CONFIGURATIONS.contains(&name.as_str())).cloned();
    let named = |(name, value): (String, String)| {
        let value = if name == "kernel_name" { format!("'{}'", kernel.name) } else { value };
        (name, value)
    };
    let inductor_meta: Vec<(String, String)> = fixed.into_iter().chain(others.map(named)).collect();
    format!(
        "@triton_heuristics.fixed_config(\n    config={},\n    filename=__file__,\n    triton_meta={},\n    inductor_meta={}\n)\n",
        dictionary(&config),
        dictionary(&triton_meta),
        dictionary(&inductor_meta)
    )
}

/// The compiler's types of what is passed at launch, and those of scratch, then our own block sizes.
fn signature(kernel: &Kernel<'_>, blocks: &[&str]) -> Vec<(String, String)> {
    let Kernel { launch, scratch, definition, .. } = kernel;
    let targets = || definition.signature.iter().filter(|(name, _)| definition.passes(name)).cloned();
    let scratch = || scratch.iter().map(|scratch| (scratch.name.clone(), scratch.dtype.triton_pointer().to_owned()));
    let passed: Vec<(String, String)> = match launch.arguments.as_slice() {
        [] => targets().collect(),
        names => names.iter().filter_map(|name| targets().chain(scratch()).find(|(other, _)| other == name)).collect(),
    };
    let blocks = blocks.iter().map(|name| ((*name).to_owned(), "constexpr".to_owned()));
    passed.into_iter().chain(blocks).collect()
}

fn quoted(entries: &[(String, String)]) -> Vec<(String, String)> {
    entries.iter().map(|(name, value)| (name.clone(), format!("'{value}'"))).collect()
}

/// What may be assumed of each parameter, by its position: of the target's arguments what the compiler says in `original`
/// (`[{(0,): [['tt.divisibility', 16]]}]`), of scratch what the launch says. Nothing where the original has another form.
fn configs(kernel: &Kernel<'_>, signature: &[(String, String)], original: &str) -> String {
    let Kernel { launch, scratch, definition, .. } = kernel;
    let attribute = |name: &str| {
        if scratch.iter().any(|scratch| scratch.name == name) {
            return launch.divisible_by_16.contains(name).then(|| "[['tt.divisibility', 16]]".to_owned());
        }
        let position = definition.signature.iter().position(|(other, _)| other == name)?;
        let parsed = ruff_python_parser::parse_expression(original).ok()?;
        let Expr::List(list) = parsed.expr() else { return None };
        let [Expr::Dict(dict)] = list.elts.as_slice() else { return None };
        let is_at = |item: &&ruff_python_ast::DictItem| match item.key.as_ref() {
            Some(Expr::Tuple(key)) => key.elts.iter().map(|index| span_of(index).of(original)).eq([position.to_string()]),
            _ => false,
        };
        dict.items.iter().find(is_at).map(|item| span_of(&item.value).of(original).to_owned())
    };
    let entries = signature.iter().enumerate().filter_map(|(at, (name, _))| Some(format!("({at},): {}", attribute(name)?)));
    format!("[{{{}}}]", entries.collect::<Vec<_>>().join(", "))
}

/// The compiler's constants that are parameters here too.
fn constants(signature: &[(String, String)], original: &str) -> String {
    let parsed = ruff_python_parser::parse_expression(original).ok();
    let Some(Expr::Dict(dict)) = parsed.as_ref().map(|parsed| parsed.expr()) else { return "{}".into() };
    let kept = entries(original, dict).unwrap_or_default().into_iter().filter(|(name, _)| signature.iter().any(|(other, _)| other == name));
    dictionary(&kept.collect::<Vec<_>>())
}

pub(super) fn dictionary(entries: &[(String, String)]) -> String {
    format!("{{{}}}", entries.iter().map(|(name, value)| format!("'{name}': {value}")).collect::<Vec<_>>().join(", "))
}

/// A size as Python, over what `name` spells names as.
pub(super) fn python(expr: &Size, name: &dyn Fn(&str) -> String) -> String {
    let text = |expr: &Size| python(expr, name);
    let list = |items: &[Size], separator: &str| items.iter().map(text).collect::<Vec<_>>().join(separator);
    match expr {
        Size::Int(value) => value.to_string(),
        Size::Var(var) => name(var),
        Size::Add(terms) => format!("({})", list(terms, " + ")),
        Size::Mul(factors) => format!("({})", list(factors, " * ")),
        Size::FloorDiv(a, b) => format!("({} // {})", text(a), text(b)),
        Size::Mod(a, b) => format!("({} % {})", text(a), text(b)),
        Size::Min(items) => format!("min({})", list(items, ", ")),
        Size::Max(items) => format!("max({})", list(items, ", ")),
        Size::Where(c, a, b) => format!("({} if {} {} {} else {})", text(a), text(&c.left), c.comparison.symbol(), text(&c.right), text(b)),
    }
}

pub(super) fn not_understood(what: impl Into<String>) -> TritonError {
    TritonError::NotUnderstood(what.into())
}

/// What `read` makes of the statements of a module. The text is untrusted.
pub(crate) fn on_tree<T: Send>(source: &str, read: impl FnOnce(&[Stmt]) -> Result<T, TritonError> + Send) -> Result<T, TritonError> {
    limits::check(source).map_err(|error| not_understood(error.to_string()))?;
    let parse = || {
        let module = parse_module(source).map_err(|error| not_understood(error.to_string()))?;
        read(&module.syntax().body)
    };
    with_stack(parse).unwrap_or_else(|| Err(not_understood("the parser gave up")))
}

/// The call in `@triton_heuristics.reduction(...)`.
pub(super) fn heuristic(decorator: &Decorator) -> Option<&ExprCall> {
    let Expr::Call(call) = &decorator.expression else { return None };
    let Expr::Attribute(method) = &*call.func else { return None };
    matches!(&*method.value, Expr::Name(module) if module.id.as_str() == "triton_heuristics").then_some(call)
}

/// The value of `name=value` in a call.
pub(super) fn keyword<'a>(call: &'a ExprCall, name: &str) -> Option<&'a Expr> {
    let mut keywords = call.arguments.keywords.iter();
    keywords.find(|keyword| keyword.arg.as_ref().is_some_and(|arg| arg.as_str() == name)).map(|keyword| &keyword.value)
}

pub(super) fn entries(source: &str, dict: &ExprDict) -> Result<Vec<(String, String)>, TritonError> {
    let entry = |item: &ruff_python_ast::DictItem| Some((key(item.key.as_ref())?.to_owned(), span_of(&item.value).of(source).to_owned()));
    dict.items.iter().map(entry).collect::<Option<_>>().ok_or_else(|| not_understood("metadata whose keys are not strings"))
}

pub(super) fn key(expr: Option<&Expr>) -> Option<&str> {
    match expr? {
        Expr::StringLiteral(text) => Some(text.value.to_str()),
        _ => None,
    }
}
