//! Which loops of a node become rows, which blocks, and which stand side by side in lanes.

use kernelopt_shared::meaning::affine::Affine;
use kernelopt_shared::meaning::{Axis, Node, Operation};

use super::program::{AffinePlan, LanePattern, Loop};

/// Most values side by side: a register of doubles then fills 8 KiB, so that a handful stays in the first-level cache.
pub(super) const LANES: usize = 1024;
/// Fewest lanes that are worth it: below, more loops are laid side by side, and what could be computed once per row is computed per lane.
const FEW_LANES: i64 = 64;
/// Shortest reduction that is folded over lanes: below, lanes are output elements.
const SHORT_REDUCTION: i64 = 16;

/// The loops of a node, arranged.
#[derive(Debug)]
pub(super) struct Shape {
    /// Outer loops, then inner loops; those inside the lane loop are in neither.
    pub(super) loops: Vec<Loop>,
    /// How many are outer.
    pub(super) outer: usize,
    /// Position of the lane loop.
    pub(super) lane_loop: Option<usize>,
    /// Lanes for each of its iterations.
    pub(super) lanes_inside: usize,
    /// True where lanes are output elements and the node reduces.
    pub(super) per_lane: bool,
    /// True where the first loop runs over output elements.
    pub(super) divisible: bool,
    axes: Vec<AxisPlace>,
}

/// Where the variable of one loop of the node is found.
#[derive(Debug)]
struct AxisPlace {
    var: String,
    extent: i64,
    /// Its loop, unless it is inside the lane loop.
    looped: Option<usize>,
    /// Lanes from one of its values to the next, if it differs between lanes.
    lanes_each: Option<usize>,
}

impl Shape {
    /// Arranges the loops of a node whose extents are plain numbers.
    pub(super) fn of(node: &Node) -> Self {
        let extent = |axis: &Axis| (axis.var.clone(), axis.extent.eval(&|_| None).unwrap_or(0));
        let iter: Vec<_> = node.iter.iter().map(extent).collect();
        let reduce: Vec<_> = node.reduce.iter().map(extent).collect();
        let reduces = node.body.iter().any(|statement| matches!(statement.operation, Operation::Reduction { .. }));
        if !reduces {
            let mut shape = Self::arrange(&[], &[iter, reduce].concat(), false);
            shape.divisible = true;
            return shape;
        }
        Self::arrange(&iter, &reduce, per_lane(node, &iter, &reduce))
    }

    /// `outer` loops make rows and `inner` loops blocks; the last loops of the one or, for `per_lane`, of the other become lanes.
    fn arrange(outer: &[(String, i64)], inner: &[(String, i64)], per_lane: bool) -> Self {
        let laned = if per_lane { outer } else { inner };
        let mut inside = 1i64;
        let mut at = laned.len().saturating_sub(1);
        while at > 0 && laned[at].1 > 0 && inside * laned[at].1 < FEW_LANES {
            inside *= laned[at].1;
            at -= 1;
        }
        let chunk = laned.get(at).map(|(_, extent)| (LANES as i64 / inside).clamp(1, (*extent).max(1)));
        let mut shape = Self {
            loops: Vec::new(),
            outer: 0,
            lane_loop: None,
            lanes_inside: inside as usize,
            per_lane,
            divisible: !outer.is_empty(),
            axes: Vec::new(),
        };
        for (is_inner, axes) in [(false, outer), (true, inner)] {
            let mut lanes_each = inside;
            for (position, (var, extent)) in axes.iter().enumerate() {
                let (var, extent) = (var.clone(), *extent);
                let in_lanes = is_inner != per_lane;
                if in_lanes && position > at {
                    lanes_each /= extent.max(1);
                    shape.axes.push(AxisPlace { var, extent, looped: None, lanes_each: Some(lanes_each as usize) });
                    continue;
                }
                let is_lane_loop = in_lanes && position == at;
                let looped = shape.loops.len();
                shape.loops.push(Loop { extent, step: if is_lane_loop { chunk.unwrap_or(1) } else { 1 } });
                if is_lane_loop {
                    shape.lane_loop = Some(looped);
                }
                shape.axes.push(AxisPlace { var, extent, looped: Some(looped), lanes_each: is_lane_loop.then_some(inside as usize) });
            }
            if !is_inner {
                shape.outer = shape.loops.len();
            }
        }
        shape
    }

