//! Sets of elements that an index expression reaches.

use std::collections::BTreeMap;

use super::Expr;
use super::affine::Affine;

/// Largest span of a set that is kept as bits.
const MAX_BITS: i64 = 1 << 28;
/// Most index values that are computed one by one for one expression.
const MAX_ENUMERATED: i64 = 1 << 20;

/// A set of element numbers, none negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Elements {
    /// `offset + Σ kᵢ · strideᵢ` for `kᵢ` in `0..countᵢ`, all of them distinct. Strides rise, neighbours are merged and every count is at
    /// least two, so that equal sets of this form have equal fields.
    Strided { offset: i64, dims: Vec<(i64, i64)> },
    /// Bit `i` stands for element `base + i`.
    Bits { base: i64, bits: Vec<u64> },
    /// No element.
    Empty,
}

impl Elements {
    /// The elements that `index` reaches while each variable runs over `0..extent`. `None` where a variable is unknown
    /// (data-dependent), an element would be negative, or the set is too costly to find.
    pub(super) fn of(index: &Expr, extents: &BTreeMap<String, i64>) -> Option<Self> {
        let variables = index.variables();
        if variables.iter().any(|name| !extents.contains_key(*name)) {
            return None;
        }
        if extents.values().any(|extent| *extent <= 0) {
            return Some(Self::Empty);
        }
        let mut sum = Affine::default();
        let mut rest = Vec::new();
        let terms = if let Expr::Add(terms) = index { terms.as_slice() } else { std::slice::from_ref(index) };
        for term in terms {
            match Affine::of(term) {
                Some(affine) => sum = sum.plus(&affine)?,
                None => rest.push(term.clone()),
            }
        }
        // Terms that share a variable with one that is not affine must be enumerated with it; the others move the whole set.
        let mut set = Bitmap::single(0);
        if !rest.is_empty() {
            let mixed = Expr::add(rest);
            let mut together = vec![mixed.clone()];
            for name in mixed.variables() {
                if let Some(factor) = sum.terms.remove(name) {
                    together.push(Expr::mul(vec![Expr::Int(factor), Expr::var(name)]));
                }
            }
            set = Bitmap::enumerate(&Expr::add(together), extents)?;
        }
        let mut dims = Vec::new();
        let mut offset = sum.constant;
        for (name, factor) in &sum.terms {
            let count = *extents.get(name)?;
            if *factor < 0 {
                offset = offset.checked_add(factor.checked_mul(count - 1)?)?;
            }
            if count > 1 {
                dims.push((factor.checked_abs()?, count));
            }
        }
        if set == Bitmap::single(0)
            && let Some(dims) = injective(dims.clone())
        {
            return (offset >= 0).then_some(Self::Strided { offset, dims });
        }
        let set = dims.into_iter().try_fold(set, |set, (stride, count)| set.repeat(stride, count))?;
        let base = set.base.checked_add(offset).filter(|base| *base >= 0)?;
        Some(Self::Bits { base, bits: set.bits })
    }

    /// `count` elements from `first` on.
    pub(super) fn run(first: i64, count: i64) -> Self {
        match count {
            ..=0 => Self::Empty,
            1 => Self::Strided { offset: first, dims: Vec::new() },
            _ => Self::Strided { offset: first, dims: vec![(1, count)] },
        }
    }

