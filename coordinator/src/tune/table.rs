//! A result as text for a terminal.

use kernelopt_shared::result::{ModelUse, ModelVerdict, TargetResult, TuneResult};

use crate::columns::{Align, columns, shorten};

/// Widest kernel name, in characters.
const NAME_WIDTH: usize = 44;

/// The final table: a line for each target, the kernels that were left alone, the model.
pub fn table(result: &TuneResult) -> String {
    let mut text = String::new();
    let heading = ["kernel", "share", "before us", "after us", "speed-up", "95 % interval", "roofline", "tried", "winner"];
    let mut align = [Align::Right; 9];
    (align[0], align[8]) = (Align::Left, Align::Left);
    columns(&mut text, &heading, &align, result.targets.iter().map(row).collect());
    let left_alone = result.untouched.iter().map(|kernel| vec![shorten(&kernel.name, NAME_WIDTH), kernel.reason.clone()]).collect();
    columns(&mut text, &["left alone", "why"], &[Align::Left, Align::Left], left_alone);
    text.push_str(&format!("\n{}\n", headline(result)));
    if let Some(used) = &result.budget.language_model {
        text.push_str(&format!("{}\n", language_model(used, result.budget.cost_usd)));
    }
    text
}

/// What language models were asked, in a line.
fn language_model(used: &ModelUse, cost_usd: f64) -> String {
    let tokens = used.input_tokens + used.output_tokens;
    let mut line = format!(
        "language model: {} questions, {} answers, {} candidates, {} answers without a kernel; {tokens} tokens, {cost_usd:.4} USD",
        used.questions, used.answers, used.candidates, used.no_kernel
    );
    if let Some(problem) = &used.last_problem {
        let count: u64 = used.unanswered.values().sum();
        line.push_str(&format!("; {count} not answered, the last: {problem}"));
    }
    line
}

fn row(target: &TargetResult) -> Vec<String> {
    let interval = target.winner.as_ref().map(|_| format!("{:.2} to {:.2}", target.ci95[0], target.ci95[1]));
    let microseconds = |us: f64| if us > 0.0 { format!("{us:.1}") } else { "-".into() };
    vec![
        shorten(&target.name, NAME_WIDTH),
        format!("{:.1} %", 100.0 * target.share),
        microseconds(target.baseline_us),
        microseconds(target.best_us),
        format!("{:.2}x", target.speedup),
        interval.unwrap_or_else(|| "-".into()),
        if target.roofline_fraction > 0.0 { format!("{:.0} %", 100.0 * target.roofline_fraction) } else { "-".into() },
        target.verdict_counts.values().sum::<u64>().to_string(),
        target.winner.as_ref().map_or_else(|| "the compiler's own".into(), |winner| winner.note.clone()),
    ]
}

fn headline(result: &TuneResult) -> String {
    let model = &result.model;
    match model.verdict {
        ModelVerdict::Improved => format!(
            "model: {:.0} us -> {:.0} us, {:.2}x [{:.2}, {:.2}]; outputs within {:.1e} of float64 on {} input sets, the original within {:.1e}",
            model.baseline_us,
            model.optimized_us,
            model.speedup,
            model.ci95[0],
            model.ci95[1],
            model.max_error,
            model.inputs_checked,
            model.baseline_max_error
        ),
        ModelVerdict::Kept => format!("model: no gain, the compiler's code is kept ({})", model.reason),
    }
}
