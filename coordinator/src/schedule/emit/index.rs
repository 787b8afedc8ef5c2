//! Index expressions as C++.

use kernelopt_shared::meaning::Expr;

/// The expression, its variables spelled by `name`. Quotients round down, as Python's do.
pub fn text(expr: &Expr, name: &dyn Fn(&str) -> String) -> String {
    let list = |items: &[Expr], separator: &str| items.iter().map(|item| text(item, name)).collect::<Vec<_>>().join(separator);
    match expr {
        Expr::Int(value) if *value < 0 => format!("({value})"),
        Expr::Int(value) => value.to_string(),
        Expr::Var(var) => name(var),
        Expr::Add(terms) => format!("({})", list(terms, " + ")),
        Expr::Mul(factors) => list(factors, " * "),
        Expr::FloorDiv(a, b) => format!("floor_div({}, {})", text(a, name), text(b, name)),
        Expr::Mod(a, b) => format!("floor_mod({}, {})", text(a, name), text(b, name)),
        Expr::Min(items) => nested("std::min<int64_t>", items, name),
        Expr::Max(items) => nested("std::max<int64_t>", items, name),
        Expr::Where(c, a, b) => {
            format!("({} {} {} ? {} : {})", text(&c.left, name), c.comparison.symbol(), text(&c.right, name), text(a, name), text(b, name))
        }
    }
}

/// The expression, its variables spelled as they are.
pub fn plain(expr: &Expr) -> String {
    text(expr, &|var| var.to_owned())
}

fn nested(function: &str, items: &[Expr], name: &dyn Fn(&str) -> String) -> String {
    let mut items = items.iter().map(|item| text(item, name));
    let first = items.next().unwrap_or_else(|| "0".to_owned());
    items.fold(first, |so_far, item| format!("{function}({so_far}, {item})"))
}

/// The expression as a subscript, without the outer parentheses of a sum.
pub fn subscript(expr: &Expr, name: &dyn Fn(&str) -> String) -> String {
    let text = text(expr, name);
    match expr {
        Expr::Add(_) => text[1..text.len() - 1].to_owned(),
        _ => text,
    }
}
