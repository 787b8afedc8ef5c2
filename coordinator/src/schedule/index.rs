//! Index expressions in canonical form, so that two accesses to one element compare equal.
//!
//! An expression becomes a sum of products with integer coefficients. `FloorDiv` and `Mod` by a constant are taken apart
//! where the ranges of the variables allow it: `FloorDiv(64*i + j, 64)` is `i` for `0 <= j < 64`.

use std::collections::BTreeMap;

use kernelopt_shared::meaning::Expr;
use kernelopt_shared::meaning::expr::Condition;

/// Inclusive range of each variable that has a known one.
#[derive(Clone, Debug, Default)]
pub struct Ranges(BTreeMap<String, (i64, i64)>);

impl Ranges {
    /// A loop variable: `0 <= var < extent`. An extent that is not a constant leaves the upper end open.
    pub fn add_loop(&mut self, var: &str, extent: &Expr) {
        let last = if let Expr::Int(extent) = extent { extent - 1 } else { i64::MAX };
        self.0.insert(var.to_owned(), (0, last));
    }

    /// A size symbol: one or more.
    pub fn add_symbol(&mut self, var: &str) {
        self.0.insert(var.to_owned(), (1, i64::MAX));
    }

    /// Least and greatest value of a canonical expression, where both are known. An open end counts as unknown.
    pub fn of(&self, expr: &Expr) -> Option<(i64, i64)> {
        match expr {
            Expr::Int(value) => Some((*value, *value)),
            Expr::Var(name) => self.0.get(name).copied().filter(|(_, high)| *high != i64::MAX),
            Expr::Add(terms) => terms.iter().try_fold((0i64, 0i64), |(low, high), term| {
                let (a, b) = self.of(term)?;
                Some((low.checked_add(a)?, high.checked_add(b)?))
            }),
            Expr::Mul(factors) => factors.iter().try_fold((1, 1), |range, factor| product(range, self.of(factor)?)),
            Expr::FloorDiv(a, b) => match (self.of(a)?, b.as_ref()) {
                ((low, high), Expr::Int(d)) if *d > 0 => Some((low.div_euclid(*d), high.div_euclid(*d))),
                _ => None,
            },
            Expr::Mod(_, b) => match b.as_ref() {
                Expr::Int(d) if *d > 0 => Some((0, d - 1)),
                _ => None,
            },
            Expr::Min(_) | Expr::Max(_) | Expr::Where(..) => None,
        }
    }

    /// True where the expression is known not to be negative, symbols included.
    pub fn is_natural(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Int(value) => *value >= 0,
            Expr::Var(name) => self.0.get(name).is_some_and(|(low, _)| *low >= 0),
            Expr::Add(parts) | Expr::Mul(parts) | Expr::Min(parts) => parts.iter().all(|part| self.is_natural(part)),
            Expr::Max(parts) => parts.iter().any(|part| self.is_natural(part)),
            Expr::FloorDiv(a, b) | Expr::Mod(a, b) => self.is_natural(a) && self.is_natural(b),
            Expr::Where(_, a, b) => self.is_natural(a) && self.is_natural(b),
        }
    }
}

fn product((a, b): (i64, i64), (c, d): (i64, i64)) -> Option<(i64, i64)> {
    let corners = [a.checked_mul(c)?, a.checked_mul(d)?, b.checked_mul(c)?, b.checked_mul(d)?];
    Some((*corners.iter().min()?, *corners.iter().max()?))
}

/// Canonical form under the given ranges.
pub fn canonical(expr: &Expr, ranges: &Ranges) -> Expr {
    Polynomial::of(expr, ranges).into_expr()
}

