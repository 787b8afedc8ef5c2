//! From verdicts to the points of the timeline.

use std::collections::BTreeMap;

use kernelopt_shared::digest::Digest;
use kernelopt_shared::result::TuneResult;
use kernelopt_shared::task::Depth;
use kernelopt_shared::verdict::Verdict;

use super::palette::Palette;

/// One verdict of the search.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// When it came, in seconds of work since the job began; pauses between resumed runs do not count.
    pub seconds: f64,
    /// Label of the target, as of [`kernelopt_shared::target::Target::label`].
    pub target: &'a str,
    /// The candidate.
    pub candidate: Digest,
    /// How closely it was looked at.
    pub depth: Depth,
    /// What the referee said.
    pub verdict: &'a Verdict,
}

/// One verdict as the timeline shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelinePoint {
    /// When it came, in seconds of work since the job began.
    pub seconds: f64,
    /// Label of the target.
    pub target: String,
    /// Kind of the verdict, as of [`Verdict::kind`].
    pub kind: String,
    /// Measured speed-up of this candidate, where there is one.
    pub speedup: Option<f64>,
    /// Best speed-up of the target after this verdict, of candidates that were measured in full and did not fail a
    /// confirmation since; one where there is none.
    pub best: f64,
    /// What the whole model would gain if the best of every target held in it (Amdahl 1967); the model gate measures it.
    pub model_estimate: Option<f64>,
}

/// The timeline of a search. `judged` are its verdicts in the order in which they came; shares are those of `result`.
pub fn timeline_of<'a>(result: &TuneResult, judged: impl IntoIterator<Item = Judged<'a>>) -> Vec<TimelinePoint> {
    let palette = Palette::of(result);
    let mut standing = Standing::default();
    let mut best = vec![1.0; result.targets.len()];
    judged
        .into_iter()
        .map(|at| {
            let here = standing.after(&at);
            let index = palette.find(at.target);
            if let Some(index) = index {
                best[index] = here;
            }
            TimelinePoint {
                seconds: at.seconds,
                target: at.target.to_owned(),
                kind: at.verdict.kind().to_owned(),
                speedup: at.verdict.speedup().map(|interval| interval.estimate),
                best: here,
                model_estimate: index.map(|_| model_speedup(result, &best)),
            }
        })
        .collect()
}

/// Speed-ups that stand, by target and candidate. A look that is not full moves nothing.
#[derive(Default)]
struct Standing<'a>(BTreeMap<&'a str, BTreeMap<Digest, f64>>);

impl<'a> Standing<'a> {
    /// Best speed-up of the target once `at` is known.
    fn after(&mut self, at: &Judged<'a>) -> f64 {
        let candidates = self.0.entry(at.target).or_default();
        if at.depth != Depth::Screen {
            match at.verdict {
                Verdict::Accepted { speedup } => candidates.insert(at.candidate, speedup.estimate),
                _ => candidates.remove(&at.candidate),
            };
        }
        candidates.values().copied().fold(1.0, f64::max)
    }
}

/// Amdahl's law over all targets: what is left of the model's time when each takes `1 / best` of its share.
fn model_speedup(result: &TuneResult, best: &[f64]) -> f64 {
    let saved: f64 = result.targets.iter().zip(best).map(|(target, best)| target.share * (1.0 - 1.0 / best)).sum();
    1.0 / (1.0 - saved)
}

#[cfg(test)]
mod tests {
    use kernelopt_shared::stats::Interval;

    use super::super::tests::samples;
    use super::*;

    fn accepted(estimate: f64) -> Verdict {
        Verdict::Accepted { speedup: Interval { estimate, low: 0.9 * estimate, high: 1.1 * estimate } }
    }

    #[test]
    fn the_best_follows_full_measurements_and_falls_back_when_a_confirmation_fails() {
        let (mut result, _) = samples::one_target();
        result.targets[0].share = 0.5;
        let label = format!("0/{}", result.targets[0].name);
        let (a, b) = (Digest::of([b"a".as_slice()]), Digest::of([b"b".as_slice()]));
        let (two, four, wrong) = (accepted(2.0), accepted(4.0), Verdict::Wrong { reason: "tail".into() });
        let verdicts = [
            (a, Depth::Screen, &four),
            (a, Depth::Full, &two),
            (b, Depth::Full, &four),
            (b, Depth::Confirm, &wrong),
            (a, Depth::Confirm, &two),
        ];
        let judged = verdicts.iter().zip(1..).map(|((candidate, depth, verdict), second)| Judged {
            seconds: f64::from(second),
            target: &label,
            candidate: *candidate,
            depth: *depth,
            verdict,
        });
        let points = timeline_of(&result, judged);
        assert_eq!(points.iter().map(|p| p.best).collect::<Vec<_>>(), [1.0, 2.0, 4.0, 2.0, 2.0]);
        let estimates: Vec<f64> = points.iter().map(|p| p.model_estimate.unwrap()).collect();
        let expected = [1.0, 1.0 / 0.75, 1.0 / 0.625, 1.0 / 0.75, 1.0 / 0.75];
        assert!(estimates.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{estimates:?}");
        assert_eq!(points[0].speedup, Some(4.0), "a short look is a mark, not a step");
        assert_eq!((points[3].kind.as_str(), points[3].speedup), ("wrong", None));
    }

    #[test]
    fn a_target_that_the_result_does_not_know_changes_no_estimate() {
        let (result, _) = samples::one_target();
        let verdict = accepted(9.0);
        let judged = [Judged { seconds: 1.0, target: "7/gone", candidate: result.bundle, depth: Depth::Full, verdict: &verdict }];
        let points = timeline_of(&result, judged);
        assert_eq!((points[0].best, points[0].model_estimate), (9.0, None));
    }
}
