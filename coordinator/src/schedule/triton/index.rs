//! Index expressions as Triton, over the variables that a block defines.

use std::collections::BTreeMap;

use kernelopt_shared::meaning::{Axis, Expr};

use super::super::index::{Ranges, canonical};
use super::super::loops::{extents, iterations};

/// A dimension of a program's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// What a program has one of: a number, not a dimension of its block.
    Y,
    /// Rows; the only dimension of a flat kernel.
    X,
    /// Along a row.
    R,
}

impl Direction {
    /// How its names begin.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Y => "y",
            Self::X => "x",
            Self::R => "r",
        }
    }
}

/// Neighbouring loops of one dimension as one number: `(index // inner) % extent`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The dimension.
    pub direction: Direction,
    /// Which list of its loops: an inner domain each.
    pub group: usize,
    /// First loop of the part.
    pub first: usize,
    /// Last loop of the part.
    pub last: usize,
}

/// The loops behind each dimension, and how expressions over them are spelled.
#[derive(Debug, Default)]
pub struct Spelling {
    groups: BTreeMap<(Direction, usize), Vec<Axis>>,
    /// Size symbols, and arguments, as expressions over arguments.
    symbols: BTreeMap<String, Expr>,
    /// Names of parts that were asked for.
    parts: BTreeMap<Part, String>,
    /// A symbol that no argument holds, although it was asked for.
    pub unknown: Option<String>,
}

impl Spelling {
    /// Loops by dimension and group, outermost first; symbols over arguments.
    pub fn new(groups: BTreeMap<(Direction, usize), Vec<Axis>>, symbols: BTreeMap<String, Expr>) -> Self {
        Self { groups, symbols, ..Self::default() }
    }

    /// The canonical expression as a sum; `argument` spells `$k`. Loops whose strides continue one another are one part.
    pub fn text(&mut self, expr: &Expr, ranges: &Ranges, argument: &dyn Fn(usize) -> String) -> String {
        let terms = match expr {
            Expr::Add(terms) => terms.as_slice(),
            single => std::slice::from_ref(single),
        };
        let mut strides: BTreeMap<(Direction, usize), BTreeMap<usize, Expr>> = BTreeMap::new();
        let (mut constant, mut others) = (0, Vec::new());
        for term in terms {
            match (self.linear(term), term) {
                (Some((direction, group, at, stride)), _) => {
                    strides.entry((direction, group)).or_default().insert(at, stride);
                }
                (None, Expr::Int(value)) => constant += value,
                (None, other) => others.push(other),
            }
        }
        let mut sum = Vec::new();
        for ((direction, group), strides) in strides.into_iter().rev() {
            for (stride, name) in self.runs(direction, group, &strides) {
                sum.push(self.scaled(&stride, Some(name), ranges, argument));
            }
        }
        for term in others {
            sum.push(self.scaled(term, None, ranges, argument));
        }
        if constant != 0 || sum.is_empty() {
            sum.push((constant, None));
        }
        written(&sum)
    }

    /// A term as a number and what it multiplies: `factor`, and a name beside it.
    fn scaled(
        &mut self,
        factor: &Expr,
        name: Option<String>,
        ranges: &Ranges,
        argument: &dyn Fn(usize) -> String,
    ) -> (i64, Option<String>) {
        let (number, rest) = match factor {
            Expr::Int(number) => return (*number, name),
            Expr::Mul(factors) => match factors.split_first() {
                Some((Expr::Int(number), rest)) => (*number, Expr::mul(rest.to_vec())),
                _ => (1, factor.clone()),
            },
            other => (1, other.clone()),
        };
        let text = self.nested(&rest, ranges, argument);
        (number, Some(name.map_or_else(|| text.clone(), |name| format!("{text}*{name}"))))
    }

