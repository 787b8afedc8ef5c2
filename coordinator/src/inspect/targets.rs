//! The targets of a bundle: generated kernels that can be searched, with everything needed to do so.

use std::collections::BTreeSet;

use kernelopt_shared::bundle::{Bundle, GraphEntry, KernelEntry};
use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::fingerprint::fingerprint;
use kernelopt_shared::meaning::traffic::traffic;
use kernelopt_shared::meaning::{Meaning, Role};
use kernelopt_shared::result::Untouched;
use kernelopt_shared::target::{Language, Target};

use super::error::InspectError;
use super::row::TargetRow;
use crate::inductor::ModelFile;
use crate::inductor::dataflow::{Dataflow, KernelFacts};
use crate::inductor::kernel::{Access, Kernel, Source};

/// Every generated kernel of a bundle: what can be searched, and what is left alone with the reason.
pub fn targets(bundle: &Bundle) -> Result<(Vec<Target>, Vec<Untouched>), InspectError> {
    let (mut targets, mut untouched) = (Vec::new(), Vec::new());
    for entry in &bundle.manifest.graphs {
        let graph = BundleGraph::open(bundle, entry)?;
        for (kernel, facts) in graph.kernels() {
            match graph.target(kernel, facts) {
                Ok(target) => targets.push(target),
                Err(reason) => untouched.push(Untouched { name: kernel.name.clone(), graph: entry.index, reason }),
            }
        }
        let strays = graph.entries.iter().filter(|stray| graph.flow.kernel(&stray.kernel).is_none());
        untouched.extend(strays.map(|stray| {
            let reason = format!("has a meaning, but {} does not define it", entry.code);
            Untouched { name: stray.kernel.clone(), graph: entry.index, reason }
        }));
    }
    Ok((targets, untouched))
}

/// One graph of a bundle, read.
pub(super) struct BundleGraph {
    pub(super) file: ModelFile,
    flow: Dataflow,
    entries: Vec<KernelEntry>,
    index: u32,
}

impl BundleGraph {
    pub(super) fn open(bundle: &Bundle, entry: &GraphEntry) -> Result<Self, InspectError> {
        let path = bundle.root.join(&entry.code);
        let file = ModelFile::parse(&bundle.text(&entry.code)?).map_err(|e| InspectError::from(e).at(&path))?;
        let flow = Dataflow::of(&file);
        Ok(Self { file, flow, entries: bundle.kernels(entry)?, index: entry.index })
    }

    fn kernels(&self) -> impl Iterator<Item = (&Kernel, &KernelFacts)> {
        self.file.kernels().iter().zip(&self.flow.kernels).filter(|(kernel, _)| !kernel.is_choice())
    }

    /// Every kernel as a row, in order of definition.
    pub(super) fn rows(&self) -> Vec<TargetRow> {
        let row = |(kernel, facts): (&Kernel, &KernelFacts)| match self.target(kernel, facts) {
            Ok(target) => TargetRow::searchable(&target),
            Err(reason) => TargetRow::left_alone(kernel, facts, &self.flow, self.index, reason),
        };
        self.kernels().map(row).collect()
    }

    /// The target that `kernel` is; else a sentence that says why it is none.
    fn target(&self, kernel: &Kernel, facts: &KernelFacts) -> Result<Target, String> {
        if let Some(reason) = &facts.left_alone {
            return Err(reason.to_string());
        }
        let (Some(source), Some(calls)) = (kernel.source(), facts.calls) else { return Err("it has no source".into()) };
        let mut entries = self.entries.iter().filter(|entry| entry.kernel == kernel.name);
        let entry = match (entries.next(), entries.next()) {
            (Some(entry), None) => entry,
            (None, _) => return Err("no meaning was exported".into()),
            (Some(_), Some(_)) => return Err("two meanings were exported for it".into()),
        };
        let meaning = entry.decoded()?;
        if source.language == Language::Triton && entry.launch.is_none() {
            return Err("the capture had no GPU on which the compiler could choose its configuration".into());
        }
        check_signature(source, &meaning)?;
        let scratch: BTreeSet<String> =
            facts.scratch.iter().filter_map(|position| meaning.arguments.get(*position)).map(|argument| argument.name.clone()).collect();
        Ok(Target {
            kernel: kernel.name.clone(),
            graph: self.index,
            fingerprint: fingerprint(&meaning),
            traffic: traffic(&meaning, &scratch),
            meaning,
            baseline: baseline(source, entry.launch.clone()),
            scratch,
            calls,
            distributions: entry.distributions.clone(),
        })
    }
}

/// The compiler's own code as a candidate.
fn baseline(source: &Source, launch: Option<Launch>) -> Candidate {
    let origin = Origin { proposer: "baseline".into(), note: "the compiler's own code".into(), parent: None, round: 0 };
    Candidate {
        language: source.language,
        source: source.text.clone(),
        launch,
        further: Vec::new(),
        scratch: Vec::new(),
        precision: Precision::Baseline,
        origin,
    }
}

/// The meaning and the source must name the same arguments for the same uses: positions tie one to the other.
fn check_signature(source: &Source, meaning: &Meaning) -> Result<(), String> {
    let (parameters, arguments) = (&source.parameters, &meaning.arguments);
    if parameters.len() != arguments.len() {
        return Err(format!("its source has {} parameters, its meaning {} arguments", parameters.len(), arguments.len()));
    }
    let fits = |role: Role, access: Access| match access {
        Access::Scalar => role == Role::Size,
        Access::Read => role == Role::In,
        Access::Write | Access::ReadWrite => matches!(role, Role::Out | Role::Inout),
    };
    let misfit = parameters
        .iter()
        .zip(arguments)
        .find(|(parameter, argument)| parameter.name != argument.name || !fits(argument.role, parameter.access));
    match misfit {
        None => Ok(()),
        Some((parameter, argument)) => Err(format!("its source has the parameter {}, its meaning {} there", parameter.name, argument.name)),
    }
}
