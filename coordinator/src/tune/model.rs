//! The whole-model decision (invariant 8): a model is replaced only when all of it is right and it is faster.

use kernelopt_shared::stats::{Interval, TOO_NOISY, paired_speedup};
use kernelopt_shared::task::{InputSetCheck, ModelCheck, OutputCheck};

use crate::journal::ModelVerdictRecord;

/// Least gain for a model to be called faster, however steady the clock: what the control shows of noise comes on top.
const LEAST_GAIN: f64 = 1.003;
/// Input sets that must have been compared: the captured one and another scale.
const LEAST_INPUT_SETS: usize = 2;
/// Times the original's error against float64 that the optimised model may have.
const ERROR_FACTOR: f64 = 4.0;
/// Roundings of the greatest output value that it may have besides.
const ERROR_ROUNDINGS: f64 = 8.0;
/// Times the measured share of the replaced kernels that their true share may be; shares are measured with noise.
const SHARE_SLACK: f64 = 1.3;
/// Share at most, so that the ceiling stays finite.
const MOST_SHARE: f64 = 0.995;

/// Speed-up of one input set with its interval.
pub fn speedup(set: &InputSetCheck) -> Option<Interval> {
    paired_speedup(&set.pairs_us, 0)
}

/// Decides on a check. `replaced_share` is the share of model time of the kernels that were replaced.
pub fn decide(check: &ModelCheck, replaced_share: f64) -> ModelVerdictRecord {
    if let Err(reason) = outputs_are_right(check) {
        return ModelVerdictRecord { right: false, improved: false, reason };
    }
    match gain(check, replaced_share) {
        Ok(reason) => ModelVerdictRecord { right: true, improved: true, reason },
        Err(reason) => ModelVerdictRecord { right: true, improved: false, reason },
    }
}

fn outputs_are_right(check: &ModelCheck) -> Result<(), String> {
    if check.input_sets.len() < LEAST_INPUT_SETS {
        return Err(format!("{} input sets were compared, {LEAST_INPUT_SETS} are needed", check.input_sets.len()));
    }
    for set in &check.input_sets {
        if let Some(fault) = set.faults.first() {
            return Err(format!("input set {}: {fault}", set.name));
        }
        if set.outputs.is_empty() {
            return Err(format!("input set {}: no output was compared", set.name));
        }
        for output in &set.outputs {
            output_is_right(output)
                .map_err(|what| format!("input set {}, graph {}, output {}: {what}", set.name, output.graph, output.index))?;
        }
    }
    Ok(())
}

fn output_is_right(output: &OutputCheck) -> Result<(), String> {
    if !output.same_class {
        return Err("NaN, infinity or an integer differs from the original".into());
    }
    let (Some(baseline), Some(optimized)) = (output.max_error_baseline, output.max_error_optimized) else {
        return Err("there is no float64 reference".into());
    };
    let allowed = ERROR_FACTOR * baseline + ERROR_ROUNDINGS * output.unit_roundoff * output.scale;
    if optimized <= allowed {
        Ok(())
    } else {
        Err(format!("error {optimized:.3e} against float64; the original has {baseline:.3e}, {allowed:.3e} is allowed"))
    }
}