    /// A term that is a stride times one loop variable: the place of the variable, and the stride.
    fn linear(&self, term: &Expr) -> Option<(Direction, usize, usize, Expr)> {
        let factors = match term {
            Expr::Mul(factors) => factors.as_slice(),
            single => std::slice::from_ref(single),
        };
        let is_loop = |factor: &&Expr| factor.variables().iter().any(|var| self.place(var).is_some());
        let (loops, stride): (Vec<&Expr>, Vec<&Expr>) = factors.iter().partition(is_loop);
        let [Expr::Var(var)] = loops.as_slice() else { return None };
        let (direction, group, at) = self.place(var)?;
        let is_size = |factor: &&Expr| matches!(factor, Expr::Int(_)) || matches!(factor, Expr::Var(name) if !name.starts_with('$'));
        stride.iter().all(is_size).then(|| (direction, group, at, Expr::mul(stride.into_iter().cloned().collect())))
    }

    /// Parts in whose terms the group's share of a sum is shortest, innermost first, with their strides.
    fn runs(&mut self, direction: Direction, group: usize, strides: &BTreeMap<usize, Expr>) -> Vec<(Expr, String)> {
        let axes = self.groups[&(direction, group)].clone();
        let mut runs: Vec<(usize, usize, Expr)> = Vec::new();
        for (at, stride) in strides.iter().rev() {
            let continues = |(first, ..): &&mut (usize, usize, Expr)| {
                let next = Expr::mul(vec![strides[first].clone(), axes[*first].extent.clone()]);
                *first == at + 1 && canonical(&next, &Ranges::default()) == canonical(stride, &Ranges::default())
            };
            match runs.last_mut().filter(|run| continues(run)) {
                Some(run) => run.0 = *at,
                None => runs.push((*at, *at, stride.clone())),
            }
        }
        runs.into_iter().map(|(first, last, stride)| (stride, self.name(Part { direction, group, first, last }))).collect()
    }

    fn place(&self, var: &str) -> Option<(Direction, usize, usize)> {
        self.groups.iter().find_map(|((direction, group), axes)| Some((*direction, *group, axes.iter().position(|axis| axis.var == var)?)))
    }

    /// The dimension that a loop variable belongs to.
    pub fn direction(&self, var: &str) -> Option<Direction> {
        self.place(var).map(|(direction, ..)| direction)
    }

    /// All loop variables of a dimension's group.
    pub fn axes(&self, direction: Direction, group: usize) -> &[Axis] {
        self.groups.get(&(direction, group)).map_or(&[], Vec::as_slice)
    }

