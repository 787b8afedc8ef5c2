//! The memory of a model: which names reach which storage, and who reads it when.
//!
//! Every cap here keeps hostile text from costing more than linear time; past a cap the answer is the cautious one.

use std::collections::HashMap;

use crate::inductor::value::Layout;

/// Position of a storage in [`Memory`].
pub(super) type StorageId = usize;
/// The storage that stands for "any of them"; it belongs to the outside.
pub(super) const ANYWHERE: StorageId = 0;
/// Most storages that one name may reach; beyond it the name reaches [`ANYWHERE`].
const MAX_REACH: usize = 32;
/// Most elements of one tuple that are told apart, and how deep tuples may nest.
const MAX_PARTS: usize = 64;
const MAX_PART_DEPTH: usize = 4;

/// What happens to a storage at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Something reads it, on this line.
    Read(u32),
    /// It is filled anew; what it held before is gone.
    Overwrite,
}

/// One piece of memory, or a tuple of such that a call gave.
#[derive(Debug, Default)]
pub(super) struct Storage {
    /// First name of it.
    pub(super) name: String,
    /// Function whose local it is.
    function: usize,
    /// Someone outside the function sees it: an input or a constant.
    pub(super) outside: bool,
    /// Line of a statement that is not understood and may touch it.
    pub(super) touched: Option<u32>,
    /// Storages of callers and callees that are the same memory.
    pub(super) links: Vec<StorageId>,
    /// Reads and overwrites, by time.
    events: Vec<(usize, Event)>,
    is_tuple: bool,
    depth: usize,
    parent: Option<StorageId>,
    parts: HashMap<String, StorageId>,
    /// Live names that reach it.
    owners: usize,
    /// The name that took it over and has not used it yet.
    fresh: Option<String>,
}

/// What a local name reaches.
#[derive(Clone, Debug, Default)]
pub(super) struct Holding {
    pub(super) storages: Vec<StorageId>,
    pub(super) layout: Option<Layout>,
}

/// All storages of a file.
pub(super) struct Memory {
    storages: Vec<Storage>,
    /// Times and lines at which some function may read any of its storages, by function.
    reads_of_all: HashMap<usize, Vec<(usize, u32)>>,
    /// The running time: one tick per statement.
    pub(super) now: usize,
}

impl Memory {
    pub(super) fn new() -> Self {
        let anywhere = Storage { outside: true, ..Storage::default() };
        Self { storages: vec![anywhere], reads_of_all: HashMap::new(), now: 0 }
    }

    pub(super) fn get(&self, id: StorageId) -> &Storage {
        &self.storages[id]
    }

    pub(super) fn len(&self) -> usize {
        self.storages.len()
    }

    pub(super) fn add(&mut self, name: &str, function: usize, outside: bool, is_tuple: bool) -> StorageId {
        self.storages.push(Storage { name: name.to_owned(), function, outside, is_tuple, ..Storage::default() });
        self.storages.len() - 1
    }

    /// The storage of one element of what `id` holds; itself, where it is no tuple.
    pub(super) fn part(&mut self, id: StorageId, key: &str) -> StorageId {
        let whole = &self.storages[id];
        if let Some(part) = whole.parts.get(key) {
            return *part;
        }
        let counted = key.bytes().all(|byte| byte.is_ascii_digit());
        if !whole.is_tuple || !counted || whole.parts.len() >= MAX_PARTS || whole.depth >= MAX_PART_DEPTH {
            return id;
        }
        let part = Storage {
            name: format!("{}[{key}]", whole.name),
            function: whole.function,
            outside: whole.outside,
            touched: whole.touched,
            is_tuple: true,
            depth: whole.depth + 1,
            parent: Some(id),
            links: vec![id],
            ..Storage::default()
        };
        self.storages.push(part);
        let part = self.storages.len() - 1;
        self.storages[id].parts.insert(key.to_owned(), part);
        self.storages[id].links.push(part);
        part
    }

