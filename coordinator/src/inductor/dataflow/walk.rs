//! One function after the other, statement by statement: what each does to the memory.

use std::collections::HashMap;

use super::calls::Summary;
use super::memory::{ANYWHERE, Holding, Memory, StorageId};
use crate::inductor::ModelFile;
use crate::inductor::graph::Graph;
use crate::inductor::kernel::{Access, Parameter};
use crate::inductor::statement::{CopyTarget, Launch, Opaque, Statement, StatementKind, Vendor};
use crate::inductor::value::{Layout, Scalar, Value, View, ViewKind};

/// A launch as met on the walk; what happens later is asked of the memory when the walk is over.
pub(super) struct Met {
    pub(super) function: usize,
    pub(super) kernel: String,
    pub(super) line: u32,
    pub(super) time: usize,
    pub(super) arguments: Vec<MetArgument>,
}

/// One argument of a launch.
pub(super) struct MetArgument {
    /// The local name that it comes from.
    pub(super) local: Option<String>,
    pub(super) parameter: Option<Parameter>,
    pub(super) access: Access,
    pub(super) storages: Vec<StorageId>,
    pub(super) layout: Option<Layout>,
}

/// Walks over all functions of a file.
pub(super) struct Walk<'a> {
    file: &'a ModelFile,
    pub(super) memory: Memory,
    pub(super) launches: Vec<Met>,
    /// Calls from one function to another, by position.
    pub(super) calls: Vec<(usize, usize)>,
    /// First line of a statement that is not understood and names a kernel or function.
    pub(super) mentioned: HashMap<String, u32>,
    /// First line of any statement that is not understood.
    pub(super) first_opaque: Option<u32>,
    parameters: HashMap<&'a str, &'a [Parameter]>,
    pub(super) by_name: HashMap<&'a str, Vec<usize>>,
    constants: HashMap<String, StorageId>,
    pub(super) summaries: HashMap<usize, Summary>,
}

/// The state of the walk inside one function.
pub(super) struct Frame {
    pub(super) function: usize,
    pub(super) names: HashMap<String, Holding>,
    /// Elements of the lists that are still whole.
    pub(super) lists: HashMap<String, Vec<Vec<StorageId>>>,
    inputs: Vec<StorageId>,
    outputs: Vec<Vec<StorageId>>,
    touched_all: Option<u32>,
    pub(super) line: u32,
}

