//! What is known of one generated kernel, as a row.

use std::collections::BTreeSet;

use kernelopt_shared::digest::Digest;
use kernelopt_shared::meaning::{Argument, Expr, Meaning, Operation, Statement};
use kernelopt_shared::target::{Language, Target};
use serde::{Serialize, Serializer};

use crate::inductor::dataflow::{Dataflow, KernelFacts};
use crate::inductor::kernel::{Access, Kernel};

/// One generated kernel. What the text or the meaning does not tell is null.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetRow {
    /// Number of its graph.
    pub graph: u32,
    /// Its name in the file.
    pub name: String,
    /// Its language; null for a kernel that has no source in the file.
    pub language: Option<Language>,
    /// Hash of its meaning.
    pub fingerprint: Option<Digest>,
    /// What it computes: functions and reductions of its meaning; null for a kernel of the model's author; without a meaning, the operators that the compiler fused (`aten.mean`).
    pub ops: Option<Vec<String>>,
    /// Launches in one call of the graph; null where that is not known.
    pub calls: Option<u32>,
    /// Bytes that must move in one launch.
    pub bytes_min: Option<u64>,
    /// Shapes behind its pointer arguments, in call order, at the first launch.
    pub shapes: Option<Vec<ArgumentShape>>,
    /// True for a Triton kernel of the model's author, whose text stays: its launch is searched.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub launch_only: bool,
    /// Why it is not searchable; null for one that is.
    pub reason: Option<String>,
}

/// Shape behind one pointer argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArgumentShape {
    /// Name in the kernel's signature.
    pub argument: String,
    /// Element type as torch names it.
    pub dtype: Option<String>,
    /// Extents.
    pub size: Vec<Extent>,
    /// Strides in elements.
    pub stride: Vec<Extent>,
}

/// An extent or stride: a number, or an expression over size symbols. Serialised as either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent(pub String);

impl Serialize for Extent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.parse::<i64>() {
            Ok(number) => serializer.serialize_i64(number),
            Err(_) => serializer.serialize_str(&self.0),
        }
    }
}

impl TargetRow {
    /// A kernel that is not searched, with what its text tells.
    pub(super) fn left_alone(kernel: &Kernel, facts: &KernelFacts, flow: &Dataflow, graph: u32, reason: String) -> Self {
        let ops = Some(kernel.origins.clone()).filter(|origins| !origins.is_empty());
        Self {
            graph,
            name: kernel.name.clone(),
            language: kernel.source().map(|source| source.language),
            fingerprint: None,
            ops,
            calls: facts.calls,
            bytes_min: None,
            shapes: shapes_of_launch(kernel, facts, flow),
            launch_only: false,
            reason: Some(reason),
        }
    }

    /// A kernel that is searched.
    pub(super) fn searchable(target: &Target) -> Self {
        Self {
            graph: target.graph,
            name: target.kernel.clone(),
            language: Some(target.baseline.language),
            fingerprint: Some(target.fingerprint),
            ops: Some(ops_of(&target.meaning)).filter(|_| target.meaning.program.is_none()),
            calls: Some(target.calls),
            bytes_min: Some(target.traffic.total_bytes()).filter(|_| target.meaning.program.is_none()),
            shapes: Some(target.meaning.arguments.iter().filter_map(|argument| shape_of(&target.meaning, argument)).collect()),
            launch_only: target.meaning.program.is_some(),
            reason: None,
        }
    }
}

/// Shapes at the first launch; none where the text does not tell them all.
fn shapes_of_launch(kernel: &Kernel, facts: &KernelFacts, flow: &Dataflow) -> Option<Vec<ArgumentShape>> {
    let launch = flow.launches.get(*facts.launches.first()?)?;
    let parameters = &kernel.source()?.parameters;
    let pointers = launch.arguments.iter().zip(parameters).filter(|(argument, _)| argument.access != Access::Scalar);
    let shapes = pointers.map(|(argument, parameter)| {
        let layout = argument.layout.as_ref()?;
        let extents = |texts: &[String]| texts.iter().cloned().map(Extent).collect();
        Some(ArgumentShape {
            argument: parameter.name.clone(),
            dtype: parameter.element().map(str::to_owned).or_else(|| layout.dtype.clone()),
            size: extents(&layout.size),
            stride: extents(&layout.stride),
        })
    });
    shapes.collect::<Option<Vec<_>>>().filter(|shapes| !shapes.is_empty())
}

fn shape_of(meaning: &Meaning, argument: &Argument) -> Option<ArgumentShape> {
    if argument.role.is_value() {
        return None;
    }
    let buffer = argument.buffers.first().and_then(|name| meaning.buffers.get(name))?;
    let extents = |exprs: &[Expr]| exprs.iter().map(|expr| Extent(expr.to_string())).collect();
    Some(ArgumentShape {
        argument: argument.name.clone(),
        dtype: Some(buffer.dtype.name().to_owned()),
        size: extents(&buffer.size),
        stride: extents(&buffer.stride),
    })
}

/// Names of the functions and reductions in a meaning, each once, sorted.
fn ops_of(meaning: &Meaning) -> Vec<String> {
    let mut names = BTreeSet::new();
    for node in &meaning.nodes {
        add_ops(&node.body, &mut names);
    }
    names.into_iter().collect()
}

/// Blocks nest no deeper than a validated meaning allows.
fn add_ops(body: &[Statement], names: &mut BTreeSet<String>) {
    for statement in body {
        match &statement.operation {
            Operation::Pointwise { function, .. } => {
                names.insert(function.name());
            }
            Operation::Reduction { kind, .. } => {
                names.insert(kind_name(*kind));
            }
            Operation::Masked { body, .. } => add_ops(body, names),
            _ => {}
        }
    }
}

fn kind_name(kind: kernelopt_shared::meaning::ReductionKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{kind:?}"),
    }
}