    /// All of `groups` together, capped.
    pub(super) fn union<'a>(groups: impl IntoIterator<Item = &'a [StorageId]>) -> Vec<StorageId> {
        let mut all: Vec<StorageId> = Vec::new();
        for id in groups.into_iter().flatten() {
            if !all.contains(id) {
                all.push(*id);
            }
            if all.len() > MAX_REACH {
                return vec![ANYWHERE];
            }
        }
        all
    }

    /// A read of `ids` by `function`: of their parts and of what they are part of, too.
    pub(super) fn read(&mut self, ids: &[StorageId], function: usize, line: u32) {
        for id in ids {
            if *id == ANYWHERE {
                self.read_all(function, line);
            }
            let parts: Vec<StorageId> = self.storages[*id].parts.values().copied().collect();
            let mut reached = vec![*id];
            reached.extend(parts);
            let mut above = self.storages[*id].parent;
            while let Some(parent) = above {
                reached.push(parent);
                above = self.storages[parent].parent;
            }
            for storage in reached {
                self.note(storage, Event::Read(line));
            }
        }
    }

    fn note(&mut self, id: StorageId, event: Event) {
        let now = self.now;
        let storage = &mut self.storages[id];
        storage.fresh = None;
        if storage.events.last() != Some(&(now, event)) {
            storage.events.push((now, event));
        }
    }

    /// A read of anything that `function` holds.
    pub(super) fn read_all(&mut self, function: usize, line: u32) {
        self.reads_of_all.entry(function).or_default().push((self.now, line));
    }

    /// A write behind `name`: where that name alone holds a storage that it has taken over and not used, what the storage
    /// held before is gone. Any other write leaves it open whether all of it is overwritten.
    pub(super) fn fill(&mut self, name: &str, ids: &[StorageId]) {
        if let [id] = ids {
            let storage = &self.storages[*id];
            let alone =
                storage.owners == 1 && storage.fresh.as_deref() == Some(name) && storage.parent.is_none() && storage.parts.is_empty();
            if alone && !storage.outside {
                self.note(*id, Event::Overwrite);
                return;
            }
        }
        self.use_up(ids);
    }

    /// A write that may leave old elements in place.
    pub(super) fn use_up(&mut self, ids: &[StorageId]) {
        ids.iter().for_each(|id| self.storages[*id].fresh = None);
    }

    pub(super) fn own(&mut self, ids: &[StorageId]) {
        ids.iter().for_each(|id| self.storages[*id].owners += 1);
    }

    pub(super) fn disown(&mut self, ids: &[StorageId]) {
        ids.iter().for_each(|id| self.storages[*id].owners = self.storages[*id].owners.saturating_sub(1));
    }

    /// `name` takes over a storage that exists already.
    pub(super) fn take_over(&mut self, name: &str, ids: &[StorageId]) {
        if let [id] = ids {
            self.storages[*id].fresh = Some(name.to_owned());
        }
    }

    pub(super) fn touch(&mut self, id: StorageId, line: u32) {
        self.storages[id].touched.get_or_insert(line);
    }

    pub(super) fn link(&mut self, a: StorageId, b: StorageId) {
        self.storages[a].links.push(b);
        self.storages[b].links.push(a);
    }

    /// Spreads every touch over links: memory that two functions or a tuple and its parts share.
    pub(super) fn spread_touches(&mut self) {
        let mut open: Vec<StorageId> = (0..self.len()).filter(|id| self.storages[*id].touched.is_some()).collect();
        while let Some(id) = open.pop() {
            let Some(line) = self.storages[id].touched else { continue };
            for linked in self.storages[id].links.clone() {
                if self.storages[linked].touched.is_none() {
                    self.storages[linked].touched = Some(line);
                    open.push(linked);
                }
            }
        }
    }

    /// Line of the first read of what `id` holds at `time`, after it and before it is overwritten.
    pub(super) fn read_after(&self, id: StorageId, time: usize) -> Option<u32> {
        let storage = &self.storages[id];
        let next = storage.events.get(storage.events.partition_point(|(at, _)| *at <= time));
        let of_all = self.reads_of_all.get(&storage.function);
        let any = of_all.and_then(|reads| reads.get(reads.partition_point(|(at, _)| *at <= time)));
        match (next, any) {
            (Some((at, _)), Some((any_at, line))) if any_at < at => Some(*line),
            (Some((_, Event::Read(line))), _) | (None, Some((_, line))) => Some(*line),
            (Some((_, Event::Overwrite)) | None, _) => None,
        }
    }

    /// Touches every storage made since there were `first`.
    pub(super) fn touch_since(&mut self, first: usize, line: u32) {
        self.storages[first..].iter_mut().for_each(|storage| {
            storage.touched.get_or_insert(line);
        });
    }
}