/// The factor of `var` where the canonical expression is `factor * var + rest` and neither holds `var`.
pub fn coefficient(expr: &Expr, var: &str) -> Option<Expr> {
    let terms = match expr {
        Expr::Add(terms) => terms.as_slice(),
        single => std::slice::from_ref(single),
    };
    let mut factors = Vec::new();
    for term in terms.iter().filter(|term| term.variables().contains(var)) {
        let parts = match term {
            Expr::Mul(parts) => parts.clone(),
            single => vec![single.clone()],
        };
        let (with, without): (Vec<Expr>, Vec<Expr>) = parts.into_iter().partition(|part| part.variables().contains(var));
        match with.as_slice() {
            [Expr::Var(_)] => factors.push(Expr::mul(without)),
            _ => return None,
        }
    }
    Some(Expr::add(factors))
}

/// Sum of products: coefficient of each sorted list of atoms.
#[derive(Clone, Debug, Default)]
struct Polynomial(BTreeMap<Vec<Expr>, i64>);

impl Polynomial {
    fn of(expr: &Expr, ranges: &Ranges) -> Self {
        match expr {
            Expr::Int(value) => Self::constant(*value),
            Expr::Var(_) => Self::atom(expr.clone()),
            Expr::Add(terms) => terms.iter().fold(Self::default(), |sum, term| sum.plus(&Self::of(term, ranges))),
            Expr::Mul(factors) => factors.iter().fold(Self::constant(1), |product, f| product.times(&Self::of(f, ranges))),
            Expr::FloorDiv(a, b) => divide(Self::of(a, ranges), canonical(b, ranges), ranges),
            Expr::Mod(a, b) => remainder(Self::of(a, ranges), canonical(b, ranges), ranges),
            Expr::Min(items) => Self::atom(Expr::Min(items.iter().map(|item| canonical(item, ranges)).collect())),
            Expr::Max(items) => Self::atom(Expr::Max(items.iter().map(|item| canonical(item, ranges)).collect())),
            Expr::Where(c, a, b) => Self::atom(Expr::Where(
                Box::new(Condition { comparison: c.comparison, left: canonical(&c.left, ranges), right: canonical(&c.right, ranges) }),
                Box::new(canonical(a, ranges)),
                Box::new(canonical(b, ranges)),
            )),
        }
    }

    fn constant(value: i64) -> Self {
        Self(if value == 0 { BTreeMap::new() } else { BTreeMap::from([(Vec::new(), value)]) })
    }

    fn atom(expr: Expr) -> Self {
        Self(BTreeMap::from([(vec![expr], 1)]))
    }

    fn insert(&mut self, atoms: Vec<Expr>, coefficient: i64) {
        let entry = self.0.entry(atoms).or_insert(0);
        *entry = entry.wrapping_add(coefficient);
        self.0.retain(|_, c| *c != 0);
    }

    fn plus(mut self, other: &Self) -> Self {
        other.0.iter().for_each(|(atoms, c)| self.insert(atoms.clone(), *c));
        self
    }

    fn times(&self, other: &Self) -> Self {
        let mut result = Self::default();
        for (a, x) in &self.0 {
            for (b, y) in &other.0 {
                let mut atoms = [a.as_slice(), b.as_slice()].concat();
                atoms.sort();
                result.insert(atoms, x.wrapping_mul(*y));
            }
        }
        result
    }

    /// Parts whose coefficient is a multiple of `divisor`, already divided, and the rest.
    fn split(self, divisor: i64) -> (Self, Self) {
        let (even, rest): (BTreeMap<_, _>, BTreeMap<_, _>) = self.0.into_iter().partition(|(_, c)| c % divisor == 0);
        (Self(even.into_iter().map(|(atoms, c)| (atoms, c / divisor)).collect()), Self(rest))
    }

    fn into_expr(self) -> Expr {
        let term = |(mut atoms, coefficient): (Vec<Expr>, i64)| {
            atoms.insert(0, Expr::Int(coefficient));
            Expr::mul(atoms)
        };
        Expr::add(self.0.into_iter().map(term).collect())
    }
}