impl<'a> Walk<'a> {
    pub(super) fn new(file: &'a ModelFile) -> Self {
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, function) in file.functions().iter().enumerate() {
            by_name.entry(function.name.as_str()).or_default().push(index);
        }
        let mut memory = Memory::new();
        let constants = file.constants().iter().map(|name| (name.clone(), memory.add(name, usize::MAX, true, false))).collect();
        let parameters =
            file.kernels().iter().filter_map(|kernel| Some((kernel.name.as_str(), kernel.source()?.parameters.as_slice()))).collect();
        Self {
            file,
            memory,
            launches: Vec::new(),
            calls: Vec::new(),
            mentioned: HashMap::new(),
            first_opaque: None,
            parameters,
            by_name,
            constants,
            summaries: HashMap::new(),
        }
    }

    pub(super) fn graph(&mut self, graph: &Graph) {
        for statement in &graph.opaque {
            self.mention(&statement.mentions, statement.line);
        }
        for index in &graph.functions {
            self.function(*index, graph);
        }
    }

    fn mention(&mut self, names: &[String], line: u32) {
        self.first_opaque.get_or_insert(line);
        for name in names {
            self.mentioned.entry(name.clone()).or_insert(line);
            if let Some(constant) = self.constants.get(name) {
                self.memory.touch(*constant, line);
            }
        }
    }

    fn function(&mut self, index: usize, graph: &Graph) {
        let file = self.file;
        let Some(function) = file.functions().get(index) else { return };
        let first_storage = self.memory.len();
        let mut frame = Frame {
            function: index,
            names: HashMap::new(),
            lists: HashMap::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            touched_all: None,
            line: function.line,
        };
        for statement in &function.statements {
            self.memory.now += 1;
            frame.line = statement.line;
            self.statement(&mut frame, statement, graph);
        }
        if let Some(line) = frame.touched_all {
            self.memory.touch_since(first_storage, line);
        }
        self.summaries.insert(index, Summary::new(frame.inputs, frame.outputs));
    }

    fn statement(&mut self, frame: &mut Frame, statement: &Statement, graph: &Graph) {
        for value in statement.kind.values() {
            self.read_numbers(frame, value);
        }
        match &statement.kind {
            StatementKind::Unpack { names } => {
                for name in names {
                    let input = self.memory.add(name, frame.function, true, false);
                    frame.inputs.push(input);
                    self.set(frame, name, Holding { storages: vec![input], layout: None });
                }
            }
            StatementKind::Symbol { value, .. } | StatementKind::Scalar { value, .. } => self.read_names(frame, value),
            StatementKind::Assertion { layout, reads } => {
                self.read_names(frame, &Scalar { text: String::new(), reads: reads.clone() });
                if let Some((name, layout)) = layout
                    && let Some(holding) = frame.names.get_mut(name)
                {
                    let dtype = holding.layout.take().and_then(|known| known.dtype);
                    holding.layout = Some(Layout { dtype, ..layout.clone() });
                }
            }
            StatementKind::Allocate { name, layout } => self.set_new(frame, name, false, Vec::new(), layout.clone()),
            StatementKind::Bind { name, value } => self.bind(frame, name, value),
            StatementKind::Nothing { name } => self.set(frame, name, Holding::default()),
            StatementKind::Free { names } => names.iter().for_each(|name| self.unset(frame, name)),
            StatementKind::Vendor(vendor) => self.vendor(frame, vendor),
            StatementKind::Copy { target, sources } => self.copy(frame, target, sources),
            StatementKind::Fill { target } => {
                let storages = self.storages(frame, target);
                self.memory.use_up(&storages);
            }
            StatementKind::Launch(launch) => self.launch(frame, launch),
            StatementKind::Pack { name, items } => {
                let items: Vec<Vec<StorageId>> = items.iter().map(|item| self.storages(frame, item)).collect();
                let storages = Memory::union(items.iter().map(Vec::as_slice));
                self.set(frame, name, Holding { storages, layout: None });
                frame.lists.insert(name.clone(), items);
            }
            StatementKind::Call { results, callee, packed } => self.call(frame, results, callee, packed, graph),
            StatementKind::Return { values } => {
                let outputs: Vec<Vec<StorageId>> = values.iter().map(|value| self.storages(frame, value)).collect();
                outputs.iter().for_each(|storages| self.memory.read(storages, frame.function, frame.line));
                frame.outputs = outputs;
            }
            StatementKind::Opaque(opaque) => self.opaque(frame, opaque),
            StatementKind::ClearArguments | StatementKind::Guard { .. } | StatementKind::Host { .. } => {}
        }
    }

    fn set(&mut self, frame: &mut Frame, name: &str, holding: Holding) {
        self.unset(frame, name);
        self.memory.own(&holding.storages);
        frame.names.insert(name.to_owned(), holding);
    }

    fn unset(&mut self, frame: &mut Frame, name: &str) {
        frame.lists.remove(name);
        if let Some(holding) = frame.names.remove(name) {
            self.memory.disown(&holding.storages);
        }
    }

    /// Binds `name` to new memory that may also be any of `aliases`.
    pub(super) fn set_new(&mut self, frame: &mut Frame, name: &str, is_tuple: bool, aliases: Vec<StorageId>, layout: Option<Layout>) {
        let new = self.memory.add(name, frame.function, false, is_tuple);
        let storages = Memory::union([[new].as_slice(), &aliases]);
        self.set(frame, name, Holding { storages, layout });
    }

    /// Memory behind a value; none behind a number.
    fn storages(&mut self, frame: &Frame, value: &Value) -> Vec<StorageId> {
        match value {
            Value::Name(name) => match (frame.names.get(name), self.constants.get(name)) {
                (Some(holding), _) => holding.storages.clone(),
                (None, Some(constant)) => vec![*constant],
                (None, None) => vec![ANYWHERE],
            },
            Value::View(view) => self.storages(frame, &view.base),
            Value::Item { base, key } => {
                let whole = self.storages(frame, base);
                whole.into_iter().map(|id| self.memory.part(id, key)).collect()
            }
            Value::List(items) => {
                let groups: Vec<Vec<StorageId>> = items.iter().map(|item| self.storages(frame, item)).collect();
                Memory::union(groups.iter().map(Vec::as_slice))
            }
            Value::Scalar(_) | Value::None => Vec::new(),
        }
    }

    fn layout(&self, frame: &Frame, value: &Value) -> Option<Layout> {
        match value {
            Value::Name(name) => frame.names.get(name)?.layout.clone(),
            Value::View(view) => {
                let View { kind, base, layout, .. } = &**view;
                let mut layout = layout.clone()?;
                if layout.dtype.is_none() && !matches!(kind, ViewKind::Operator(_)) {
                    layout.dtype = self.layout(frame, base).and_then(|base| base.dtype);
                }
                Some(layout)
            }
            _ => None,
        }
    }

    /// The elements that numbers inside `value` were read from.
    fn read_numbers(&mut self, frame: &Frame, value: &Value) {
        value.visit(&mut |part| {
            if let Value::Scalar(scalar) = part {
                self.read_names(frame, scalar);
            }
        });
    }

    fn read_names(&mut self, frame: &Frame, scalar: &Scalar) {
        for name in &scalar.reads {
            let storages = self.storages(frame, &Value::Name(name.clone()));
            self.memory.read(&storages, frame.function, frame.line);
        }
    }

    fn read_all_of(&mut self, frame: &Frame, values: &[Value]) -> Vec<Vec<StorageId>> {
        let groups: Vec<Vec<StorageId>> = values.iter().map(|value| self.storages(frame, value)).collect();
        groups.iter().for_each(|storages| self.memory.read(storages, frame.function, frame.line));
        groups
    }

    fn bind(&mut self, frame: &mut Frame, name: &str, value: &Value) {
        let storages = self.storages(frame, value);
        let layout = self.layout(frame, value);
        self.set(frame, name, Holding { storages: storages.clone(), layout });
        self.memory.take_over(name, &storages);
    }

    fn vendor(&mut self, frame: &mut Frame, vendor: &Vendor) {
        let groups = self.read_all_of(frame, &vendor.arguments);
        if let Some(out) = &vendor.out {
            let storages = self.storages(frame, out);
            match out {
                Value::Name(name) => self.memory.fill(name, &storages),
                _ => self.memory.use_up(&storages),
            }
        }
        if let Some(result) = &vendor.result {
            let aliases = if may_alias(&vendor.callee) { Memory::union(groups.iter().map(Vec::as_slice)) } else { Vec::new() };
            self.set_new(frame, result, true, aliases, None);
        }
    }

    fn copy(&mut self, frame: &mut Frame, target: &CopyTarget, sources: &[Value]) {
        let groups = self.read_all_of(frame, sources);
        match target {
            CopyTarget::Into(value) => {
                let storages = self.storages(frame, value);
                self.memory.use_up(&storages);
            }
            // `contiguous` and a copy to the same device may give the tensor itself.
            CopyTarget::New(name) => self.set_new(frame, name, false, Memory::union(groups.iter().map(Vec::as_slice)), None),
        }
    }

    fn launch(&mut self, frame: &mut Frame, launch: &Launch) {
        let parameters: &[Parameter] = self.parameters.get(launch.kernel.as_str()).copied().unwrap_or_default();
        let given = launch.arguments.iter().map(Some).chain(launch.keywords.iter().map(|(_, value)| Some(value)));
        let mut arguments = Vec::new();
        for (position, value) in given.flatten().enumerate() {
            let parameter = parameters.get(position).filter(|_| position < launch.arguments.len());
            let is_number = matches!(value, Value::Scalar(_) | Value::None);
            let access = match parameter {
                _ if is_number => Access::Scalar,
                Some(parameter) => parameter.access,
                None => Access::ReadWrite,
            };
            let storages = if access == Access::Scalar { Vec::new() } else { self.storages(frame, value) };
            let local = value.root().map(str::to_owned);
            arguments.push(MetArgument { local, parameter: parameter.cloned(), access, storages, layout: self.layout(frame, value) });
        }
        for argument in arguments.iter().filter(|argument| matches!(argument.access, Access::Read | Access::ReadWrite)) {
            self.memory.read(&argument.storages, frame.function, frame.line);
        }
        for (argument, value) in arguments.iter().zip(&launch.arguments).filter(|(argument, _)| argument.access == Access::Write) {
            match value {
                Value::Name(name) => self.memory.fill(name, &argument.storages),
                _ => self.memory.use_up(&argument.storages),
            }
        }
        let (kernel, line) = (launch.kernel.clone(), frame.line);
        self.launches.push(Met { function: frame.function, kernel, line, time: self.memory.now, arguments });
    }

    /// Whatever the statement names may afterwards be, or hold, anything that it names, or something new.
    fn opaque(&mut self, frame: &mut Frame, opaque: &Opaque) {
        self.mention(&opaque.mentions, frame.line);
        let known: Vec<&String> = opaque.mentions.iter().filter(|name| frame.names.contains_key(*name)).collect();
        let groups: Vec<Vec<StorageId>> = known.iter().filter_map(|name| frame.names.get(*name)).map(|h| h.storages.clone()).collect();
        let mut reaches_all = opaque.reaches_all;
        for storages in &groups {
            self.memory.read(storages, frame.function, frame.line);
            storages.iter().for_each(|id| self.memory.touch(*id, frame.line));
            reaches_all |= storages.contains(&ANYWHERE);
        }
        if reaches_all {
            self.memory.read_all(frame.function, frame.line);
            frame.touched_all.get_or_insert(frame.line);
        }
        let new = self.memory.add("something", frame.function, false, true);
        self.memory.touch(new, frame.line);
        let reached = Memory::union(std::iter::once([new].as_slice()).chain(groups.iter().map(Vec::as_slice)));
        for name in known.into_iter().chain(&opaque.binds) {
            self.set(frame, name, Holding { storages: reached.clone(), layout: None });
        }
    }
}

/// True for operators that may give back what they were given: those that work in place, and those of namespaces whose
/// schemas are not known to tell.
fn may_alias(callee: &str) -> bool {
    let mut parts = callee.trim_start_matches("torch.ops.").split('.');
    let (namespace, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    !matches!(namespace, "extern_kernels" | "aten" | "mkldnn" | "prims") || name.ends_with('_')
}
