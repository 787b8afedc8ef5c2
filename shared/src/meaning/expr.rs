//! Index expressions: integers over loop variables and size symbols, as Inductor prints them with sympy.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use super::parse::ExprError;

/// An integer expression. Sums and products are flat; build them with [`Expr::add`] and [`Expr::mul`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Expr {
    /// An integer literal.
    Int(i64),
    /// A loop variable, size symbol or indirect variable.
    Var(String),
    /// Sum of two or more terms.
    Add(Vec<Expr>),
    /// Product of two or more factors.
    Mul(Vec<Expr>),
    /// Division rounded to minus infinity: `FloorDiv(a, b)`, `a // b`.
    FloorDiv(Box<Expr>, Box<Expr>),
    /// Remainder with the sign of the divisor: `Mod`, `PythonMod`, `a % b`.
    Mod(Box<Expr>, Box<Expr>),
    /// Least of two or more.
    Min(Vec<Expr>),
    /// Greatest of two or more.
    Max(Vec<Expr>),
    /// `Where(condition, a, b)`.
    Where(Box<Condition>, Box<Expr>, Box<Expr>),
}

/// A comparison inside [`Expr::Where`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Condition {
    /// The operator.
    pub comparison: Comparison,
    /// Left side.
    pub left: Expr,
    /// Right side.
    pub right: Expr,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is the operator of its name")]
pub enum Comparison {
    Lt,
    Le,
    Eq,
    Ne,
    Gt,
    Ge,
}

impl Comparison {
    /// Its spelling in Python and C++.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Gt => ">",
            Self::Ge => ">=",
        }
    }

    /// Whether it holds.
    pub const fn holds(self, left: i64, right: i64) -> bool {
        match self {
            Self::Lt => left < right,
            Self::Le => left <= right,
            Self::Eq => left == right,
            Self::Ne => left != right,
            Self::Gt => left > right,
            Self::Ge => left >= right,
        }
    }
}

impl Default for Expr {
    fn default() -> Self {
        Self::Int(0)
    }
}

impl Expr {
    /// A variable.
    pub fn var(name: impl Into<String>) -> Self {
        Self::Var(name.into())
    }

    /// Sum of `terms`, flattened, constants folded and put first.
    pub fn add(terms: Vec<Expr>) -> Self {
        let mut flat = Vec::with_capacity(terms.len());
        let mut constant = 0i64;
        for term in terms {
            match term {
                Self::Int(value) => constant = constant.wrapping_add(value),
                Self::Add(inner) => inner.into_iter().for_each(|t| match t {
                    Self::Int(value) => constant = constant.wrapping_add(value),
                    other => flat.push(other),
                }),
                other => flat.push(other),
            }
        }
        if constant != 0 || flat.is_empty() {
            flat.insert(0, Self::Int(constant));
        }
        if flat.len() == 1 { flat.swap_remove(0) } else { Self::Add(flat) }
    }

    /// Product of `factors`, flattened, constants folded and put first.
    pub fn mul(factors: Vec<Expr>) -> Self {
        let mut flat = Vec::with_capacity(factors.len());
        let mut constant = 1i64;
        for factor in factors {
            match factor {
                Self::Int(value) => constant = constant.wrapping_mul(value),
                Self::Mul(inner) => inner.into_iter().for_each(|f| match f {
                    Self::Int(value) => constant = constant.wrapping_mul(value),
                    other => flat.push(other),
                }),
                other => flat.push(other),
            }
        }
        if constant == 0 {
            return Self::Int(0);
        }
        if constant != 1 || flat.is_empty() {
            flat.insert(0, Self::Int(constant));
        }
        if flat.len() == 1 { flat.swap_remove(0) } else { Self::Mul(flat) }
    }

    /// Value where `lookup` knows the variables. `None` for an unknown variable, a division by zero or an overflow.
    pub fn eval(&self, lookup: &impl Fn(&str) -> Option<i64>) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Var(name) => lookup(name),
            Self::Add(terms) => terms.iter().try_fold(0i64, |sum, t| sum.checked_add(t.eval(lookup)?)),
            Self::Mul(factors) => factors.iter().try_fold(1i64, |product, f| product.checked_mul(f.eval(lookup)?)),
            Self::FloorDiv(a, b) => floor_div(a.eval(lookup)?, b.eval(lookup)?),
            Self::Mod(a, b) => floor_mod(a.eval(lookup)?, b.eval(lookup)?),
            Self::Min(items) => items.iter().map(|e| e.eval(lookup)).try_fold(i64::MAX, |least, v| Some(least.min(v?))),
            Self::Max(items) => items.iter().map(|e| e.eval(lookup)).try_fold(i64::MIN, |most, v| Some(most.max(v?))),
            Self::Where(condition, yes, no) => {
                let holds = condition.comparison.holds(condition.left.eval(lookup)?, condition.right.eval(lookup)?);
                if holds { yes.eval(lookup) } else { no.eval(lookup) }
            }
        }
    }

    /// Parts one level below.
    pub fn children(&self) -> Vec<&Expr> {
        match self {
            Self::Int(_) | Self::Var(_) => Vec::new(),
            Self::Add(items) | Self::Mul(items) | Self::Min(items) | Self::Max(items) => items.iter().collect(),
            Self::FloorDiv(a, b) | Self::Mod(a, b) => vec![a, b],
            Self::Where(condition, a, b) => vec![&condition.left, &condition.right, a, b],
        }
    }

    /// The same expression with every variable replaced by what `replace` gives for it.
    pub fn map_vars(&self, replace: &mut impl FnMut(&str) -> Expr) -> Expr {
        let mut all = |items: &[Expr]| -> Vec<Expr> { items.iter().map(|e| e.map_vars(replace)).collect() };
        match self {
            Self::Int(value) => Self::Int(*value),
            Self::Add(items) => Self::add(all(items)),
            Self::Mul(items) => Self::mul(all(items)),
            Self::Min(items) => Self::Min(all(items)),
            Self::Max(items) => Self::Max(all(items)),
            Self::Var(name) => replace(name),
            Self::FloorDiv(a, b) => Self::FloorDiv(Box::new(a.map_vars(replace)), Box::new(b.map_vars(replace))),
            Self::Mod(a, b) => Self::Mod(Box::new(a.map_vars(replace)), Box::new(b.map_vars(replace))),
            Self::Where(condition, a, b) => Self::Where(
                Box::new(Condition {
                    comparison: condition.comparison,
                    left: condition.left.map_vars(replace),
                    right: condition.right.map_vars(replace),
                }),
                Box::new(a.map_vars(replace)),
                Box::new(b.map_vars(replace)),
            ),
        }
    }

    /// Names of all variables in it.
    pub fn variables(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.collect_variables(&mut names);
        names
    }

    fn collect_variables<'a>(&'a self, names: &mut BTreeSet<&'a str>) {
        if let Self::Var(name) = self {
            names.insert(name);
        }
        self.children().into_iter().for_each(|child| child.collect_variables(names));
    }
}