fn divide(numerator: Polynomial, divisor: Expr, ranges: &Ranges) -> Polynomial {
    if let Expr::Int(d @ 1..) = divisor {
        let (quotient, rest) = numerator.split(d);
        let rest = rest.into_expr();
        return match ranges.of(&rest) {
            Some((low, high)) if low >= 0 && high < d => quotient,
            Some((low, high)) if low.div_euclid(d) == high.div_euclid(d) => quotient.plus(&Polynomial::constant(low.div_euclid(d))),
            _ => quotient.plus(&Polynomial::atom(Expr::FloorDiv(Box::new(rest), Box::new(divisor)))),
        };
    }
    Polynomial::atom(Expr::FloorDiv(Box::new(numerator.into_expr()), Box::new(divisor)))
}

fn remainder(numerator: Polynomial, divisor: Expr, ranges: &Ranges) -> Polynomial {
    if let Expr::Int(d @ 1..) = divisor {
        let (_, rest) = numerator.split(d);
        let expr = rest.clone().into_expr();
        return match ranges.of(&expr) {
            Some((low, high)) if low >= 0 && high < d => rest,
            _ => Polynomial::atom(Expr::Mod(Box::new(expr), Box::new(divisor))),
        };
    }
    Polynomial::atom(Expr::Mod(Box::new(numerator.into_expr()), Box::new(divisor)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges() -> Ranges {
        let mut ranges = Ranges::default();
        ranges.add_loop("i", &Expr::Int(16));
        ranges.add_loop("j", &Expr::Int(64));
        ranges
    }

    fn form(text: &str) -> String {
        canonical(&text.parse().unwrap(), &ranges()).to_string()
    }

    #[test]
    fn one_form_for_one_element() {
        assert_eq!(form("j + 64*i"), form("i*64 + j"));
        assert_eq!(form("FloorDiv(64*i + j, 64)"), "i");
        assert_eq!(form("(64*i + j) % 64"), "j");
        assert_eq!(form("ModularIndexing(64*i + j, 64, 16)"), "i");
        assert_eq!(form("FloorDiv(64*i + j + 128, 64)"), form("i + 2"));
        assert_eq!(form("(i + 1)*(i - 1) - i*i"), "-1");
        assert_eq!(form("FloorDiv(j, 3)"), "FloorDiv(j, 3)");
    }

    #[test]
    fn strides() {
        let stride = |text: &str, var| coefficient(&canonical(&text.parse().unwrap(), &ranges()), var).map(|e| e.to_string());
        assert_eq!(stride("64*i + j + 7", "j").as_deref(), Some("1"));
        assert_eq!(stride("64*i + j + 7", "i").as_deref(), Some("64"));
        assert_eq!(stride("i*s0 + j", "i").as_deref(), Some("s0"));
        assert_eq!(stride("j", "i").as_deref(), Some("0"));
        assert_eq!(stride("FloorDiv(j, 3)", "j"), None);
        assert_eq!(stride("i*i", "i"), None);
    }

    proptest! {
        #[test]
        fn the_value_is_kept(a in -70i64..200, b in -70i64..200, c in -200i64..200, d in 1i64..70, i in 0i64..16, j in 0i64..64) {
            let lookup = |name: &str| match name { "i" => Some(i), "j" => Some(j), _ => None };
            let sum = Expr::add(vec![
                Expr::mul(vec![Expr::Int(a), Expr::var("i")]), Expr::mul(vec![Expr::Int(b), Expr::var("j")]), Expr::Int(c),
            ]);
            for expr in [
                Expr::FloorDiv(Box::new(sum.clone()), Box::new(Expr::Int(d))),
                Expr::Mod(Box::new(sum.clone()), Box::new(Expr::Int(d))),
                Expr::mul(vec![sum.clone(), sum.clone()]),
            ] {
                prop_assert_eq!(canonical(&expr, &ranges()).eval(&lookup), expr.eval(&lookup));
            }
        }
    }
}
