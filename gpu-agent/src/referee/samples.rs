//! How long to measure, what was measured, and what it says: the same for every kind of device.

use std::time::Duration;

use kernelopt_shared::stats::{Interval, TOO_NOISY, paired_speedup};
use kernelopt_shared::task::Depth;
use kernelopt_shared::verdict::{Conditions, Evidence, Verdict};

/// Share of the roofline's least time below which a launch is impossible; the roof is measured, with noise.
const IMPOSSIBLE: f64 = 0.7;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Pairs before any decision.
    pub least_pairs: usize,
    /// Pairs at most.
    pub most_pairs: usize,
    /// Half width of the interval, relative to the estimate, that is tight enough.
    pub tight: f64,
    /// Time at most, once the least pairs are there.
    pub time: Duration,
}

impl Effort {
    /// For a look of this depth.
    pub const fn of(depth: Depth) -> Self {
        match depth {
            Depth::Screen => Self { least_pairs: 5, most_pairs: 9, tight: 0.03, time: Duration::from_millis(400) },
            Depth::Full => Self { least_pairs: 11, most_pairs: 31, tight: 0.01, time: Duration::from_secs(2) },
            Depth::Confirm => Self { least_pairs: 15, most_pairs: 61, tight: 0.01, time: Duration::from_secs(4) },
        }
    }

    /// True after `count` pairs that give `interval`, once the least are there.
    pub fn is_spent(&self, count: usize, interval: Option<Interval>, elapsed: Duration) -> bool {
        let tight = interval.is_some_and(|i| i.relative_half_width() < self.tight);
        count >= self.least_pairs && (tight || count >= self.most_pairs || elapsed > self.time)
    }
}

/// Samples of a contest: one entry a round, in nanoseconds per launch.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Baseline and candidate.
    pub pairs_ns: Vec<(f64, f64)>,
    /// The control, where one takes part.
    pub control_ns: Vec<f64>,
    /// Rounds that were thrown away because the host was busy.
    pub disturbed: u64,
    /// Timed launches whose outputs were compared.
    pub outputs_checked: u64,
    /// What a GPU was doing meanwhile.
    pub conditions: Option<Conditions>,
}

impl Samples {
    /// Speed-up of the candidate over the baseline.
    pub fn speedup(&self, seed: u64) -> Option<Interval> {
        paired_speedup(&self.pairs_ns, seed)
    }

    /// Speed-up of the candidate over the control.
    pub fn over_control(&self, seed: u64) -> Option<Interval> {
        let pairs: Vec<_> = self.control_ns.iter().zip(&self.pairs_ns).map(|(control, (_, candidate))| (*control, *candidate)).collect();
        paired_speedup(&pairs, seed)
    }

    /// Speed-up of the control over the baseline: noise.
    pub fn noise(&self, seed: u64) -> Option<Interval> {
        let pairs: Vec<_> = self.control_ns.iter().zip(&self.pairs_ns).map(|(control, (baseline, _))| (*baseline, *control)).collect();
        paired_speedup(&pairs, seed)
    }

    /// Says so where a launch of the candidate was faster than its bytes, which take `least_us`, can move.
    pub fn impossible(&self, least_us: f64) -> Option<String> {
        let fastest_us = self.pairs_ns.iter().map(|(_, candidate)| candidate / 1e3).fold(f64::INFINITY, f64::min);
        let message = || format!("impossible: {fastest_us:.2} us, but its bytes alone take {least_us:.2} us here");
        (fastest_us < IMPOSSIBLE * least_us).then(message)
    }

    /// What the samples say. A win is a win over the baseline and over the control, by more than the two differ and by more than
    /// `floor`, the noise known besides.
    pub fn decide(&self, speedup: Interval, floor: f64, seed: u64) -> Verdict {
        let noise = self.noise(seed).map_or(floor, |same| floor.max(same.noise()));
        if noise > TOO_NOISY {
            let reason = format!("the host is busy: the compiler's own code, run twice, differs from itself by {:.0} %", 100.0 * noise);
            return Verdict::Unstable { reason };
        }
        let over_control = self.over_control(seed).unwrap_or(speedup);
        if speedup.low.min(over_control.low) > 1.0 + noise {
            Verdict::Accepted { speedup }
        } else if speedup.high.max(over_control.high) < 1.0 / (1.0 + noise) {
            Verdict::Slower { speedup }
        } else {
            Verdict::NoChange { speedup }
        }
    }

    /// Keeps them as evidence.
    pub fn into_evidence(self, evidence: &mut Evidence) {
        evidence.pairs_ns = self.pairs_ns;
        evidence.control_ns = self.control_ns;
        evidence.rounds_disturbed = self.disturbed;
        evidence.timed_outputs_checked = self.outputs_checked;
        evidence.conditions = self.conditions;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rounds` rounds of these times, each a little off.
    fn samples(baseline: f64, candidate: f64, control: f64) -> Samples {
        let wobble = |i: u32| 1.0 + f64::from(i % 5) / 2000.0;
        let pairs_ns = (0..20).map(|i| (baseline * wobble(i), candidate * wobble(i + 2))).collect();
        Samples { pairs_ns, control_ns: (0..20).map(|i| control * wobble(i + 1)).collect(), ..Default::default() }
    }

    fn kind(samples: &Samples) -> &'static str {
        samples.decide(samples.speedup(1).unwrap(), 0.02, 1).kind()
    }

    #[test]
    fn a_win_is_a_win_over_both() {
        assert_eq!(kind(&samples(100.0, 80.0, 100.0)), "accepted");
        assert_eq!(kind(&samples(100.0, 80.0, 81.0)), "no_change", "the control is as fast as the candidate");
        assert_eq!(kind(&samples(100.0, 99.0, 100.0)), "no_change", "below the floor");
        assert_eq!(kind(&samples(100.0, 120.0, 100.0)), "slower");
    }

    #[test]
    fn a_baseline_far_from_itself_gives_no_verdict() {
        assert_eq!(kind(&samples(100.0, 10.0, 50.0)), "unstable");
    }

    #[test]
    fn a_short_look_has_no_control() {
        let short = Samples { control_ns: Vec::new(), ..samples(100.0, 80.0, 100.0) };
        assert_eq!(kind(&short), "accepted");
    }

    #[test]
    fn effort_ends_when_tight_or_spent_but_not_before_the_least() {
        let effort = Effort::of(Depth::Full);
        let tight = Some(Interval { estimate: 1.0, low: 0.999, high: 1.001 });
        assert!(!effort.is_spent(5, tight, Duration::from_secs(60)));
        assert!(effort.is_spent(11, tight, Duration::ZERO) && !effort.is_spent(11, None, Duration::ZERO));
        assert!(effort.is_spent(31, None, Duration::ZERO) && effort.is_spent(11, None, Duration::from_secs(3)));
    }
}