/// Python's `//`.
pub fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

/// Python's `%`.
pub fn floor_mod(a: i64, b: i64) -> Option<i64> {
    let rest = a.checked_rem(b)?;
    Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
}

impl FromStr for Expr {
    type Err = ExprError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        super::parse::parse(text)
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Var(name) => f.write_str(name),
            Self::Add(terms) => write_list(f, "", terms, " + "),
            Self::Mul(factors) => write_factors(f, factors),
            Self::FloorDiv(a, b) => write!(f, "FloorDiv({a}, {b})"),
            Self::Mod(a, b) => write!(f, "Mod({a}, {b})"),
            Self::Min(items) => write_list(f, "Min(", items, ", ").and_then(|()| f.write_str(")")),
            Self::Max(items) => write_list(f, "Max(", items, ", ").and_then(|()| f.write_str(")")),
            Self::Where(c, a, b) => write!(f, "Where({} {} {}, {a}, {b})", c.left, c.comparison.symbol(), c.right),
        }
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, open: &str, items: &[Expr], separator: &str) -> fmt::Result {
    f.write_str(open)?;
    items.iter().enumerate().try_for_each(|(i, item)| write!(f, "{}{item}", if i == 0 { "" } else { separator }))
}

fn write_factors(f: &mut fmt::Formatter<'_>, factors: &[Expr]) -> fmt::Result {
    factors.iter().enumerate().try_for_each(|(i, factor)| {
        let star = if i == 0 { "" } else { "*" };
        match factor {
            Expr::Add(_) => write!(f, "{star}({factor})"),
            Expr::Int(value) if *value < 0 && i > 0 => write!(f, "{star}({value})"),
            _ => write!(f, "{star}{factor}"),
        }
    })
}

impl Serialize for Expr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Expr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str, x: i64) -> Option<i64> {
        text.parse::<Expr>().unwrap().eval(&|name| (name == "x").then_some(x))
    }

    #[test]
    fn python_semantics() {
        assert_eq!(value("3 + 2*x - (x + 1)", 5), Some(7));
        assert_eq!(value("FloorDiv(x, 3)", -7), Some(-3));
        assert_eq!(value("x % 3", -7), Some(2));
        assert_eq!(value("ModularIndexing(x, 4, 3)", 29), Some(1));
        assert_eq!(value("CeilDiv(x, 4)", 9), Some(3));
        assert_eq!(value("Where(x < 3, 10, Max(x, 20))", 3), Some(20));
        assert_eq!(value("2*x**2", 3), Some(18));
        assert_eq!(value("-x", 3), Some(-3));
    }

    #[test]
    fn undefined_is_none() {
        assert_eq!(value("x // 0", 1), None);
        assert_eq!(value("y", 1), None);
        assert_eq!(value("9223372036854775807 + x", 1), None);
    }

    #[test]
    fn hostile_text_is_an_error() {
        for text in ["", "x +", "foo(x)", "99999999999999999999", "x**x", "é", "(", &"(".repeat(10_000), &"x+".repeat(20_000)] {
            assert!(text.parse::<Expr>().is_err(), "{text:.20}");
        }
    }

    fn expressions() -> impl Strategy<Value = Expr> {
        let leaf = prop_oneof![(-9i64..100).prop_map(Expr::Int), "[xyz]".prop_map(Expr::Var)];
        leaf.prop_recursive(4, 24, 3, |inner| {
            let pair = (inner.clone(), inner.clone());
            prop_oneof![
                prop::collection::vec(inner.clone(), 2..4).prop_map(Expr::add),
                prop::collection::vec(inner.clone(), 2..4).prop_map(Expr::mul),
                pair.clone().prop_map(|(a, b)| Expr::FloorDiv(Box::new(a), Box::new(b))),
                pair.clone().prop_map(|(a, b)| Expr::Mod(Box::new(a), Box::new(b))),
                pair.prop_map(|(a, b)| Expr::Max(vec![a, b])),
            ]
        })
    }

    proptest! {
        #[test]
        fn printing_and_parsing_keep_the_value(expr in expressions(), x in -20i64..20, y in 1i64..9) {
            let lookup = |name: &str| match name { "x" => Some(x), "y" => Some(y), _ => Some(x - y) };
            let again: Expr = expr.to_string().parse().unwrap();
            prop_assert_eq!(again.eval(&lookup), expr.eval(&lookup));
        }

        #[test]
        fn any_text_parses_or_errs(text in "\\PC{0,40}") {
            let _ = text.parse::<Expr>();
        }
    }
}
