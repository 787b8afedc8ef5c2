//! What a model needs to know of a target, in few words.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use kernelopt_shared::meaning::{Argument, Axis, Meaning, Operation, Role, Statement};
use kernelopt_shared::target::{Language, Target};
use kernelopt_shared::verdict::Verdict;

use super::dialogue::complaint;
use crate::search::proposer::{Judged, Scene};

/// Longest source that is shown, in bytes; of a longer one the beginning.
const SHOWN_SOURCE: usize = 24 << 10;
/// Longest reason that is shown of a failure, in characters.
const SHOWN_REASON: usize = 400;

/// The device, as the capture knows it.
pub(super) fn device(scene: &Scene<'_>) -> String {
    let Some(device) = scene.device else { return "not known".into() };
    let more = match (&device.capability, device.kind.as_str()) {
        (Some(capability), _) => format!("compute capability {capability}"),
        (None, "cpu") => format!("{} threads", device.threads),
        (None, _) => String::new(),
    };
    let name = if device.name.is_empty() { &device.kind } else { &device.name };
    if more.is_empty() { name.clone() } else { format!("{name}, {more}") }
}

/// The target: what it computes, on what, and how the compiler does it.
pub(super) fn target(scene: &Scene<'_>) -> String {
    let target = scene.target;
    let mut text = format!("Kernel: {}\n\nArguments, in order:\n", target.kernel);
    for argument in &target.meaning.arguments {
        let _ = writeln!(text, "- {}", argument_line(target, argument));
    }
    let operations = operations(&target.meaning);
    if !operations.is_empty() {
        let _ = writeln!(text, "\nOperations: {}", operations.into_iter().collect::<Vec<_>>().join(", "));
    }
    text.push_str(&cost(scene));
    if let Some(launch) = &target.baseline.launch {
        let [x, y, z] = &launch.grid;
        let constants: Vec<String> = launch.constants.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let _ = writeln!(
            text,
            "The compiler's launch: grid ({x}, {y}, {z}), {}, num_warps={}, num_stages={}",
            constants.join(", "),
            launch.num_warps,
            launch.num_stages
        );
    }
    let (fence, source) = (fence(target.baseline.language), shown(plain_source(target)));
    let _ = write!(text, "\nThe compiler's code:\n```{fence}\n{source}\n```\n");
    text
}

fn argument_line(target: &Target, argument: &Argument) -> String {
    let Argument { name, c_type, role, .. } = argument;
    if role.is_value() {
        let value = argument.value.as_ref().and_then(|value| target.meaning.size(value));
        return value.map_or_else(|| format!("{name}: {c_type}"), |value| format!("{name}: {c_type}, always {value} here"));
    }
    let what = match role {
        Role::In => "read",
        Role::Out if target.scratch.contains(name) => "written by the compiler's code and never read again: need not be written",
        Role::Out => "written",
        _ => "read and written",
    };
    let buffer = argument.buffers.first().and_then(|name| target.meaning.buffers.get(name));
    let Some(buffer) = buffer else { return format!("{name}: {c_type}, {what}") };
    let list = |exprs: &[kernelopt_shared::meaning::Expr]| {
        let numbers = exprs.iter().map(|e| target.meaning.size(e).map_or_else(|| e.to_string(), |number| number.to_string()));
        format!("[{}]", numbers.collect::<Vec<_>>().join(", "))
    };
    format!("{name}: {c_type}, {} {}, strides {}, {what}", buffer.dtype.name(), list(&buffer.size), list(&buffer.stride))
}

/// Bytes, operations and time.
fn cost(scene: &Scene<'_>) -> String {
    let (target, weight) = (scene.target, scene.weight);
    let mut text = String::new();
    let bytes = target.traffic.total_bytes();
    if bytes > 0 {
        let least = if target.traffic.exact { "must move" } else { "must move at least" };
        let _ = writeln!(
            text,
            "Bytes that one launch {least}: {bytes} ({} read, {} written)",
            target.traffic.read_bytes, target.traffic.write_bytes
        );
    }
    if let Some(count) = work(&target.meaning) {
        let _ = writeln!(text, "Element-wise and reduction steps of one launch: about {count}");
    }
    if weight.model_us > 0.0 {
        let _ = write!(
            text,
            "Time of its {} launches in one call of the model: {:.1} us, {:.0} % of the model",
            target.calls,
            weight.model_us,
            100.0 * weight.share
        );
        if weight.floor_us > 0.0 && target.traffic.exact {
            let _ = write!(
                text,
                "; by memory bandwidth alone it could be {:.1} us ({:.0} % of the roofline)",
                weight.floor_us,
                100.0 * weight.floor_us / weight.model_us
            );
        }
        text.push('\n');
    }
    text
}

