//! Facts about the dataflow of a file: who reads what, which outputs are scratch, which kernels are left alone and why.
//!
//! A pointer argument is followed through reuse and views to the memory behind it. What a launch writes there is *scratch*
//! when nothing reads it afterwards: no later launch, vendor call, copy, assertion, return or statement that is not
//! understood, and nobody outside. Whatever cannot be told counts as read.

mod calls;
mod memory;
mod reason;
mod walk;

use std::collections::{BTreeSet, HashMap};

use super::ModelFile;
use super::graph::Role;
use super::kernel::{Access, Author, KernelKind};
use super::value::Layout;
use memory::{ANYWHERE, Memory};
pub use reason::LeftAlone;
use walk::{Met, MetArgument, Walk};

/// Facts about a file.
#[derive(Clone, Debug)]
pub struct Dataflow {
    /// Every launch, in order of the text.
    pub launches: Vec<LaunchFacts>,
    /// Facts about each kernel, in the order of [`ModelFile::kernels`].
    pub kernels: Vec<KernelFacts>,
}

/// Facts about one launch.
#[derive(Clone, Debug)]
pub struct LaunchFacts {
    /// Name of the kernel.
    pub kernel: String,
    /// Name of the function that launches it.
    pub function: String,
    /// Line, from one.
    pub line: u32,
    /// Its arguments, in order.
    pub arguments: Vec<ArgumentFacts>,
    /// The first argument whose buffer a statement that is not understood may touch, and that statement's line.
    pub touched: Option<(String, u32)>,
}

/// Facts about one argument of a launch.
#[derive(Clone, Debug)]
pub struct ArgumentFacts {
    /// Name of the parameter, where the signature was understood.
    pub name: Option<String>,
    /// What the kernel does with it.
    pub access: Access,
    /// First names of the memory behind a pointer; more than one where it is not known which.
    pub buffers: Vec<String>,
    /// Its shape, where the text tells.
    pub layout: Option<Layout>,
    /// Who reads the memory after the launch.
    pub later: Later,
}

/// Who reads a piece of memory after a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// Nobody.
    Never,
    /// The statement on this line, first.
    Read {
        /// Its line, from one.
        line: u32,
    },
    /// Whoever called the function may: it is an input, a constant, or memory that cannot be told.
    Outside,
}

/// Facts about one kernel.
#[derive(Clone, Debug)]
pub struct KernelFacts {
    /// Its name.
    pub name: String,
    /// Launches in one call of the graph; none where that is not known.
    pub calls: Option<u32>,
    /// Its launches, as positions in [`Dataflow::launches`].
    pub launches: Vec<usize>,
    /// Positions of the arguments that it writes and that nobody reads after any launch.
    pub scratch: BTreeSet<usize>,
    /// Why it is left alone whatever it computes.
    pub left_alone: Option<LeftAlone>,
}

impl Dataflow {
    /// Follows every buffer of `file`.
    pub fn of(file: &ModelFile) -> Self {
        let mut walk = Walk::new(file);
        file.graphs().iter().for_each(|graph| walk.graph(graph));
        walk.memory.spread_touches();
        let launches: Vec<LaunchFacts> = walk.launches.iter().map(|met| launch_facts(file, &walk, met)).collect();
        let times = runs_of_functions(file, &walk);
        let mut by_kernel: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, launch) in launches.iter().enumerate() {
            by_kernel.entry(launch.kernel.as_str()).or_default().push(index);
        }
        let definitions = definitions_of(file);
        let chosen = chosen_by(file);
        let kernels = file
            .kernels()
            .iter()
            .map(|kernel| {
                // Of two definitions of one name, the first is told the launches.
                let indices = by_kernel.remove(kernel.name.as_str()).unwrap_or_default();
                let mut runs = indices.iter().map(|index| times[walk.launches[*index].function]);
                let calls = runs.try_fold(0u32, |sum, times| sum.checked_add(times?));
                let scratch = scratch_of(&launches, &indices);
                let facts = KernelFacts { name: kernel.name.clone(), calls, launches: indices, scratch, left_alone: None };
                let about = About { walk: &walk, launches: &launches, definitions: &definitions, chosen: &chosen };
                KernelFacts { left_alone: about.left_alone(&kernel.kind, &facts), ..facts }
            })
            .collect();
        Self { launches, kernels }
    }

    /// Facts about the kernel `name`, where one definition has that name.
    pub fn kernel(&self, name: &str) -> Option<&KernelFacts> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}

fn launch_facts(file: &ModelFile, walk: &Walk<'_>, met: &Met) -> LaunchFacts {
    let memory = &walk.memory;
    let touched = met.arguments.iter().find_map(|argument| {
        let line_of = |id: &usize| if *id == ANYWHERE { walk.first_opaque } else { memory.get(*id).touched };
        let line = argument.storages.iter().find_map(line_of)?;
        Some((argument.local.clone().unwrap_or_default(), line))
    });
    let function = file.functions().get(met.function).map(|function| function.name.clone()).unwrap_or_default();
    let arguments = met.arguments.iter().map(|argument| argument_facts(memory, argument, met.time)).collect();
    LaunchFacts { kernel: met.kernel.clone(), function, line: met.line, arguments, touched }
}

