//! Size symbols, from the arguments that hold them.

use std::collections::BTreeMap;

use kernelopt_shared::meaning::{Expr, Meaning, Role};

use super::Unsupported;
use super::index::{Ranges, canonical, coefficient};

/// Each size symbol as an expression over arguments.
///
/// # Errors
/// Where the extent of a loop cannot be known from the arguments.
pub fn symbols(meaning: &Meaning) -> Result<BTreeMap<String, Expr>, Unsupported> {
    let known = known(meaning);
    let used = meaning.nodes.iter().flat_map(|node| node.iter.iter().chain(&node.reduce)).flat_map(|axis| axis.extent.variables());
    for symbol in used {
        if !known.contains_key(symbol) {
            return Err(no_argument(symbol));
        }
    }
    Ok(known)
}

/// The size symbols that some argument holds, or a multiple of.
pub fn known(meaning: &Meaning) -> BTreeMap<String, Expr> {
    let mut known = BTreeMap::new();
    for (argument, value) in sizes(meaning) {
        let value = canonical(value, &Ranges::default());
        let names = value.variables();
        if let (Some(name), 1) = (names.first(), names.len())
            && let Some(Expr::Int(factor @ 1..)) = coefficient(&value, name)
            && value == canonical(&Expr::mul(vec![Expr::Int(factor), Expr::var(*name)]), &Ranges::default())
        {
            let held = Expr::var(argument);
            let symbol = if factor == 1 { held } else { Expr::FloorDiv(Box::new(held), Box::new(Expr::Int(factor))) };
            known.entry((*name).to_owned()).or_insert(symbol);
        }
    }
    known
}

/// A size over arguments: one that holds all of it, or those that hold its symbols.
///
/// # Errors
/// Where the arguments do not tell.
pub fn resolved(meaning: &Meaning, size: &Expr) -> Result<Expr, Unsupported> {
    let form = |expr: &Expr| canonical(expr, &Ranges::default());
    let (known, variables) = (known(meaning), size.variables());
    if let Some((argument, _)) = sizes(meaning).find(|(_, value)| !variables.is_empty() && form(value) == form(size)) {
        return Ok(Expr::var(argument));
    }
    match variables.into_iter().find(|symbol| !known.contains_key(*symbol)) {
        Some(symbol) => Err(no_argument(symbol)),
        None => Ok(size.map_vars(&mut |symbol| known.get(symbol).cloned().unwrap_or_else(|| Expr::var(symbol)))),
    }
}

/// Arguments that are sizes, with their values.
fn sizes(meaning: &Meaning) -> impl Iterator<Item = (&str, &Expr)> {
    let arguments = meaning.arguments.iter().filter(|argument| argument.role == Role::Size);
    arguments.filter_map(|argument| Some((argument.name.as_str(), argument.value.as_ref()?)))
}

fn no_argument(symbol: &str) -> Unsupported {
    Unsupported::new(format!("size {symbol} is no argument"))
}