    /// Number of elements.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Strided { dims, .. } => dims.iter().map(|(_, count)| *count as u64).product(),
            Self::Bits { bits, .. } => bits.iter().map(|word| u64::from(word.count_ones())).sum(),
            Self::Empty => 0,
        }
    }

    /// Both together. `None` where that is too large to find.
    pub(super) fn union(self, other: Self) -> Option<Self> {
        if other.within(&self) {
            return Some(self);
        }
        if self.within(&other) {
            return Some(other);
        }
        let (mut all, other) = (self.bitmap()?, other.bitmap()?);
        all.grow(&other)?;
        all.merge(&other, |a, b| a | b);
        Some(Self::Bits { base: all.base, bits: all.bits })
    }

    /// What is in this set and not in `other`. `None` where that is too large to find.
    pub(super) fn without(self, other: &Self) -> Option<Self> {
        if self.within(other) {
            return Some(Self::Empty);
        }
        if *other == Self::Empty {
            return Some(self);
        }
        let (mut all, other) = (self.bitmap()?, other.clone().bitmap()?);
        all.grow(&other)?;
        all.merge(&other, |a, b| a & !b);
        let empty = all.bits.iter().all(|word| *word == 0);
        Some(if empty { Self::Empty } else { Self::Bits { base: all.base, bits: all.bits } })
    }

    /// True where this set is seen to lie in `other`; false decides nothing.
    pub(super) fn within(&self, other: &Self) -> bool {
        if *self == Self::Empty || self == other {
            return true;
        }
        let (Self::Strided { offset, dims }, Some((low, high))) = (other, self.bounds()) else { return false };
        let run = match dims.as_slice() {
            [] => 1,
            [(1, count)] => *count,
            _ => return false,
        };
        *offset <= low && high - *offset < run
    }

    /// Least and greatest element.
    fn bounds(&self) -> Option<(i64, i64)> {
        match self {
            Self::Strided { offset, dims } => {
                let span: i64 = dims.iter().map(|(stride, count)| stride * (count - 1)).sum();
                Some((*offset, offset.checked_add(span)?))
            }
            Self::Bits { base, bits } => {
                let first = bits.iter().position(|word| *word != 0)?;
                let last = bits.iter().rposition(|word| *word != 0)?;
                let number = |word: usize, bit: u32| base.checked_add(64 * word as i64 + i64::from(bit));
                Some((number(first, bits[first].trailing_zeros())?, number(last, 63 - bits[last].leading_zeros())?))
            }
            Self::Empty => None,
        }
    }

    fn bitmap(self) -> Option<Bitmap> {
        match self {
            Self::Strided { offset, dims } => {
                let mut set = dims.into_iter().try_fold(Bitmap::single(0), |set, (stride, count)| set.repeat(stride, count))?;
                set.base = offset;
                Some(set)
            }
            Self::Bits { base, bits } => Some(Bitmap { base, bits }),
            Self::Empty => Some(Bitmap { base: 0, bits: Vec::new() }),
        }
    }
}

/// `dims` sorted and merged, if no two combinations of them meet.
fn injective(mut dims: Vec<(i64, i64)>) -> Option<Vec<(i64, i64)>> {
    dims.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::new();
    let mut reach = 0i64;
    for (stride, count) in dims {
        if stride <= reach {
            return None;
        }
        reach = reach.checked_add(stride.checked_mul(count - 1)?)?;
        match merged.last_mut() {
            Some((inner, n)) if inner.checked_mul(*n) == Some(stride) => *n = n.checked_mul(count)?,
            _ => merged.push((stride, count)),
        }
    }
    Some(merged)
}

/// Bit `i` stands for number `base + i`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bitmap {
    base: i64,
    bits: Vec<u64>,
}

impl Bitmap {
    fn single(number: i64) -> Self {
        Self { base: number, bits: vec![1] }
    }

    fn zeros(base: i64, length: i64) -> Option<Self> {
        (0..=MAX_BITS).contains(&length).then(|| Self { base, bits: vec![0; (length as usize).div_ceil(64)] })
    }

    /// The values of `expr`, computed one by one.
    fn enumerate(expr: &Expr, extents: &BTreeMap<String, i64>) -> Option<Self> {
        let axes: Vec<(&str, i64)> = expr.variables().into_iter().filter_map(|name| Some((name, *extents.get(name)?))).collect();
        let total = axes.iter().try_fold(1i64, |total, (_, extent)| total.checked_mul(*extent))?;
        if total > MAX_ENUMERATED {
            return None;
        }
        let mut at = vec![0i64; axes.len()];
        let mut values = Vec::with_capacity(total as usize);
        for _ in 0..total {
            values.push(expr.eval(&|name| axes.iter().position(|(axis, _)| *axis == name).map(|k| at[k]))?);
            for (k, (_, extent)) in axes.iter().enumerate().rev() {
                at[k] += 1;
                if at[k] < *extent {
                    break;
                }
                at[k] = 0;
            }
        }
        let (low, high) = (*values.iter().min()?, *values.iter().max()?);
        let mut set = Self::zeros(low, high.checked_sub(low)?.checked_add(1)?)?;
        for value in values {
            let bit = (value - low) as usize;
            set.bits[bit / 64] |= 1 << (bit % 64);
        }
        Some(set)
    }

    fn length(&self) -> i64 {
        64 * self.bits.len() as i64
    }

    /// The set moved by `0, stride, …, (count - 1) · stride`, all together. `stride` is positive or zero.
    fn repeat(self, stride: i64, count: i64) -> Option<Self> {
        let reach = stride.checked_mul(count - 1)?.checked_add(self.length())?;
        let mut set = Self::zeros(self.base, reach)?;
        set.bits[..self.bits.len()].copy_from_slice(&self.bits);
        let mut have = 1;
        while have < count {
            let more = have.min(count - have);
            set.or_shifted((stride * more) as usize);
            have += more;
        }
        Some(set)
    }

