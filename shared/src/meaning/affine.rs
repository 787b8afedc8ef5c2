//! Affine index expressions: `constant + Σ coefficient · variable`.

use std::collections::BTreeMap;

use super::expr::Expr;

/// An integer that is linear in its variables. No term has a zero coefficient.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affine {
    /// Value where every variable is zero.
    pub constant: i64,
    /// Coefficient of each variable.
    pub terms: BTreeMap<String, i64>,
}

impl Affine {
    /// A constant.
    pub const fn constant(constant: i64) -> Self {
        Self { constant, terms: BTreeMap::new() }
    }

    /// Reads `expr` as affine. `None` where it is not, or where a coefficient overflows.
    pub fn of(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::Int(value) => Some(Self::constant(*value)),
            Expr::Var(name) => Some(Self { constant: 0, terms: BTreeMap::from([(name.clone(), 1)]) }),
            Expr::Add(terms) => terms.iter().try_fold(Self::default(), |sum, term| sum.plus(&Self::of(term)?)),
            Expr::Mul(factors) => factors.iter().try_fold(Self::constant(1), |product, factor| product.times(&Self::of(factor)?)),
            _ => expr.eval(&|_| None).map(Self::constant),
        }
    }

    /// The expression, terms in the order of their variables' names.
    pub fn to_expr(&self) -> Expr {
        let terms = self.terms.iter().map(|(name, factor)| Expr::mul(vec![Expr::Int(*factor), Expr::var(name)]));
        Expr::add(terms.chain([Expr::Int(self.constant)]).collect())
    }

    /// Coefficient of `variable`, zero where it does not occur.
    pub fn coefficient(&self, variable: &str) -> i64 {
        self.terms.get(variable).copied().unwrap_or(0)
    }

    /// Least and greatest value where each variable runs over `0..extent`. `None` for a variable that `extent` does not
    /// know, one with an empty range, or an overflow.
    pub fn range(&self, extent: &impl Fn(&str) -> Option<i64>) -> Option<(i64, i64)> {
        self.terms.iter().try_fold((self.constant, self.constant), |(low, high), (name, factor)| {
            let last = extent(name)?.checked_sub(1).filter(|last| *last >= 0)?;
            let span = factor.checked_mul(last)?;
            Some((low.checked_add(span.min(0))?, high.checked_add(span.max(0))?))
        })
    }

    /// Sum.
    pub fn plus(&self, other: &Self) -> Option<Self> {
        let mut sum = self.clone();
        sum.constant = sum.constant.checked_add(other.constant)?;
        for (name, factor) in &other.terms {
            let total = sum.coefficient(name).checked_add(*factor)?;
            if total == 0 {
                sum.terms.remove(name);
            } else {
                sum.terms.insert(name.clone(), total);
            }
        }
        Some(sum)
    }

    /// Product; `None` unless one side is a constant.
    fn times(&self, other: &Self) -> Option<Self> {
        let (scale, affine) = match (self.terms.is_empty(), other.terms.is_empty()) {
            (true, _) => (self.constant, other),
            (_, true) => (other.constant, self),
            _ => return None,
        };
        let mut product = Self::constant(affine.constant.checked_mul(scale)?);
        if scale != 0 {
            for (name, factor) in &affine.terms {
                product.terms.insert(name.clone(), factor.checked_mul(scale)?);
            }
        }
        Some(product)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn affine(text: &str) -> Option<Affine> {
        Affine::of(&text.parse().unwrap())
    }

    #[test]
    fn sums_and_scaled_sums_are_affine() {
        let found = affine("256*i0 + 2*(i1 - 3) + i1 + FloorDiv(9, 2)").unwrap();
        assert_eq!((found.constant, found.coefficient("i0"), found.coefficient("i1")), (-2, 256, 3));
        assert_eq!(affine("i0 - i0"), Some(Affine::default()));
        assert_eq!(Affine::of(&found.to_expr()), Some(found));
    }

    #[test]
    fn products_divisions_and_overflow_are_not() {
        for text in ["i0*i1", "FloorDiv(i0, 2)", "Min(i0, 3)", "9223372036854775807*i0 + 2*i0"] {
            assert_eq!(affine(text), None, "{text}");
        }
    }

    #[test]
    fn range_of_a_falling_term() {
        let extent = |name: &str| (name == "i0").then_some(8);
        assert_eq!(affine("7 - i0").unwrap().range(&extent), Some((0, 7)));
        assert_eq!(affine("i9").unwrap().range(&extent), None);
    }
}
