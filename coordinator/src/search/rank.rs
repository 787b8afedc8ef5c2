//! Where end-to-end time can still be won (Amdahl 1967): share of the model and distance to the roofline (Williams et al. 2009).

use kernelopt_shared::stats::median;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::ModelProfile;

use super::state::TargetState;

/// What a target weighs in its model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weight {
    /// Time of all its launches in one call of the model, measured inside `call`, in microseconds.
    pub model_us: f64,
    /// Share of the model's time.
    pub share: f64,
    /// Least time of all its launches by the bytes that must move, in microseconds.
    pub floor_us: f64,
}

/// Loss of interest per candidate that did not move the best.
const DECAY: f64 = 0.95;

impl Weight {
    /// Time that could still be won, weighed down while the search does not move.
    pub fn headroom(&self, search: Option<&TargetState>) -> f64 {
        let (best, stale) = search.map_or((1.0, 0), |s| (s.best_full(), s.stale()));
        let now_us = self.model_us / best;
        (now_us - self.floor_us).max(0.05 * now_us) * DECAY.powi(stale as i32)
    }
}

/// Weight of each of `targets`.
pub fn weights(targets: &[Target], profile: &ModelProfile) -> Vec<Weight> {
    let total = model_us(profile);
    targets.iter().map(|target| weight(target, profile, total)).collect()
}

/// Median time of one call of the model, in microseconds.
pub fn model_us(profile: &ModelProfile) -> f64 {
    profile.graphs.iter().map(|g| median(&g.call_us) * f64::from(g.calls_per_run)).sum()
}

fn weight(target: &Target, profile: &ModelProfile, total_us: f64) -> Weight {
    let measured = profile.graphs.iter().find(|g| g.index == target.graph).and_then(|g| Some((g, g.kernels.get(&target.kernel)?)));
    let Some((graph, kernel)) = measured else { return Weight { model_us: 0.0, share: 0.0, floor_us: 0.0 } };
    let runs = f64::from(graph.calls_per_run);
    let model_us = median(&kernel.us) * runs;
    let launch_floor_us = profile.bandwidth.least_us(target.traffic.total_bytes()).unwrap_or(0.0);
    Weight { model_us, share: model_us / total_us, floor_us: launch_floor_us * f64::from(kernel.launches) * runs }
}