    /// `self |= self << shift`; what leaves the end is not set.
    fn or_shifted(&mut self, shift: usize) {
        let (words, bits) = (shift / 64, shift % 64);
        // From the end, so that a word is read before it changes.
        for to in (words..self.bits.len()).rev() {
            let from = to - words;
            let mut word = self.bits[from] << bits;
            if bits > 0 && from > 0 {
                word |= self.bits[from - 1] >> (64 - bits);
            }
            self.bits[to] |= word;
        }
    }

    /// Makes room for what is in `other`.
    fn grow(&mut self, other: &Self) -> Option<()> {
        // Words must line up: both bases are moved down to a multiple of 64.
        let low = self.base.min(other.base).div_euclid(64) * 64;
        let high = self.base.checked_add(self.length())?.max(other.base.checked_add(other.length())?);
        let mut grown = Self::zeros(low, high.checked_sub(low)?.checked_add(64)?)?;
        grown.merge(self, |a, b| a | b);
        *self = grown;
        Some(())
    }

    /// Combines each word with the bits of `other` at the same numbers; `other` lies within this set's span.
    fn merge(&mut self, other: &Self, combine: impl Fn(u64, u64) -> u64) {
        let shift = (other.base - self.base) as usize;
        let (words, bits) = (shift / 64, shift % 64);
        for (k, word) in other.bits.iter().enumerate() {
            let low = &mut self.bits[words + k];
            *low = combine(*low, word << bits);
            if bits > 0 && word >> (64 - bits) != 0 {
                let high = &mut self.bits[words + k + 1];
                *high = combine(*high, word >> (64 - bits));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn elements(index: &str, extents: &[(&str, i64)]) -> Option<Elements> {
        let extents = extents.iter().map(|(name, extent)| ((*name).to_owned(), *extent)).collect();
        Elements::of(&index.parse().unwrap(), &extents)
    }

    fn count(index: &str, extents: &[(&str, i64)]) -> Option<u64> {
        elements(index, extents).map(|e| e.count())
    }

    #[test]
    fn rows_windows_and_divisions() {
        assert_eq!(elements("256*i + j", &[("i", 64), ("j", 256)]), elements("k", &[("k", 64 * 256)]));
        assert_eq!(count("i", &[("i", 64), ("j", 256)]), Some(64));
        assert_eq!(count("i + j", &[("i", 62), ("j", 3)]), Some(64), "overlapping windows");
        assert_eq!(count("2*i + 3*j", &[("i", 2), ("j", 2)]), Some(4));
        assert_eq!(count("63 - i", &[("i", 64)]), Some(64));
        assert_eq!(count("FloorDiv(i, 4) + 10*j", &[("i", 64), ("j", 3)]), Some(36));
        assert_eq!(count("i", &[("i", 0)]), Some(0));
        assert_eq!(count("tmp0", &[("i", 4)]), None, "data-dependent");
        assert_eq!(count("i - 1", &[("i", 4)]), None, "negative");
    }

    #[test]
    fn halves_make_a_whole() {
        let half = elements("8*i + j", &[("i", 4), ("j", 4)]).unwrap();
        let other = elements("8*i + j + 4", &[("i", 4), ("j", 4)]).unwrap();
        let whole = half.clone().union(other.clone()).unwrap();
        assert_eq!(whole.count(), 32);
        assert_eq!(whole.without(&half).unwrap().count(), other.count());
    }

    proptest! {
        #[test]
        fn agree_with_enumeration(a in 0i64..20, b in 0i64..70, m in 1i64..6, n in 1i64..80, o in 0i64..100, p in 0i64..100) {
            let extents = BTreeMap::from([("i".to_owned(), m), ("j".to_owned(), n)]);
            let parse = |shift: i64| format!("{a}*i + {b}*j + {shift}").parse::<Expr>().unwrap();
            let naive = |shift: i64| (0..m).flat_map(|i| (0..n).map(move |j| a * i + b * j + shift)).collect::<std::collections::BTreeSet<_>>();
            let (first, second) = (Elements::of(&parse(o), &extents).unwrap(), Elements::of(&parse(p), &extents).unwrap());
            let (one, two) = (naive(o), naive(p));
            prop_assert_eq!(first.count() as usize, one.len());
            prop_assert_eq!(first.clone().union(second.clone()).unwrap().count() as usize, one.union(&two).count());
            prop_assert_eq!(first.without(&second).unwrap().count() as usize, one.difference(&two).count());
        }
    }
}
