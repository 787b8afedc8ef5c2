//! Calls from one function of a graph to another: partitions and subgraphs.

use std::collections::HashMap;

use super::memory::{ANYWHERE, Memory, StorageId};
use super::walk::{Frame, Walk};
use crate::inductor::graph::Graph;
use crate::inductor::statement::{CallResults, Callee};

/// What a caller needs to know of a function.
pub(super) struct Summary {
    inputs: Vec<StorageId>,
    /// Where each input stands.
    positions: HashMap<StorageId, usize>,
    /// A storage that is linked with every input, made when it is first needed.
    hub: Option<StorageId>,
    outputs: Vec<Vec<StorageId>>,
}

impl Summary {
    pub(super) fn new(inputs: Vec<StorageId>, outputs: Vec<Vec<StorageId>>) -> Self {
        let positions = inputs.iter().enumerate().map(|(position, input)| (*input, position)).collect();
        Self { inputs, positions, hub: None, outputs }
    }
}

impl Walk<'_> {
    pub(super) fn call(&mut self, frame: &mut Frame, results: &CallResults, callee: &Callee, packed: &str, graph: &Graph) {
        let whole = frame.names.get(packed).map(|list| list.storages.clone()).unwrap_or_default();
        // The callee empties the list. One that something not understood has seen may hold anything that it reaches.
        let items = frame.lists.insert(packed.to_owned(), Vec::new());
        let callee = self.callee(callee, graph);
        self.calls.extend(callee.map(|callee| (frame.function, callee)));
        for storages in items.as_deref().unwrap_or(std::slice::from_ref(&whole)) {
            self.memory.read(storages, frame.function, frame.line);
        }
        if let Some(callee) = callee {
            self.link_inputs(callee, items.as_deref(), &whole);
        }
        match results {
            CallResults::Tuple(name) => self.set_new(frame, name, true, whole, None),
            CallResults::Each(names) => {
                for (position, name) in names.iter().enumerate() {
                    let aliases = match (callee, &items) {
                        (Some(callee), Some(items)) => self.given_back(callee, position, items, &whole),
                        _ => whole.clone(),
                    };
                    self.set_new(frame, name, false, aliases, None);
                    self.link_output(frame, name, callee, position);
                }
            }
        }
    }

    /// Links the inputs of a function with what it is given.
    fn link_inputs(&mut self, callee: usize, items: Option<&[Vec<StorageId>]>, whole: &[StorageId]) {
        let Some(summary) = self.summaries.get_mut(&callee) else { return };
        match items {
            Some(items) => {
                for (input, given) in summary.inputs.iter().zip(items) {
                    given.iter().for_each(|storage| self.memory.link(*input, *storage));
                }
            }
            None => {
                let hub = *summary.hub.get_or_insert_with(|| {
                    let hub = self.memory.add("an input", callee, true, false);
                    summary.inputs.iter().for_each(|input| self.memory.link(hub, *input));
                    hub
                });
                whole.iter().for_each(|storage| self.memory.link(hub, *storage));
            }
        }
    }

    /// What the output at `position` may be of what the function was given.
    fn given_back(&self, callee: usize, position: usize, items: &[Vec<StorageId>], whole: &[StorageId]) -> Vec<StorageId> {
        let Some(summary) = self.summaries.get(&callee) else { return whole.to_vec() };
        let Some(output) = summary.outputs.get(position) else { return Vec::new() };
        let given = output.iter().filter_map(|storage| items.get(*summary.positions.get(storage)?)).map(Vec::as_slice);
        if output.contains(&ANYWHERE) { whole.to_vec() } else { Memory::union(given) }
    }

    /// Links the caller's name for an output with the callee's memory.
    fn link_output(&mut self, frame: &Frame, name: &str, callee: Option<usize>, position: usize) {
        let output = callee.and_then(|callee| self.summaries.get(&callee)).and_then(|summary| summary.outputs.get(position));
        let first = frame.names.get(name).and_then(|holding| holding.storages.first());
        if let (Some(output), Some(first)) = (output, first) {
            output.iter().for_each(|storage| self.memory.link(*first, *storage));
        }
    }

    /// Position of the function that runs; none where that is not known.
    fn callee(&self, callee: &Callee, graph: &Graph) -> Option<usize> {
        let name = match callee {
            Callee::Function(name) => name.as_str(),
            Callee::Partition(number) => graph.partitions.get(*number)?,
        };
        match self.by_name.get(name)?.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }
}
