//! How a GPU kernel is launched: data that we evaluate ourselves, never host code.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::meaning::Expr;

/// The launch of one kernel of a Triton or CUDA source in place of a target's.
///
/// Its runtime arguments are the target's own, in the target's order: a candidate can be put where the compiler's kernel was
/// without touching the call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
        Launch { entry: "k".into(), grid, constants, divisible_by_16: BTreeSet::new(), num_warps: 4, num_stages: 1 }
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
}