/// What was found so far: the best, and a failure of each kind.
pub(super) fn progress(scene: &Scene<'_>) -> String {
    let mut text = String::new();
    let right = scene.history.iter().filter_map(|judged| Some((judged, judged.verdict.speedup()?.estimate)));
    let best = right.rev().max_by(|(_, a), (_, b)| a.total_cmp(b)).filter(|(_, speed)| *speed > 1.0);
    if let Some((Judged { candidate, .. }, speed)) = best {
        let (fence, source) = (fence(candidate.language), shown(&candidate.source));
        let _ = write!(
            text,
            "The fastest right kernel so far runs at {speed:.2}x the compiler's speed ({}):\n```{fence}\n{source}\n```\n",
            candidate.origin.note
        );
        if let Some(launch) = &candidate.launch {
            let _ = writeln!(text, "Its launch: {}", serde_json::to_string(launch).unwrap_or_default());
        }
        if let Some(code) = scene.code {
            let occupancy = code.occupancy.map_or_else(String::new, |share| format!(", occupancy {:.0} %", 100.0 * share));
            let limiter = code.limiter.as_ref().map_or_else(String::new, |what| format!(" (limited by {what})"));
            let _ = writeln!(
                text,
                "Its machine code: {} registers a thread, {} bytes spilled, {} bytes of shared memory{occupancy}{limiter}",
                code.registers, code.spill_bytes, code.shared_bytes
            );
        }
        text.push('\n');
    }
    let failures = failures(scene.history);
    if !failures.is_empty() {
        let _ = write!(text, "What failed:\n{}\n", failures.join("\n"));
    }
    text
}

/// The last failure of each kind, and what was right but slower.
fn failures(history: &[Judged]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut lines = Vec::new();
    for Judged { candidate, verdict } in history.iter().rev() {
        let says_nothing = matches!(verdict, Verdict::Accepted { .. } | Verdict::NoChange { .. } | Verdict::Unstable { .. });
        if says_nothing || !seen.insert(verdict.kind()) {
            continue;
        }
        let what = match verdict {
            Verdict::Slower { speedup } => format!("right, but only {:.2}x the compiler's speed", speedup.estimate),
            other => complaint(other).unwrap_or_default().replace('\n', " "),
        };
        let what: String = what.chars().take(SHOWN_REASON).collect();
        lines.push(format!("- {}: {what}", candidate.origin.note));
    }
    lines
}

/// The compiler's source without what is not code: Triton's metadata is a kilobyte of decorator.
fn plain_source(target: &Target) -> &str {
    let source = target.baseline.source.as_str();
    match target.baseline.language {
        Language::Triton => source.find("@triton.jit").map_or(source, |at| &source[at..]).trim(),
        Language::Cpp | Language::Cuda => source.trim(),
    }
}

fn shown(source: &str) -> &str {
    let mut end = source.len().min(SHOWN_SOURCE);
    while !source.is_char_boundary(end) {
        end -= 1;
    }
    &source[..end]
}

pub(super) const fn fence(language: Language) -> &'static str {
    match language {
        Language::Triton => "python",
        Language::Cpp | Language::Cuda => "cpp",
    }
}

/// Names of functions and reductions, each once.
fn operations(meaning: &Meaning) -> BTreeSet<String> {
    fn add(body: &[Statement], names: &mut BTreeSet<String>) {
        for statement in body {
            match &statement.operation {
                Operation::Pointwise { function, .. } => drop(names.insert(function.name())),
                Operation::Reduction { kind, .. } => drop(names.insert(format!("{kind:?} (reduction)").to_lowercase())),
                Operation::Masked { body, .. } => add(body, names),
                _ => {}
            }
        }
    }
    let mut names = BTreeSet::new();
    meaning.nodes.iter().for_each(|node| add(&node.body, &mut names));
    names
}

/// Functions and reductions of one launch, each counted once for an element; none where a size is not known.
fn work(meaning: &Meaning) -> Option<u64> {
    let extent = |axes: &[Axis]| axes.iter().try_fold(1_u64, |all, axis| all.checked_mul(u64::try_from(meaning.size(&axis.extent)?).ok()?));
    let counts = |statement: &&Statement| matches!(statement.operation, Operation::Pointwise { .. } | Operation::Reduction { .. });
    let total = meaning.nodes.iter().try_fold(0_u64, |total, node| {
        let steps = node.body.iter().filter(counts).count() as u64;
        total.checked_add(extent(&node.iter)?.checked_mul(extent(&node.reduce)?)?.checked_mul(steps)?)
    })?;
    (total > 0).then_some(total)
}
