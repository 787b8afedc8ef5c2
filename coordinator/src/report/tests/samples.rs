//! Results to draw, with the shapes that real ones have. The figures are made up.

use std::collections::BTreeMap;

use kernelopt_shared::digest::Digest;
use kernelopt_shared::result::{
    BudgetSpent, ModelResult, ModelVerdict, RESULT_SCHEMA_VERSION, TargetResult, TuneResult, Untouched, Winner,
};

use crate::report::TimelinePoint;

/// A small generator, so that samples are the same everywhere.
struct Draw(u64);

impl Draw {
    /// Uniform in 0..1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn digest(text: &str) -> Digest {
    Digest::of([text.as_bytes()])
}

/// A target whose baseline takes `baseline_us`, won by `speedup`; one means that the baseline stands.
fn target(name: &str, graph: u32, share: f64, baseline_us: f64, speedup: f64) -> TargetResult {
    let won = speedup > 1.0;
    let roofline = 0.62 / if won { speedup } else { 1.4 };
    TargetResult {
        name: name.into(),
        graph,
        fingerprint: digest(name),
        share,
        baseline_us,
        best_us: baseline_us / speedup,
        speedup,
        ci95: if won { [speedup * 0.955, speedup * 1.04] } else { [1.0, 1.0] },
        roofline_fraction: roofline * speedup,
        baseline_roofline_fraction: roofline,
        verdict_counts: BTreeMap::new(),
        winner: won.then(|| Winner {
            candidate: digest(&format!("{name} winner")),
            proposer: "schedule".into(),
            note: "one row per thread in cache, two-pass statistics, exp inlined, AVX2".into(),
        }),
    }
}

