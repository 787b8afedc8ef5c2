//! Tiles turned on their side: in a pass over vectors of rows, an access that runs along the row instead goes through a small
//! tile, which is transposed in registers, eight by eight.

use std::collections::BTreeMap;

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::Expr;

use super::super::Unsupported;
use super::super::graph::{Id, Op};
use super::super::index::coefficient;
use super::super::loops::substitute;
use super::super::plan::Step;
use super::super::region::Access;
use super::body::{BodyCopy, Emitter, Tile};
use super::index::{plain, subscript};
use super::region::loop_header;

/// Elements along the row in one tile.
pub const DEPTH: i64 = 8;

/// Accesses of a pass that go through tiles.
#[derive(Default)]
pub struct Staged {
    /// Loads, each with its place and its stride from lane to lane.
    loads: Vec<(Id, String, String)>,
    /// Numbers of stores among the pass's, each with the like.
    stores: Vec<(usize, String, String)>,
}

impl Staged {
    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.loads.is_empty() && self.stores.is_empty()
    }
}

impl Emitter<'_> {
    /// What a pass over `last` has to stage, if the schedule asks for it.
    pub fn staged(&self, step: &Step, last: &str) -> Staged {
        let mut staged = Staged::default();
        let Some(tile) = self.tile().filter(|tile| self.plan.stage && tile.is_whole() && tile.lanes % 8 == 0) else { return staged };
        for id in &step.values {
            if let Op::Load { buffer, index, guarded: false } = &self.graph.value(*id).op
                && self.graph.value(*id).args.is_empty()
                && let Some(stride) = self.stride(buffer, index, &tile, last)
            {
                let pointer = self.storage.read_through(buffer).map_or(buffer.as_str(), |argument| argument.name.as_str());
                staged.loads.push((*id, format!("{pointer} + {}", place(index, &tile)), stride));
            }
        }
        for (number, store) in step.stores.iter().enumerate() {
            let Access { buffer, index, args, .. } = &store.target;
            if args.is_empty()
                && !store.atomic
                && let Some(stride) = self.stride(buffer, index, &tile, last)
            {
                let pointer = self.storage.written_through(buffer).map_or(buffer.as_str(), |argument| argument.name.as_str());
                staged.stores.push((number, format!("{pointer} + {}", place(index, &tile)), stride));
            }
        }
        staged
    }

    /// Distance between lanes of an access that runs along the row and not along the lanes.
    fn stride(&self, buffer: &str, index: &Expr, tile: &Tile, last: &str) -> Option<String> {
        let lanes = coefficient(index, &tile.variable)?;
        let along_row = coefficient(index, last)? == Expr::Int(1);
        let apart = !matches!(lanes, Expr::Int(0 | 1));
        (along_row && apart && self.storage.dtype(buffer) == Dtype::Float32).then(|| plain(&lanes))
    }

    /// A tile's depth of elements from `start`, of each lane.
    pub fn along_staged_rows(
        &mut self,
        step: &Step,
        staged: &Staged,
        start: &str,
        last: &str,
        accumulate: impl FnOnce(&mut Self),
    ) -> Result<(), Unsupported> {
        let Some(tile) = self.tile() else { return Err(Unsupported::new("no vector of rows")) };
        let lanes = tile.lanes;
        for (id, place, stride) in &staged.loads {
            let number = self.numbers[id];
            self.out.line(format!("alignas(64) float s{number}[{DEPTH}][{lanes}];"));
            self.out.line(format!("stage_in<{DEPTH}, {lanes}>(s{number}, {}, {stride});", at(place, last, start)));
        }
        for (number, ..) in &staged.stores {
            self.out.line(format!("alignas(64) float t{number}[{DEPTH}][{lanes}];"));
        }
        self.out.open(loop_header("k", "0", &DEPTH.to_string(), 1));
        self.out.line(format!("const int64_t {last} = {start} + k;"));
        self.open_lanes(step, "lanes", &tile.start, &tile.variable);
        let copy = BodyCopy::default();
        self.local.clear();
        self.replaced = staged.loads.iter().map(|(id, ..)| (*id, format!("s{}[k][l]", self.numbers[id]))).collect();
        self.compute(&step.values, &copy)?;
        self.replaced = BTreeMap::new();
        self.keep(step, &copy);
        accumulate(self);
        for (number, store) in step.stores.iter().enumerate() {
            if staged.stores.iter().any(|(staged, ..)| *staged == number) {
                let value = self.operand(store.value, &copy);
                self.out.line(format!("t{number}[k][l] = {value};"));
            } else {
                self.write(std::slice::from_ref(store), &copy)?;
            }
        }
        self.out.close();
        self.out.close();
        for (number, place, stride) in &staged.stores {
            self.out.line(format!("stage_out<{DEPTH}, {lanes}>({}, t{number}, {stride});", at(place, last, start)));
        }
        Ok(())
    }
}

/// Subscript of the tile's first lane, the row's variable still to be placed.
fn place(index: &Expr, tile: &Tile) -> String {
    let first = BTreeMap::from([(tile.variable.clone(), Expr::var(tile.start.as_str()))]);
    subscript(&substitute(index, &first), &|var| format!("<{var}>"))
}

fn at(place: &str, last: &str, start: &str) -> String {
    place.replace(&format!("<{last}>"), start).replace(['<', '>'], "")
}
