//! Triton kernels of the model's author, as the compiler puts them into its file: the author's text under `user_autotune`.
//!
//! Nothing but that text says what such a kernel computes, so it stays; another launch is put into the decorator: the configuration, and
//! the grid where that follows from it.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::Expr as Size;
use ruff_python_ast::visitor::{Visitor, walk_stmt};
use ruff_python_ast::{Expr, ExprDict, Stmt, StmtFunctionDef};

use super::read_value::span_of;
use super::text::Span;
use super::triton::{TritonError, dictionary, entries, heuristic, key, keyword, not_understood, on_tree, python};

/// What the compiler writes in front of a user's function.
const HEURISTIC: &str = "user_autotune";
/// Entries of a configuration that are no constants of the kernel.
const OPTIONS: [&str; 4] = ["num_warps", "num_stages", "num_consumer_groups", "num_buffers_warp_spec"];
/// Entries of `inductor_meta` that say how large the grid is.
const GRID: [&str; 3] = ["grid_type", "fixed_grid", "precomputed_grids"];

/// A kernel of the model's author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserKernel {
    /// Name and type of what a launch passes, in order; a size of one is a `constexpr` to the compiler and is passed.
    pub passed: Vec<(String, String)>,
    /// Numbers that a launch passes behind them: the grid, or sizes that it is made of.
    pub extra_arguments: usize,
    /// The author's configurations.
    pub configurations: Vec<Configuration>,
    /// There is a loop, so that stages of software pipelining may matter.
    pub has_loop: bool,
    /// Text of the configurations and of `inductor_meta`.
    configs: Span,
    inductor_meta: Span,
    meta: Vec<(String, String)>,
}

/// One configuration of the author's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Constants by parameter name.
    pub constants: BTreeMap<String, i64>,
    /// Warps of a program.
    pub num_warps: u32,
    /// Stages of software pipelining.
    pub num_stages: u32,
    /// Its grid, where the compiler has computed one for each configuration.
    pub grid: Option<[Size; 3]>,
}

impl UserKernel {
    /// Reads the module of one kernel.
    ///
    /// # Errors
    /// Where the compiler has not put it into its own form.
    pub fn read(source: &str) -> Result<Self, TritonError> {
        on_tree(source, |body| Self::of(source, body))
    }

    fn of(source: &str, body: &[Stmt]) -> Result<Self, TritonError> {
        let found = body.iter().find_map(|statement| match statement {
            Stmt::FunctionDef(function) => {
                let call = function.decorator_list.iter().find_map(heuristic)?;
                matches!(&*call.func, Expr::Attribute(method) if method.attr.as_str() == HEURISTIC).then_some((function, call))
            }
            _ => None,
        });
        let (function, call) = found.ok_or_else(|| not_understood(format!("no function under {HEURISTIC}")))?;
        let (Some(Expr::List(configs)), Some(Expr::Dict(meta)), Some(Expr::Dict(triton_meta))) =
            (keyword(call, "configs"), keyword(call, "inductor_meta"), keyword(call, "triton_meta"))
        else {
            return Err(not_understood("a decorator of another form"));
        };
        let Some(Expr::Dict(signature)) = item(triton_meta, "signature") else { return Err(not_understood("no signature")) };
        let grids = grids(meta);
        let configurations = configs.elts.iter().filter_map(|config| configuration(config, &grids)).collect();
        let mut loops = Loops(false);
        body.iter().for_each(|statement| loops.visit_stmt(statement));
        Ok(Self {
            passed: passed(function, signature).ok_or_else(|| not_understood("a signature of another form"))?,
            extra_arguments: match item(meta, "extra_launcher_args") {
                Some(Expr::List(list)) => list.elts.len(),
                _ => 0,
            },
            configurations,
            has_loop: loops.0,
            configs: span_of(configs),
            inductor_meta: span_of(meta),
            meta: entries(source, meta)?,
        })
    }

    /// Constants whose value may change, and how the grid follows is known: those that it is made of, and where it is complete or
    /// the same for each of the author's configurations, those that these choose. A constant is a power of two.
    pub fn free_constants<'a>(&'a self, launch: &'a Launch) -> BTreeSet<&'a str> {
        let in_grid: BTreeSet<&str> = launch.grid.iter().flat_map(Size::variables).collect();
        let is_known = launch.grid.iter().any(|extent| extent.variables().iter().any(|name| launch.constants.contains_key(*name)));
        let listed = self.configurations.iter().flat_map(|configuration| configuration.constants.keys().map(String::as_str));
        let fixed = |configuration: &Configuration| configuration.grid.as_ref() == Some(&launch.grid);
        let follows = is_known || (self.configurations.len() > 1 && self.configurations.iter().all(fixed));
        let all = in_grid.into_iter().chain(listed.filter(|_| follows));
        all.filter(|name| launch.constants.get(*name).is_some_and(|value| *value > 0 && value.count_ones() == 1)).collect()
    }

    /// The author's module `source` with `launch` in place of `baseline`.
    ///
    /// # Errors
    /// Where it is not known how the grid follows.
    pub fn with_launch(&self, source: &str, launch: &Launch, baseline: &Launch) -> Result<String, TritonError> {
        let mut pieces = vec![(self.configs, format!("[{}]", self.config(launch, baseline)))];
        if let Some(meta) = self.grid(launch, baseline)? {
            pieces.push((self.inductor_meta, meta));
        }
        pieces.sort_by_key(|(span, _)| span.start);
        let (mut text, mut copied) = (String::with_capacity(source.len()), 0);
        for (span, piece) in pieces {
            text.push_str(&source[copied..span.start]);
            text.push_str(&piece);
            copied = span.end;
        }
        text.push_str(&source[copied..]);
        Ok(text)
    }