    fn axis(&self, var: &str) -> Option<&AxisPlace> {
        self.axes.iter().find(|axis| axis.var == var)
    }

    /// Trip count of a loop variable.
    pub(super) fn extent(&self, var: &str) -> Option<i64> {
        self.axis(var).map(|axis| axis.extent)
    }

    /// True where some loop has no iteration, so that nothing inside runs.
    pub(super) fn is_empty(&self) -> bool {
        self.axes.iter().any(|axis| axis.extent == 0)
    }

    /// Whether a loop variable differs between lanes.
    pub(super) fn is_wide(&self, var: &str) -> bool {
        self.axis(var).is_some_and(|axis| axis.lanes_each.is_some())
    }

    /// Whether a loop variable changes from block to block of a row, or within a block that is one of several.
    pub(super) fn is_inner(&self, var: &str) -> bool {
        let lane_loop_is_inner = self.lane_loop.is_some_and(|looped| looped >= self.outer);
        self.axis(var).is_some_and(|axis| axis.looped.map_or(lane_loop_is_inner, |looped| looped >= self.outer))
    }

    /// An affine index in terms of these loops. All its variables are loop variables. One that is a place in memory was found to
    /// stay inside; one that is a plain value may wrap.
    pub(super) fn affine(&self, affine: &Affine) -> AffinePlan {
        let mut coefficients = vec![0; self.loops.len()];
        let width = self.lane_loop.map_or(1, |looped| self.loops[looped].step as usize * self.lanes_inside);
        let mut lanes = vec![0i64; width];
        for axis in &self.axes {
            let factor = affine.coefficient(&axis.var);
            if let Some(looped) = axis.looped {
                coefficients[looped] = factor;
            }
            if let (Some(each), true) = (axis.lanes_each, factor != 0) {
                let turns = if axis.looped.is_some() { usize::MAX } else { axis.extent as usize };
                for (lane, offset) in lanes.iter_mut().enumerate() {
                    *offset = offset.wrapping_add(factor.wrapping_mul(((lane / each) % turns) as i64));
                }
            }
        }
        let stride = lanes.get(1).copied().unwrap_or(0);
        let strided = lanes.iter().enumerate().all(|(lane, offset)| *offset == stride.wrapping_mul(lane as i64));
        let lanes = if strided { LanePattern::Strided(stride) } else { LanePattern::Table(lanes) };
        AffinePlan { constant: affine.constant, coefficients, lanes }
    }
}

/// Whether lanes should be output elements rather than elements of one reduction: for short reductions, and where memory
/// runs along the outputs.
fn per_lane(node: &Node, iter: &[(String, i64)], reduce: &[(String, i64)]) -> bool {
    let count = |axes: &[(String, i64)]| axes.iter().fold(1i64, |n, (_, extent)| n.saturating_mul(*extent));
    if reduce.is_empty() || iter.is_empty() {
        return !iter.is_empty() || reduce.is_empty();
    }
    if count(iter) < FEW_LANES {
        return false;
    }
    if count(reduce) < SHORT_REDUCTION {
        return true;
    }
    let (mut along_iter, mut along_reduce) = (0, 0);
    for statement in &node.body {
        if let Operation::Load { index, .. } = &statement.operation
            && let Some(affine) = Affine::of(index)
        {
            let is_unit = |axes: &[(String, i64)]| axes.last().is_some_and(|(var, _)| affine.coefficient(var).abs() == 1);
            along_iter += usize::from(is_unit(iter) && reduce.iter().any(|(var, _)| affine.coefficient(var) != 0));
            along_reduce += usize::from(is_unit(reduce));
        }
    }
    along_iter > along_reduce
}