fn argument_facts(memory: &Memory, argument: &MetArgument, time: usize) -> ArgumentFacts {
    let outside = argument.storages.iter().any(|id| memory.get(*id).outside);
    let read = argument.storages.iter().filter_map(|id| memory.read_after(*id, time)).min();
    let later = match read {
        _ if outside => Later::Outside,
        Some(line) => Later::Read { line },
        None => Later::Never,
    };
    ArgumentFacts {
        name: argument.parameter.as_ref().map(|parameter| parameter.name.clone()),
        access: argument.access,
        buffers: argument.storages.iter().map(|id| memory.get(*id).name.clone()).collect(),
        layout: argument.layout.clone(),
        later,
    }
}

/// Positions that are written and never read after any of the launches at `indices`.
fn scratch_of(launches: &[LaunchFacts], indices: &[usize]) -> BTreeSet<usize> {
    let scratch = |launch: &LaunchFacts| -> BTreeSet<usize> {
        let written = launch.arguments.iter().enumerate().filter(|(_, argument)| argument.access.writes());
        written.filter(|(_, argument)| argument.later == Later::Never).map(|(position, _)| position).collect()
    };
    let mut sets = indices.iter().map(|index| scratch(&launches[*index]));
    let first = sets.next().unwrap_or_default();
    sets.fold(first, |all, next| all.intersection(&next).copied().collect())
}

/// Runs of each function in one call of its graph; none where that is not known. Callees stand before their callers.
fn runs_of_functions(file: &ModelFile, walk: &Walk<'_>) -> Vec<Option<u32>> {
    let functions = file.functions();
    let mut runs: Vec<Option<u32>> =
        functions.iter().map(|function| Some(u32::from(matches!(function.role, Role::Entry { .. })))).collect();
    for (index, function) in functions.iter().enumerate() {
        if walk.mentioned.contains_key(&function.name) {
            runs[index] = None;
        }
    }
    let mut calls = walk.calls.clone();
    calls.sort_unstable_by(|a, b| b.cmp(a));
    for (caller, callee) in calls {
        let sum = runs[callee].zip(runs[caller]).and_then(|(known, more)| known.checked_add(more));
        runs[callee] = if callee < caller { sum } else { None };
    }
    runs
}

fn definitions_of(file: &ModelFile) -> HashMap<&str, Vec<u32>> {
    let mut lines: HashMap<&str, Vec<u32>> = HashMap::new();
    for kernel in file.kernels() {
        lines.entry(kernel.name.as_str()).or_default().push(kernel.line);
    }
    lines
}

/// For each kernel that another one may run in its place, that other one.
fn chosen_by(file: &ModelFile) -> HashMap<&str, &str> {
    let mut chosen = HashMap::new();
    for kernel in file.kernels() {
        if let KernelKind::Foreign { members, .. } = &kernel.kind {
            chosen.extend(members.iter().map(|member| (member.as_str(), kernel.name.as_str())));
        }
    }
    chosen
}

struct About<'a> {
    walk: &'a Walk<'a>,
    launches: &'a [LaunchFacts],
    definitions: &'a HashMap<&'a str, Vec<u32>>,
    chosen: &'a HashMap<&'a str, &'a str>,
}

impl About<'_> {
    fn left_alone(&self, kind: &KernelKind, facts: &KernelFacts) -> Option<LeftAlone> {
        let name = facts.name.as_str();
        if let Some([first, second, ..]) = self.definitions.get(name).map(Vec::as_slice) {
            return Some(LeftAlone::DefinedTwice { lines: (*first, *second) });
        }
        let source = match kind {
            KernelKind::Foreign { maker, .. } => return Some(LeftAlone::Foreign { maker: maker.clone() }),
            KernelKind::Source(source) => source,
        };
        match source.author {
            Author::Template => return Some(LeftAlone::Template),
            Author::User | Author::Scheduler => {}
        }
        if let Some(by) = self.chosen.get(name) {
            return Some(LeftAlone::Chosen { by: (*by).to_owned() });
        }
        if let Some(line) = self.walk.mentioned.get(name) {
            return Some(LeftAlone::Mentioned { line: *line });
        }
        if facts.launches.is_empty() || facts.calls == Some(0) {
            return Some(LeftAlone::NeverLaunched);
        }
        if facts.calls.is_none() {
            let unknown = facts.launches.first().map(|index| self.launches[*index].function.clone());
            return Some(LeftAlone::ControlFlow { function: unknown.unwrap_or_default() });
        }
        self.launch_reason(facts, source.parameters.len() + source.extra)
    }

    fn launch_reason(&self, facts: &KernelFacts, parameters: usize) -> Option<LeftAlone> {
        let launches = || facts.launches.iter().map(|index| &self.launches[*index]);
        if let Some((buffer, line)) = launches().find_map(|launch| launch.touched.clone()) {
            return Some(LeftAlone::SharesBuffer { buffer, line });
        }
        let misfit = launches().find(|launch| launch.arguments.len() != parameters);
        misfit.map(|launch| LeftAlone::Signature { line: launch.line })
    }
}
