//! How a GPU kernel is launched: data that we evaluate ourselves, never host code.

use std::collections::{BTreeMap, BTreeSet};

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dtype::Dtype;
use crate::meaning::Expr;

/// The launch of one kernel of a Triton or CUDA source in place of a target's.
///
/// Its runtime arguments are the target's own, in the target's order, unless it names [others](Launch::arguments).
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// Name of the kernel function in the source.
    pub entry: String,
    /// Programs (Triton) or blocks (CUDA) along x, y and z, over the target's size arguments and [`Launch::constants`].
    pub grid: [Expr; 3],
    /// Compile-time constants by parameter name (`tl.constexpr` parameters; macros in CUDA C++).
    #[serde(default)]
    pub constants: BTreeMap<String, i64>,
    /// Names of the runtime arguments that may be taken for multiples of 16 (bytes for a pointer), as the compiler found them.
    #[serde(default)]
    pub divisible_by_16: BTreeSet<String>,
    /// Warps of 32 threads in a program or block.
    pub num_warps: u32,
    /// Stages of software pipelining; Triton only.
    #[serde(default = "one")]
    pub num_stages: u32,
    /// What is passed, in order: names of arguments of the target and of [`Scratch`]; empty for exactly the target's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
}

/// A temporary device buffer of a candidate: there from its first launch to its last, and nobody else's meanwhile. It holds
/// anything before, and may hold anything afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scratch {
    /// By which launches take it; no argument of the target has it.
    pub name: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// How many, over the target's size arguments and the constants of the first launch.
    pub elements: Expr,
    /// All bytes are zero before the first launch. That takes time, and is timed.
    #[serde(default)]
    pub zeroed: bool,
}

const fn one() -> u32 {
    1
}

/// Greatest extent of a grid along x (CUDA C++ Programming Guide, compute capabilities 3.0 and later).
const MAX_GRID_X: i64 = (1 << 31) - 1;
/// Greatest extent along y and z.
const MAX_GRID_YZ: i64 = 65_535;

/// Why a launch is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum LaunchError {
    #[error("the grid's {axis} extent, {expr}, has no value")]
    Unbound { axis: char, expr: String },
    #[error("the grid's {axis} extent is {extent}; it must be between 1 and {most}")]
    Extent { axis: char, extent: i64, most: i64 },
    #[error("{0} warps in a program; 1, 2, 4, 8, 16 or 32 are possible")]
    Warps(u32),
    #[error("{0} launches; at most {MAX_LAUNCHES} are possible")]
    Launches(usize),
    #[error("{0} scratch buffers; at most {MAX_SCRATCH} are possible")]
    Buffers(usize),
    #[error("{0:?} cannot be the name of a scratch buffer: it is taken, or no plain name")]
    Name(String),
    #[error("{entry} is passed {name}, which is neither an argument of the target nor a scratch buffer")]
    Unknown { entry: String, name: String },
    #[error("the size of scratch buffer {name}, {expr}, has no value")]
    Unsized { name: String, expr: String },
    #[error("scratch buffer {name} has {elements} elements")]
    Elements { name: String, elements: i64 },
}

/// Most launches of a candidate.
pub const MAX_LAUNCHES: usize = 8;
/// Most scratch buffers of a candidate.
pub const MAX_SCRATCH: usize = 8;
/// Longest name of a scratch buffer: it becomes one in the optimised file.
const MAX_NAME: usize = 64;

/// A candidate's identity is made of this text: that of a launch of the target's own arguments stays what it was before there were
/// others.
impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, grid, constants, divisible_by_16, num_warps, num_stages, arguments } = self;
        let mut text = f.debug_struct("Launch");
        text.field("entry", entry).field("grid", grid).field("constants", constants).field("divisible_by_16", divisible_by_16);
        text.field("num_warps", num_warps).field("num_stages", num_stages);
        if !arguments.is_empty() {
            text.field("arguments", arguments);
        }
        text.finish()
    }
}

