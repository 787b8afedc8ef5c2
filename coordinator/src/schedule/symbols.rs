//! Size symbols, from the arguments that hold them.

use std::collections::BTreeMap;

use kernelopt_shared::meaning::{Expr, Meaning, Role};

use super::Unsupported;
use super::index::{Ranges, canonical, coefficient};

/// Each size symbol as an expression over arguments: one that holds it, or a multiple of it.
///
/// # Errors
/// Where the extent of a loop cannot be known from the arguments.
pub fn symbols(meaning: &Meaning) -> Result<BTreeMap<String, Expr>, Unsupported> {
    let mut known = BTreeMap::new();
    for argument in meaning.arguments.iter().filter(|a| a.role == Role::Size) {
        let Some(value) = &argument.value else { continue };
        let value = canonical(value, &Ranges::default());
        let names = value.variables();
        if let (Some(name), 1) = (names.first(), names.len())
            && let Some(Expr::Int(factor @ 1..)) = coefficient(&value, name)
            && value == canonical(&Expr::mul(vec![Expr::Int(factor), Expr::var(*name)]), &Ranges::default())
        {
            let held = Expr::var(argument.name.as_str());
            let symbol = if factor == 1 { held } else { Expr::FloorDiv(Box::new(held), Box::new(Expr::Int(factor))) };
            known.entry((*name).to_owned()).or_insert(symbol);
        }
    }
    let used = meaning.nodes.iter().flat_map(|node| node.iter.iter().chain(&node.reduce)).flat_map(|axis| axis.extent.variables());
    for symbol in used {
        if !known.contains_key(symbol) {
            return Err(Unsupported::new(format!("size {symbol} is no argument")));
        }
    }
    Ok(known)
}
