//! Paired ratios and their bootstrap intervals (Efron 1979; percentile method on the median of log ratios).

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// A ratio with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Interval {
    /// The estimate.
    pub estimate: f64,
    /// Low end.
    pub low: f64,
    /// High end.
    pub high: f64,
}

impl Interval {
    /// Half the width over the estimate.
    pub fn relative_half_width(&self) -> f64 {
        (self.high - self.low) / (2.0 * self.estimate)
    }

    /// The noise that a ratio of the same code with itself shows: how far from one it came out, or how uncertain that is.
    pub fn noise(&self) -> f64 {
        self.estimate.ln().abs().max(self.relative_half_width())
    }
}

/// Difference of the same code from itself beyond which nothing is decided.
pub const TOO_NOISY: f64 = 0.25;

/// Resamples of a bootstrap; the interval's own error is then far below its width.
const RESAMPLES: usize = 1000;

/// Median; NaN for no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    median_of(&mut sorted)
}

fn median_of(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let middle = values.len() / 2;
    let odd = values.len() % 2 == 1;
    let (low, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    if odd {
        return upper;
    }
    let lower = low.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    0.5 * (lower + upper)
}

/// Speed-up `first / second` of paired samples: the median of the pairs' log ratios, with its 95 % bootstrap interval.
/// Pairing removes the drift that two separate medians would keep. `None` for fewer than three pairs or a sample that is not positive.
pub fn paired_speedup(pairs: &[(f64, f64)], seed: u64) -> Option<Interval> {
    if pairs.len() < 3 || pairs.iter().any(|(a, b)| !(a.is_finite() && b.is_finite() && *a > 0.0 && *b > 0.0)) {
        return None;
    }
    let logs: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut draw = vec![0.0; logs.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES).map(|_| resampled_median(&logs, &mut draw, &mut rng)).collect();
    medians.sort_unstable_by(f64::total_cmp);
    let at = |quantile: f64| medians[((RESAMPLES - 1) as f64 * quantile).round() as usize];
    Some(Interval { estimate: median(&logs).exp(), low: at(0.025).exp(), high: at(0.975).exp() })
}

fn resampled_median(logs: &[f64], draw: &mut [f64], rng: &mut impl Rng) -> f64 {
    for slot in draw.iter_mut() {
        *slot = logs[rng.random_range(0..logs.len())];
    }
    median_of(draw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_even_and_odd_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn drift_that_both_sides_share_does_not_widen_the_interval() {
        let pairs: Vec<_> = (1..=40).map(|i| (2.0 * f64::from(i), f64::from(i))).collect();
        let interval = paired_speedup(&pairs, 1).unwrap();
        assert!((interval.estimate - 2.0).abs() < 1e-12 && interval.high - interval.low < 1e-9, "{interval:?}");
    }

    #[test]
    fn interval_covers_the_true_ratio_in_about_95_of_100_experiments() {
        let mut covered = 0;
        for experiment in 0..300 {
            let mut rng = ChaCha8Rng::seed_from_u64(1000 + experiment);
            let mut noisy = |mean: f64| mean * (1.0 + 0.2 * (rng.random::<f64>() + rng.random::<f64>() - 1.0));
            let pairs: Vec<_> = (0..31).map(|_| (noisy(1.3), noisy(1.0))).collect();
            let interval = paired_speedup(&pairs, experiment).unwrap();
            covered += u32::from(interval.low <= 1.3 && 1.3 <= interval.high);
        }
        assert!((265..=300).contains(&covered), "{covered} of 300");
    }

    #[test]
    fn too_few_or_impossible_samples_give_no_interval() {
        assert!(paired_speedup(&[(1.0, 1.0); 2], 0).is_none());
        assert!(paired_speedup(&[(1.0, 0.0); 5], 0).is_none());
        assert!(paired_speedup(&[(f64::NAN, 1.0); 5], 0).is_none());
    }
}