fn result(verdict: ModelVerdict, targets: Vec<TargetResult>) -> TuneResult {
    let not_kernels = [("vendor calls".to_owned(), 61.0, 61.5), ("rest of the call".to_owned(), 38.0, 37.0)];
    let kernels = targets.iter().map(|t| (format!("{}/{}", t.graph, t.name), t.baseline_us, t.best_us));
    let mut parts: Vec<(String, f64, f64)> = kernels.chain(not_kernels).collect();
    if verdict == ModelVerdict::Kept {
        parts.iter_mut().for_each(|part| part.2 = part.1);
    }
    let before: f64 = parts.iter().map(|p| p.1).sum();
    let after: f64 = parts.iter().map(|p| p.2).sum();
    let speedup = before / after;
    TuneResult {
        schema_version: RESULT_SCHEMA_VERSION,
        bundle: digest("bundle"),
        device: "AMD EPYC 7B13, 2 threads, AVX2".into(),
        versions: [("kernelopt", "0.1.0"), ("torch", "2.11.0+cpu"), ("python", "3.11.7"), ("compiler", "g++ (Debian 12.2.0-14) 12.2.0")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        model: ModelResult {
            verdict,
            reason: match verdict {
                ModelVerdict::Improved => {
                    "The optimised model gave right outputs on all input sets and its interval lies above the noise floor.".into()
                }
                ModelVerdict::Kept => {
                    "No candidate was right and faster than the compiler's kernel beyond the noise floor of 1.8 %.".into()
                }
            },
            baseline_us: before,
            optimized_us: after,
            speedup,
            ci95: [speedup * 0.96, speedup * 1.03],
            inputs_checked: 6,
            max_error: 2.3e-7,
            baseline_max_error: 4.1e-7,
            parts,
        },
        targets,
        untouched: vec![
            Untouched {
                name: "cpp_fused_bernoulli_4".into(),
                graph: 0,
                reason: "random numbers: its meaning differs between backends".into(),
            },
            Untouched { name: "cpp_fused_sort_9".into(), graph: 0, reason: "operation `sort` is not known to the exporter".into() },
        ],
        budget: BudgetSpent {
            seconds: 571.0,
            candidates: 214,
            tokens: 0,
            cost_usd: 0.0,
            language_model: None,
            share: [("building", 0.41), ("verifying", 0.22), ("measuring", 0.31)].map(|(k, v)| (k.to_owned(), v)).into(),
        },
        rejected: BTreeMap::new(),
    }
}

/// One target that carries the model, found step by step.
pub(in crate::report) fn one_target() -> (TuneResult, Vec<TimelinePoint>) {
    let mut result = result(ModelVerdict::Improved, vec![target("cpp_fused__log_softmax_exp_mul_neg_sub_sum_0", 0, 0.987, 20_812.0, 3.92)]);
    let timeline = searched(&mut result, 140, 571.0);
    (result, timeline)
}

/// Twelve targets in two graphs, most with names as long as the compiler makes them.
pub(in crate::report) fn twelve_targets() -> (TuneResult, Vec<TimelinePoint>) {
    let names = [
        "cpp_fused__native_batch_norm_legit_functional_convolution_relu_threshold_backward_0",
        "cpp_fused_add_native_layer_norm_native_layer_norm_backward_view_1",
        "cpp_fused__softmax__to_copy_div_masked_fill_where_2",
        "cpp_fused_gelu_gelu_backward_mul_view_3",
        "cpp_fused__log_softmax_4",
        "cpp_fused_embedding_dense_backward_5",
        "cpp_fused_silu_mul_6",
        "cpp_fused_mean_7",
        "cpp_fused_add_8",
        "cpp_fused_cat_permute_reshape_slice_squeeze_stack_unsqueeze_9",
        "cpp_fused_max_pool2d_with_indices_10",
        "cpp_fused_sigmoid_11",
    ];
    let speedups = [2.71, 2.2, 1.62, 1.0, 1.31, 1.0, 1.12, 4.4, 1.0, 1.07, 0.0, 1.0].map(|s: f64| s.max(1.0));
    let targets = names.iter().zip(speedups).enumerate().map(|(i, (name, speedup))| {
        let us = 1900.0 / (1.0 + i as f64).powf(1.3);
        target(name, u32::from(i > 7), us / 6100.0, us, speedup)
    });
    let mut result = result(ModelVerdict::Improved, targets.collect());
    result.targets[5].roofline_fraction = 0.0;
    result.targets[5].baseline_roofline_fraction = 0.0;
    let timeline = searched(&mut result, 420, 1290.0);
    (result, timeline)
}

/// Two targets, nothing won.
pub(in crate::report) fn kept() -> (TuneResult, Vec<TimelinePoint>) {
    let targets = vec![target("cpp_fused_gelu_0", 0, 0.61, 212.0, 1.0), target("cpp_fused_add_1", 0, 0.1, 34.0, 1.0)];
    let mut result = result(ModelVerdict::Kept, targets);
    result.model.ci95 = [0.985, 1.012];
    let timeline = searched(&mut result, 60, 118.0);
    (result, timeline)
}

/// A model without generated kernels that could be searched.
pub(in crate::report) fn no_targets() -> (TuneResult, Vec<TimelinePoint>) {
    let mut result = result(ModelVerdict::Kept, Vec::new());
    result.model.reason = "There is no target: nothing was searched.".into();
    result.budget = BudgetSpent { seconds: 2.4, ..BudgetSpent::default() };
    (result, Vec::new())
}

/// Every text that comes from outside tries to break out; every number is none.
pub(in crate::report) fn hostile(text: &str) -> (TuneResult, Vec<TimelinePoint>) {
    let mut result = result(ModelVerdict::Improved, vec![target(text, 0, f64::NAN, f64::INFINITY, 2.0)]);
    result.device = text.into();
    result.model.reason = text.into();
    result.model.speedup = f64::NAN;
    result.model.ci95 = [f64::NEG_INFINITY, f64::NAN];
    result.model.max_error = f64::NAN;
    result.model.parts = vec![(text.into(), f64::NAN, 1.0), (format!("rest {text}"), 3.0, f64::INFINITY)];
    result.versions.insert(text.into(), text.into());
    result.untouched[0] = Untouched { name: text.into(), graph: 0, reason: text.into() };
    result.budget.share.insert(text.into(), f64::NAN);
    result.targets[0].verdict_counts.insert(text.into(), 1);
    result.targets[0].ci95 = [f64::NAN, f64::INFINITY];
    if let Some(winner) = &mut result.targets[0].winner {
        winner.note = text.into();
        winner.proposer = text.into();
    }
    let point = |seconds, kind: &str, speedup| TimelinePoint {
        seconds,
        target: text.into(),
        kind: kind.into(),
        speedup,
        best: f64::NAN,
        model_estimate: Some(f64::INFINITY),
    };
    let timeline = vec![
        point(f64::NAN, "accepted", None),
        point(0.0, text, Some(f64::NAN)),
        point(1.0, "wrong", Some(-1.0)),
        point(2.0, "accepted", Some(1e300)),
    ];
    (result, timeline)
}

/// Adds a search to `result`: its points, and their counts.
fn searched(result: &mut TuneResult, count: usize, seconds: f64) -> Vec<TimelinePoint> {
    let timeline = timeline(result, count, seconds);
    for target in &mut result.targets {
        let label = format!("{}/{}", target.graph, target.name);
        for point in timeline.iter().filter(|point| point.target == label) {
            *target.verdict_counts.entry(point.kind.clone()).or_default() += 1;
        }
    }
    result.budget.seconds = seconds;
    result.budget.candidates = count as u64;
    timeline
}

/// A search that ends at the result's speed-ups: better candidates get rarer, some are wrong.
fn timeline(result: &TuneResult, count: usize, seconds: f64) -> Vec<TimelinePoint> {
    let mut draw = Draw(7);
    let mut best = vec![1.0; result.targets.len()];
    (0..count)
        .map(|step| {
            let done = (step + 1) as f64 / count as f64;
            let at = ((draw.next() * draw.next()) * best.len() as f64) as usize;
            let goal = result.targets[at].speedup;
            let reach = goal.powf((done * 1.9 + 0.1).min(1.0));
            let kind = match draw.next() {
                p if p < 0.06 => "wrong",
                p if p < 0.09 => "build_failed",
                p if p < 0.10 => "crashed",
                p if p < 0.115 => "rejected",
                _ => "",
            };
            let speedup = kind.is_empty().then(|| reach * (1.02 - 0.5 * draw.next() * draw.next()));
            let kind = match speedup {
                None => kind,
                Some(s) if s > 1.03 => "accepted",
                Some(s) if s > 0.97 => "no_change",
                Some(_) => "slower",
            };
            if let Some(speedup) = speedup.filter(|s| kind == "accepted" && *s > best[at]) {
                best[at] = speedup.min(goal);
            }
            let label = format!("{}/{}", result.targets[at].graph, result.targets[at].name);
            let model = result.model.baseline_us
                / (result.model.baseline_us - result.targets.iter().zip(&best).map(|(t, b)| t.baseline_us * (1.0 - 1.0 / b)).sum::<f64>());
            TimelinePoint {
                seconds: seconds * done,
                target: label,
                kind: kind.into(),
                speedup,
                best: best[at],
                model_estimate: Some(model),
            }
        })
        .collect()
}