fn gain(check: &ModelCheck, replaced_share: f64) -> Result<String, String> {
    let measured: Vec<(&str, Interval)> = check.input_sets.iter().filter_map(|s| Some((s.name.as_str(), speedup(s)?))).collect();
    if measured.len() < check.input_sets.len() {
        return Err("too few timed rounds to tell".into());
    }
    let (first, captured) = measured[0];
    let noise =
        paired_speedup(&check.input_sets[0].control_us, 0).map(|same| same.noise()).ok_or("the original was not timed against itself")?;
    if noise > TOO_NOISY {
        return Err(format!("the host is busy: the original, run twice, differs from itself by {:.0} %", 100.0 * noise));
    }
    if captured.low <= LEAST_GAIN.max(1.0 + noise) {
        let Interval { estimate, low, high } = captured;
        let noise = 100.0 * noise;
        return Err(format!(
            "{estimate:.3}x [{low:.3}, {high:.3}] on input set {first} is no gain; the original differs from itself by {noise:.1} %"
        ));
    }
    if let Some((name, slow)) = measured.iter().find(|(_, interval)| interval.high < 1.0) {
        return Err(format!("{:.3}x [{:.3}, {:.3}] on input set {name}: slower there", slow.estimate, slow.low, slow.high));
    }
    // Amdahl: the rest of the model takes as long as before.
    let ceiling = 1.0 / (1.0 - (SHARE_SLACK * replaced_share).min(MOST_SHARE));
    if captured.low > ceiling {
        let percent = 100.0 * replaced_share;
        return Err(format!("{:.2}x is impossible: the replaced kernels are {percent:.1} % of the model", captured.estimate));
    }
    Ok(format!("{:.3}x [{:.3}, {:.3}], right on {} input sets", captured.estimate, captured.low, captured.high, measured.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output() -> OutputCheck {
        OutputCheck {
            graph: 0,
            index: 0,
            max_error_baseline: Some(1e-6),
            max_error_optimized: Some(1e-6),
            scale: 1.0,
            unit_roundoff: 6e-8,
            same_class: true,
        }
    }

    fn check(speedups: [f64; 2]) -> ModelCheck {
        let set = |name: &str, speedup: f64| InputSetCheck {
            name: name.into(),
            outputs: vec![output()],
            faults: Vec::new(),
            pairs_us: (0..20).map(|i| (100.0 * speedup + f64::from(i % 3), 100.0)).collect(),
            control_us: (0..20).map(|i| (100.0, 100.0 + f64::from(i % 2))).collect(),
        };
        ModelCheck { input_sets: vec![set("captured", speedups[0]), set("x4", speedups[1])] }
    }

    #[test]
    fn right_and_faster_is_improved() {
        assert!(decide(&check([2.0, 1.8]), 0.9).improved);
    }

    #[test]
    fn faster_only_on_captured_values_is_kept() {
        let verdict = decide(&check([2.0, 0.8]), 0.9);
        assert!(verdict.right && !verdict.improved, "{verdict:?}");
    }

    #[test]
    fn a_gain_beyond_the_replaced_share_is_impossible() {
        let verdict = decide(&check([2.0, 2.0]), 0.1);
        assert!(!verdict.improved && verdict.reason.contains("impossible"), "{verdict:?}");
    }

    #[test]
    fn a_gain_that_the_original_has_over_itself_is_none() {
        let mut noisy = check([1.1, 1.1]);
        noisy.input_sets[0].control_us = (0..20).map(|_| (115.0, 100.0)).collect();
        let verdict = decide(&noisy, 0.9);
        assert!(verdict.right && !verdict.improved && verdict.reason.contains("from itself"), "{verdict:?}");
        noisy.input_sets[0].control_us.clear();
        assert!(!decide(&noisy, 0.9).improved);
    }

    #[test]
    fn no_change_is_kept() {
        assert!(!decide(&check([1.002, 1.0]), 0.9).improved);
    }

    #[test]
    fn every_missing_or_bad_evidence_is_a_failure() {
        let spoils: [fn(&mut ModelCheck); 7] = [
            |c| c.input_sets[1].faults.push("an input was changed".into()),
            |c| c.input_sets[1].outputs[0].max_error_optimized = Some(1e-4),
            |c| c.input_sets[1].outputs[0].max_error_optimized = Some(f64::NAN),
            |c| c.input_sets[0].outputs[0].max_error_baseline = None,
            |c| c.input_sets[0].outputs[0].same_class = false,
            |c| c.input_sets[0].outputs.clear(),
            |c| c.input_sets.truncate(1),
        ];
        for (i, spoil) in spoils.iter().enumerate() {
            let mut check = check([2.0, 2.0]);
            spoil(&mut check);
            assert!(!decide(&check, 0.9).right, "spoil {i}");
        }
        let mut untimed = check([2.0, 2.0]);
        untimed.input_sets[1].pairs_us.clear();
        assert!(!decide(&untimed, 0.9).improved);
    }
}