    /// What the author's configurations choose, and what else is another than it was.
    fn config(&self, launch: &Launch, baseline: &Launch) -> String {
        let chosen = |name: &str| self.configurations.iter().any(|configuration| configuration.constants.contains_key(name));
        let constants = launch.constants.iter().filter(|(name, value)| chosen(name) || baseline.constants.get(*name) != Some(value));
        let numbers = constants.map(|(name, value)| (name.clone(), value.to_string()));
        let options = [("num_warps", launch.num_warps), ("num_stages", launch.num_stages)];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_string()));
        dictionary(&numbers.chain(options).collect::<Vec<_>>())
    }

    /// New `inductor_meta`, where the caller's grid is not the one.
    fn grid(&self, launch: &Launch, baseline: &Launch) -> Result<Option<String>, TritonError> {
        let is_passed = self.meta.iter().all(|(name, _)| name != "precomputed_grids");
        let names: BTreeSet<&str> = baseline.grid.iter().flat_map(Size::variables).collect();
        let same = launch.grid == baseline.grid && names.iter().all(|name| launch.constants.get(*name) == baseline.constants.get(*name));
        if is_passed && same {
            return Ok(None);
        }
        let follows = if is_passed { launch.grid == baseline.grid } else { self.extra_arguments == 0 };
        if !follows {
            return Err(not_understood("it is not known how its grid follows from its constants"));
        }
        let spelled = |name: &str| launch.constants.get(name).map_or_else(|| name.to_owned(), i64::to_string);
        let extents: Vec<String> = launch.grid.iter().map(|extent| format!("'{}'", python(extent, &spelled))).collect();
        let fixed = [("grid_type", "'FixedGrid'".to_owned()), ("fixed_grid", format!("[{}]", extents.join(", ")))];
        let others = self.meta.iter().filter(|(name, _)| !GRID.contains(&name.as_str())).cloned();
        Ok(Some(dictionary(&fixed.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(others).collect::<Vec<_>>())))
    }
}

/// Finds a loop.
struct Loops(bool);

impl<'a> Visitor<'a> for Loops {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        self.0 |= matches!(statement, Stmt::For(_) | Stmt::While(_));
        walk_stmt(self, statement);
    }
}

/// Parameters that are not declared `tl.constexpr`, with their types.
fn passed(function: &StmtFunctionDef, signature: &ExprDict) -> Option<Vec<(String, String)>> {
    let is_constant = |annotation: &Expr| match annotation {
        Expr::Attribute(attribute) => attribute.attr.as_str() == "constexpr",
        Expr::Name(name) => name.id.as_str() == "constexpr",
        Expr::StringLiteral(text) => text.value.to_str().ends_with("constexpr"),
        _ => false,
    };
    let declared: BTreeSet<&str> = function
        .parameters
        .iter()
        .filter(|parameter| parameter.annotation().is_some_and(is_constant))
        .map(|parameter| parameter.name().as_str())
        .collect();
    let types = signature.items.iter().map(|item| Some((key(item.key.as_ref())?, key(Some(&item.value))?)));
    let all: Vec<(&str, &str)> = types.collect::<Option<_>>()?;
    let passed = all.into_iter().filter(|(name, _)| !declared.contains(name));
    Some(passed.map(|(name, declared)| (name.to_owned(), declared.to_owned())).collect())
}

/// The grid that the compiler has computed for each configuration.
fn grids(meta: &ExprDict) -> Vec<(BTreeMap<String, i64>, [Size; 3])> {
    let Some(Expr::List(list)) = item(meta, "precomputed_grids") else { return Vec::new() };
    let grid = |entry: &Expr| {
        let Expr::Dict(entry) = entry else { return None };
        let (Some(Expr::Dict(config)), Some(Expr::List(extents))) = (item(entry, "config"), item(entry, "python")) else { return None };
        let extents: Option<Vec<Size>> = extents.elts.iter().map(|extent| key(Some(extent))?.parse().ok()).collect();
        Some((numbers(config), extents?.try_into().ok()?))
    };
    list.elts.iter().filter_map(grid).collect()
}

/// A configuration of whole numbers; others are not the search's.
fn configuration(config: &Expr, grids: &[(BTreeMap<String, i64>, [Size; 3])]) -> Option<Configuration> {
    let Expr::Dict(config) = config else { return None };
    let all = numbers(config);
    let option = |name: &str| u32::try_from(*all.get(name)?).ok();
    let (num_warps, num_stages) = (option("num_warps")?, option("num_stages")?);
    let grid = grids.iter().find(|(of, _)| *of == all).map(|(_, grid)| grid.clone());
    let constants = all.iter().filter(|(name, _)| !OPTIONS.contains(&name.as_str())).map(|(name, value)| (name.clone(), *value));
    Some(Configuration { constants: constants.collect(), num_warps, num_stages, grid })
}

/// The entries of a dictionary display that are whole numbers.
fn numbers(dict: &ExprDict) -> BTreeMap<String, i64> {
    let number = |value: &Expr| match value {
        Expr::NumberLiteral(literal) => literal.value.as_int().and_then(ruff_python_ast::Int::as_i64),
        _ => None,
    };
    dict.items.iter().filter_map(|item| Some((key(item.key.as_ref())?.to_owned(), number(&item.value)?))).collect()
}

/// The value of an entry of a dictionary display.
fn item<'a>(dict: &'a ExprDict, name: &str) -> Option<&'a Expr> {
    dict.items.iter().find(|item| key(item.key.as_ref()) == Some(name)).map(|item| &item.value)
}