    /// Groups of a dimension.
    pub fn groups(&self, direction: Direction) -> impl Iterator<Item = usize> + '_ {
        self.groups.keys().filter(move |(d, _)| *d == direction).map(|(_, group)| *group)
    }

    /// Name of a part: that of the whole index, or one of its own.
    fn name(&mut self, part: Part) -> String {
        let prefix = part.direction.prefix();
        if part.first == 0 && part.last + 1 == self.axes(part.direction, part.group).len() {
            return format!("{prefix}index");
        }
        let number = self.parts.keys().filter(|other| other.direction == part.direction).count();
        self.parts.entry(part).or_insert_with(|| format!("{prefix}{number}")).clone()
    }

    /// Definitions of the parts of a dimension that `body` uses, in the order of their names.
    pub fn definitions(&mut self, direction: Direction, body: &[String]) -> Vec<String> {
        let used = |name: &str| body.iter().any(|line| words(line).any(|word| word == name));
        let is_asked = |(part, name): &(&Part, &String)| part.direction == direction && used(name);
        let mut parts: Vec<(Part, String)> = self.parts.iter().filter(is_asked).map(|(part, name)| (part.clone(), name.clone())).collect();
        parts.sort_by_key(|(_, name)| (name.len(), name.clone()));
        parts.into_iter().map(|(part, name)| format!("{name} = {}", self.definition(&part))).collect()
    }

    fn definition(&mut self, part: &Part) -> String {
        let axes = self.axes(part.direction, part.group).to_vec();
        let mut product = |axes: &[Axis]| match iterations(&extents(axes)) {
            Expr::Int(1) => None,
            Expr::Int(product) => Some(product.to_string()),
            Expr::Var(symbol) => Some(self.plain(&Expr::Var(symbol))),
            other => Some(format!("({})", self.plain(&other))),
        };
        let mut text = format!("{}index", part.direction.prefix());
        if let Some(inner) = product(&axes[part.last + 1..]) {
            text = format!("{text} // {inner}");
        }
        if part.first > 0
            && let Some(extent) = product(&axes[part.first..=part.last])
        {
            text = format!("{text} % {extent}");
        }
        text
    }

    /// An expression over size symbols and arguments.
    pub fn plain(&mut self, expr: &Expr) -> String {
        // Sizes are one or more, so that their quotients round alike either way.
        let mut ranges = Ranges::default();
        expr.variables().into_iter().for_each(|name| ranges.add_symbol(name));
        self.text(expr, &ranges, &|k| format!("${k}"))
    }

    /// An expression inside another: in parentheses where it has to be.
    fn nested(&mut self, expr: &Expr, ranges: &Ranges, argument: &dyn Fn(usize) -> String) -> String {
        match expr {
            Expr::Int(value) if *value < 0 => format!("({value})"),
            Expr::Int(value) => value.to_string(),
            Expr::Var(var) => self.variable(var, argument),
            Expr::Add(_) => format!("({})", self.text(expr, ranges, argument)),
            Expr::Mul(factors) => factors.iter().map(|factor| self.nested(factor, ranges, argument)).collect::<Vec<_>>().join("*"),
            Expr::FloorDiv(a, b) | Expr::Mod(a, b) => {
                let (left, right) = (self.nested(a, ranges, argument), self.nested(b, ranges, argument));
                // Triton's own division rounds to zero.
                let exact = ranges.is_natural(a) && ranges.is_natural(b);
                match (expr, exact) {
                    (Expr::FloorDiv(..), true) => format!("({left} // {right})"),
                    (Expr::FloorDiv(..), false) => format!("triton_helpers.div_floor_integer({left}, {right})"),
                    (_, true) => format!("({left} % {right})"),
                    (_, false) => format!("triton_helpers.remainder_integer({left}, {right})"),
                }
            }
            Expr::Min(items) => self.folded("tl.minimum", items, ranges, argument),
            Expr::Max(items) => self.folded("tl.maximum", items, ranges, argument),
            Expr::Where(condition, a, b) => {
                let (left, right) = (self.nested(&condition.left, ranges, argument), self.nested(&condition.right, ranges, argument));
                let (a, b) = (self.nested(a, ranges, argument), self.nested(b, ranges, argument));
                format!("tl.where({left} {} {right}, {a}, {b})", condition.comparison.symbol())
            }
        }
    }

    fn folded(&mut self, function: &str, items: &[Expr], ranges: &Ranges, argument: &dyn Fn(usize) -> String) -> String {
        let items: Vec<String> = items.iter().map(|item| self.nested(item, ranges, argument)).collect();
        items.into_iter().reduce(|so_far, item| format!("{function}({so_far}, {item})")).unwrap_or_default()
    }

    fn variable(&mut self, var: &str, argument: &dyn Fn(usize) -> String) -> String {
        if let Some(k) = var.strip_prefix('$').and_then(|k| k.parse().ok()) {
            return argument(k);
        }
        if let Some((direction, group, at)) = self.place(var) {
            return self.name(Part { direction, group, first: at, last: at });
        }
        match self.symbols.get(var).cloned() {
            Some(Expr::Var(name)) => name,
            Some(other) => format!("({})", self.plain(&other)),
            None => {
                self.unknown.get_or_insert_with(|| var.to_owned());
                var.to_owned()
            }
        }
    }
}

/// `a + 4*b - 3`.
fn written(sum: &[(i64, Option<String>)]) -> String {
    let mut text = String::new();
    for (factor, name) in sum {
        let magnitude = factor.unsigned_abs();
        let term = match name {
            None => magnitude.to_string(),
            Some(name) if magnitude == 1 => name.clone(),
            Some(name) => format!("{magnitude}*{name}"),
        };
        match (text.is_empty(), *factor < 0) {
            (true, false) => text.push_str(&term),
            (true, true) => text.push_str(&format!("-{term}")),
            (false, false) => text.push_str(&format!(" + {term}")),
            (false, true) => text.push_str(&format!(" - {term}")),
        }
    }
    text
}

/// Identifiers and numbers in a line.
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
