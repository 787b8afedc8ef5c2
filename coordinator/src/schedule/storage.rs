//! Which names lie in one memory, and behind which argument.

use std::collections::BTreeMap;

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::{Argument, Buffer, Meaning, Role};

/// The memory behind each buffer name of a meaning.
#[derive(Debug)]
pub struct Storage<'a> {
    meaning: &'a Meaning,
    root: BTreeMap<&'a str, &'a str>,
}

impl<'a> Storage<'a> {
    /// Groups the buffers: those behind one `inout` pointer, renamings after a mutation and parts of a concatenation share memory.
    pub fn new(meaning: &'a Meaning) -> Self {
        let mut storage = Self { meaning, root: BTreeMap::new() };
        for argument in &meaning.arguments {
            let mut names = argument.buffers.iter();
            if let Some(first) = names.next() {
                names.for_each(|name| storage.join(first, name));
            }
        }
        for (name, buffer) in &meaning.buffers {
            let partners = buffer.mutates.iter().chain(buffer.alias.iter().map(|alias| &alias.of));
            partners.for_each(|partner| storage.join(partner, name));
        }
        storage
    }

    fn join(&mut self, a: &'a str, b: &'a str) {
        let (a, b) = (self.root_of(a), self.root_of(b));
        if a != b {
            self.root.insert(b, a);
        }
    }

    fn root_of(&self, buffer: &'a str) -> &'a str {
        let mut name = buffer;
        while let Some(next) = self.root.get(name) {
            name = next;
        }
        name
    }

    /// A name for the memory that `buffer` lies in.
    pub fn of<'b>(&'b self, buffer: &'b str) -> &'b str {
        let mut name = buffer;
        while let Some(next) = self.root.get(name) {
            name = next;
        }
        name
    }

    /// The buffer's declaration.
    pub fn buffer(&self, name: &str) -> Option<&'a Buffer> {
        self.meaning.buffers.get(name)
    }

    /// Element type in memory; unknown names count as float32 (validation has refused them already).
    pub fn dtype(&self, name: &str) -> Dtype {
        self.buffer(name).map_or(Dtype::Float32, |buffer| buffer.dtype)
    }

    /// The pointer through which `buffer` is read: one that names it, rather read than written.
    pub fn read_through(&self, buffer: &str) -> Option<&'a Argument> {
        self.behind(buffer, &[Role::In, Role::Inout, Role::Out])
    }

    /// The pointer through which `buffer` is written.
    pub fn written_through(&self, buffer: &str) -> Option<&'a Argument> {
        self.behind(buffer, &[Role::Out, Role::Inout])
    }

    fn behind(&self, buffer: &str, roles: &[Role]) -> Option<&'a Argument> {
        let mut name = buffer;
        loop {
            for role in roles {
                let found = self.meaning.arguments.iter().find(|a| a.role == *role && a.buffers.iter().any(|b| b == name));
                if found.is_some() {
                    return found;
                }
            }
            name = self.buffer(name)?.mutates.as_deref()?;
        }
    }

    /// True for a part of a concatenation.
    pub fn is_part(&self, buffer: &str) -> bool {
        self.buffer(buffer).is_some_and(|buffer| buffer.alias.is_some())
    }

    /// True where a later name of the same `inout` pointer replaces what `buffer` holds.
    pub fn is_overwritten(&self, buffer: &str) -> bool {
        self.meaning
            .arguments
            .iter()
            .any(|a| a.role == Role::Inout && a.buffers.last().is_some_and(|last| last != buffer) && a.buffers.iter().any(|b| b == buffer))
    }
}