impl Scratch {
    /// Its size, where the target's size arguments and the first launch's constants have the values that `value` gives.
    ///
    /// # Errors
    /// The size has no value, or there is nothing, or more than can be counted.
    pub fn bytes(&self, value: &impl Fn(&str) -> Option<i64>) -> Result<u64, LaunchError> {
        let Self { name, elements, .. } = self;
        let count = elements.eval(value).ok_or_else(|| LaunchError::Unsized { name: name.clone(), expr: elements.to_string() })?;
        let bytes = u64::try_from(count).ok().filter(|count| *count > 0).and_then(|c| c.checked_mul(self.dtype.size_bytes() as u64));
        bytes.ok_or_else(|| LaunchError::Elements { name: name.clone(), elements: count })
    }

    /// True for a name that can stand in Python and in C++.
    pub fn has_plain_name(&self) -> bool {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (1..=MAX_NAME).contains(&self.name.len()) && self.name.bytes().all(is_word) && !self.name.as_bytes()[0].is_ascii_digit()
    }
}

impl Launch {
    /// The grid's extents, where the target's size arguments have the values that `size` gives.
    ///
    /// # Errors
    /// An extent names something that has no value, or is out of the device's bounds.
    pub fn grid(&self, size: &impl Fn(&str) -> Option<i64>) -> Result<[u32; 3], LaunchError> {
        if !self.num_warps.is_power_of_two() || self.num_warps > 32 {
            return Err(LaunchError::Warps(self.num_warps));
        }
        let lookup = |name: &str| self.constants.get(name).copied().or_else(|| size(name));
        let mut extents = [0; 3];
        for (i, (axis, most)) in [('x', MAX_GRID_X), ('y', MAX_GRID_YZ), ('z', MAX_GRID_YZ)].into_iter().enumerate() {
            let expr = &self.grid[i];
            let extent = expr.eval(&lookup).ok_or_else(|| LaunchError::Unbound { axis, expr: expr.to_string() })?;
            if !(1..=most).contains(&extent) {
                return Err(LaunchError::Extent { axis, extent, most });
            }
            extents[i] = u32::try_from(extent).unwrap_or(u32::MAX);
        }
        Ok(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(x: &str, y: &str) -> Launch {
        let grid = [x.parse().unwrap(), y.parse().unwrap(), Expr::Int(1)];
        let constants = BTreeMap::from([("XBLOCK".to_owned(), 128)]);
        Launch { entry: "k".into(), grid, constants, divisible_by_16: BTreeSet::new(), num_warps: 4, num_stages: 1, arguments: Vec::new() }
    }

    #[test]
    fn the_grid_ranges_over_sizes_and_constants() {
        let grid = launch("(xnumel + XBLOCK - 1) // XBLOCK", "2").grid(&|name| (name == "xnumel").then_some(1000));
        assert_eq!(grid, Ok([8, 2, 1]));
    }

    #[test]
    fn unbound_empty_and_oversized_grids_are_refused() {
        let none = |_: &str| None;
        assert!(matches!(launch("ynumel", "1").grid(&none), Err(LaunchError::Unbound { axis: 'x', .. })));
        assert!(matches!(launch("0", "1").grid(&none), Err(LaunchError::Extent { axis: 'x', extent: 0, .. })));
        assert!(matches!(launch("1", "65536").grid(&none), Err(LaunchError::Extent { axis: 'y', .. })));
        let odd = Launch { num_warps: 3, ..launch("1", "1") };
        assert_eq!(odd.grid(&none), Err(LaunchError::Warps(3)));
    }

    #[test]
    fn scratch_has_a_size_and_a_plain_name() {
        let scratch = |name: &str, elements: &str| Scratch {
            name: name.into(),
            dtype: Dtype::Float32,
            elements: elements.parse().unwrap(),
            zeroed: false,
        };
        let rows = |name: &str| (name == "xnumel").then_some(10);
        assert_eq!(scratch("parts", "3 * xnumel").bytes(&rows), Ok(120));
        assert!(matches!(scratch("parts", "3 * ynumel").bytes(&rows), Err(LaunchError::Unsized { .. })));
        for none in ["0", "xnumel - 11", "4611686018427387904"] {
            assert!(matches!(scratch("parts", none).bytes(&rows), Err(LaunchError::Elements { .. })), "{none}");
        }
        for name in ["", "a b", "1st", "x;y", &"x".repeat(65)] {
            assert!(!scratch(name, "1").has_plain_name(), "{name}");
        }
    }
}
