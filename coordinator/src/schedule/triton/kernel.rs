//! A meaning under a schedule as one kernel: the source of its module and its launch.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::meaning::{Argument, Axis, Expr, Meaning, Role};

use super::super::Unsupported;
use super::super::graph::{Graph, Op};
use super::super::index::canonical;
use super::super::loops::{extents, iterations};
use super::super::partition;
use super::super::plan;
use super::super::region::Region;
use super::super::rewrite;
use super::super::space::{Algebra, Statistics};
use super::super::storage::Storage;
use super::super::symbols;
use super::block::{Block, Dimension, Extent};
use super::body::{Emitter, uses};
use super::function::{Binding, Text};
use super::index::{Direction, Spelling};
use super::loops::divisions;
use super::online;
use super::space::{Schedule, Shape, Softmax};
use super::writer::Writer;

/// Name of the kernel function.
pub const ENTRY: &str = "kernel";
/// Most elements that a thread holds of one value: more than these leave no registers (65536 on a multiprocessor).
const MAX_PER_THREAD: i64 = 128;
/// Most values of a kernel: the work of writing one grows with their square.
const MAX_VALUES: usize = 4096;
/// Greatest offset of 32 bits.
const MAX_NARROW: i64 = i32::MAX as i64;

/// The imports of the compiler's own kernels that a body may use.
const IMPORTS: &str = "\
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math

";

/// A kernel and how it is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The module.
    pub source: String,
    /// Values of its constexpr parameters.
    pub constants: BTreeMap<String, i64>,
    /// Programs along x, over arguments; there is no other axis.
    pub programs: Expr,
}

/// The kernel of a meaning under a schedule; `scratch` names the arguments that need not be written.
///
/// # Errors
/// Where the meaning holds something that cannot be written, or the schedule does not suit it.
pub fn kernel(meaning: &Meaning, scratch: &BTreeSet<String>, schedule: &Schedule) -> Result<Kernel, Unsupported> {
    if schedule.splits.is_some() {
        return Err(Unsupported::new("parts of rows, which are two kernels"));
    }
    with_emitter(meaning, scratch, schedule, |emitter| {
        let programs = emitter.module(&meaning.arguments)?;
        let constants = emitter.block.constants().into_iter().map(|(name, size)| (name.to_owned(), size)).collect();
        Ok(Kernel { source: emitter.source(), constants, programs })
    })
}

/// What `write` makes of a meaning under a schedule.
pub(super) fn with_emitter<T>(
    meaning: &Meaning,
    scratch: &BTreeSet<String>,
    schedule: &Schedule,
    write: impl FnOnce(&mut Emitter<'_>) -> Result<T, Unsupported>,
) -> Result<T, Unsupported> {
    let storage = Storage::new(meaning);
    let (region, outer) = region(meaning, &storage, scratch, schedule)?;
    if region.graph.ids().count() > MAX_VALUES {
        return Err(Unsupported::new("too many values"));
    }
    let steps = plan::passes(&region, &storage);
    let block = block(&region.graph, outer, schedule, meaning)?;
    let groups = groups(&region.graph, outer);
    // An argument stands for itself.
    let arguments = meaning.arguments.iter().map(|argument| (argument.name.clone(), Expr::var(argument.name.as_str())));
    let sizes = symbols::known(meaning).into_iter().chain(arguments).collect();
    let mut emitter = Emitter {
        out: Writer::default(),
        graph: &region.graph,
        storage: &storage,
        schedule,
        block,
        steps: &steps,
        spelling: Spelling::new(groups, sizes),
        names: BTreeMap::new(),
        numbers: BTreeMap::new(),
        uses: uses(&region.graph, &steps, schedule.shape != Shape::Loop),
        extents: BTreeMap::new(),
        masked: Extent::default(),
        at: 0,
    };
    emitter.find_extents();
    let written = write(&mut emitter)?;
    match emitter.spelling.unknown {
        Some(symbol) => Err(Unsupported::new(format!("size {symbol} is no argument"))),
        None => Ok(written),
    }
}

/// All of a meaning as one region, in the first division of its loops that holds it, and how many of its rows' loops are outer.
pub(super) fn region(
    meaning: &Meaning,
    storage: &Storage<'_>,
    scratch: &BTreeSet<String>,
    schedule: &Schedule,
) -> Result<(Region, usize), Unsupported> {
    let mut reason = Unsupported::new("loops that this shape does not suit");
    // What is in registers is passed over twice for nothing.
    let is_whole = schedule.statistics == Statistics::Running && schedule.shape != Shape::Loop;
    let statistics = if is_whole { Statistics::TwoPass } else { schedule.statistics };
    for division in divisions(meaning, schedule.shape) {
        let rows = [division.outer.as_slice(), &division.rows].concat();
        let loops = (rows.as_slice(), division.columns.as_deref());
        match partition::whole(meaning, storage, scratch, statistics, loops) {
            Ok(region) => {
                let region = rewrite::apply(&region, Algebra { factors: schedule.factors, ..Algebra::default() });
                let is_online = schedule.shape == Shape::Loop && schedule.softmax != Softmax::TwoPass;
                return Ok((if is_online { online::fuse(&region) } else { region }, division.outer.len()));
            }
            Err(why) => reason = why,
        }
    }
    Err(reason)
}

/// Rows are one dimension; all inner domains lie over the other, so they must have one length.
fn groups(graph: &Graph, outer: usize) -> BTreeMap<(Direction, usize), Vec<Axis>> {
    let around = ((Direction::Y, 0), graph.rows[..outer].to_vec());
    let rows = ((Direction::X, 0), graph.rows[outer..].to_vec());
    let columns = graph.domains.iter().enumerate().map(|(domain, axes)| ((Direction::R, domain), axes.clone()));
    [around, rows].into_iter().chain(columns).collect()
}

fn block(graph: &Graph, outer: usize, schedule: &Schedule, meaning: &Meaning) -> Result<Block, Unsupported> {
    let count = |axes: &[Axis]| canonical(&iterations(&extents(axes)), &graph.ranges);
    let mut lengths: Vec<Expr> = graph.domains.iter().map(|axes| count(axes)).collect();
    lengths.dedup();
    let (rows, length) = match (schedule.shape, lengths.as_slice()) {
        (Shape::Flat, []) => (count(&graph.rows), Expr::Int(1)),
        (Shape::Tile(_) | Shape::Row | Shape::Loop, [length]) => (count(&graph.rows[outer..]), length.clone()),
        _ => return Err(Unsupported::new("inner loops of several lengths")),
    };
    let dimension = |count: Expr, block: u32| {
        let count = symbols::resolved(meaning, &count)?;
        if matches!(count, Expr::Int(..1)) {
            return Err(Unsupported::new("a loop without iterations"));
        }
        Ok((count != Expr::Int(1)).then(|| Dimension { count, block: block.into(), is_wide: false }))
    };
    let y = dimension(count(&graph.rows[..outer]), 1)?;
    let mut block = Block { y, x: dimension(rows, schedule.x_block)?, r: dimension(length, schedule.r_block)? };
    check(&block, schedule)?;
    let is_wide = |rows_too: bool| accesses(graph).iter().any(|index| !fits(graph, index, rows_too, meaning));
    if let Some(r) = &mut block.r {
        r.is_wide = is_wide(false);
    }
    for dimension in [&mut block.x, &mut block.y].into_iter().flatten() {
        dimension.is_wide = is_wide(true) || matches!(dimension.count, Expr::Int(count) if count > MAX_NARROW);
    }
    Ok(block)
}

/// Refuses blocks that waste most of their threads, and those that hold too much.
fn check(block: &Block, schedule: &Schedule) -> Result<(), Unsupported> {
    let refuse = |why: &str| Err(Unsupported::new(why));
    for dimension in [&block.x, &block.r].into_iter().flatten() {
        if !u64::try_from(dimension.block).is_ok_and(u64::is_power_of_two) {
            return refuse("a block size that is no power of two");
        }
        if let Expr::Int(count) = dimension.count
            && dimension.block / 2 >= count
        {
            return refuse("a block of more than all there is");
        }
    }
    match (schedule.shape, &block.r) {
        (Shape::Flat, Some(_)) | (Shape::Row | Shape::Loop | Shape::Tile(_), None) => return refuse("no rows"),
        (Shape::Row, Some(r)) if !matches!(r.count, Expr::Int(count) if count <= r.block) => return refuse("a row longer than its block"),
        (Shape::Loop, Some(r)) if matches!(r.count, Expr::Int(count) if count <= r.block) => return refuse("a loop of one iteration"),
        _ => {}
    }
    let elements: i64 = block.constants().iter().map(|(_, size)| size).product();
    let threads = i64::from(schedule.warps) * 32;
    if elements > threads * MAX_PER_THREAD {
        return refuse("more elements than registers");
    }
    if elements * 4 < threads && schedule.warps > 1 {
        return refuse("more threads than elements");
    }
    Ok(())
}

/// Every index into memory.
fn accesses(graph: &Graph) -> Vec<Expr> {
    let index = |id| if let Op::Load { index, .. } = &graph.value(id).op { Some(index.clone()) } else { None };
    graph.ids().filter_map(index).collect()
}

/// True where an index needs no more than 32 bits; its computed parts have 64 anyway.
fn fits(graph: &Graph, index: &Expr, rows_too: bool, meaning: &Meaning) -> bool {
    let is_row = |var: &str| graph.rows.iter().any(|axis| axis.var == var);
    let index = index.map_vars(&mut |var| {
        let ignored = var.starts_with('$') || !rows_too && is_row(var);
        if ignored { Expr::Int(0) } else { Expr::var(var) }
    });
    match graph.ranges.of(&canonical(&index, &graph.ranges)) {
        Some((low, high)) => low >= -MAX_NARROW && high <= MAX_NARROW,
        // With sizes that are not known, the compiler has thought of how large they may become.
        None => !meaning.arguments.iter().any(|argument| argument.role == Role::Size && argument.c_type == "i64"),
    }
}

impl Emitter<'_> {
    /// The module as far as it is written.
    pub fn source(&self) -> String {
        format!("{IMPORTS}{}", self.out.text())
    }

    /// Writes the kernel, and gives the number of its programs.
    fn module(&mut self, arguments: &[Argument]) -> Result<Expr, Unsupported> {
        let constants = self.block.constants();
        let parameters = arguments.iter().map(|argument| argument.name.clone());
        let parameters = parameters.chain(constants.iter().map(|(name, _)| format!("{name}: tl.constexpr")));
        self.out.line("");
        self.out.line("@triton.jit");
        self.out.open(format!("def {ENTRY}({}):", parameters.collect::<Vec<_>>().join(", ")));
        let (x, r) = (self.block.x.clone(), self.block.r.clone());
        let columns = r.as_ref().filter(|_| matches!(self.schedule.shape, Shape::Tile(_))).map_or(Expr::Int(1), Dimension::blocks);
        let blocks = |dimension: &Option<Dimension>| dimension.as_ref().map_or(Expr::Int(1), Dimension::blocks);
        let tiles = canonical(&Expr::mul(vec![blocks(&self.block.y), blocks(&x), columns.clone()]), &self.graph.ranges);
        let programs = match self.schedule.resident {
            None => tiles.clone(),
            Some(programs) if matches!(tiles, Expr::Int(tiles) if tiles <= i64::from(programs)) => {
                return Err(Unsupported::new("fewer tiles than programs that stay"));
            }
            Some(programs) => Expr::Min(vec![tiles.clone(), Expr::Int(programs.into())]),
        };
        if self.schedule.resident.is_some() {
            let end = self.spelling.plain(&tiles);
            self.out.open(format!("for tile in tl.range(tl.program_id(0), {end}, tl.num_programs(0)):"));
        }
        self.indices(columns, true);
        let mark = self.out.mark();
        if self.schedule.shape == Shape::Loop {
            self.in_loops()?
        } else {
            self.at_once()?
        }
        let body = self.out.since(mark);
        let mut definitions = self.spelling.definitions(Direction::Y, &body);
        definitions.extend(self.spelling.definitions(Direction::X, &body));
        if self.schedule.shape != Shape::Loop {
            definitions.extend(self.spelling.definitions(Direction::R, &body));
        }
        self.out.insert(mark, definitions);
        Ok(match programs {
            Expr::Min(items) if items.iter().all(|item| matches!(item, Expr::Int(_))) => items.into_iter().min().unwrap_or(Expr::Int(1)),
            other => other,
        })
    }

    /// Indices and masks of the program's block; `columns` are the blocks of a row that have programs of their own.
    /// A kernel that does not go `along` the row has none there.
    pub fn indices(&mut self, columns: Expr, along: bool) {
        let blocks = |dimension: &Option<Dimension>| dimension.as_ref().map_or(Expr::Int(1), Dimension::blocks);
        let (x, r) = (self.block.x.clone(), self.block.r.clone());
        let [y_block, x_block, r_block] = self.digits(&[blocks(&self.block.y), blocks(&x), columns]);
        if let (Some(y), Some(first)) = (&self.block.y, y_block) {
            let first = whole(&first, y);
            self.out.line(format!("yindex = {first}"));
        }
        if let Some(x) = x {
            let lanes = self.block.arange(Direction::X);
            self.out.line(match x_block {
                Some(first) if self.block.has_rows() => format!("xindex = {}{} * XBLOCK + {lanes}", first.inner(), wide(&x)),
                Some(first) => format!("xindex = {}", whole(&first, &x)),
                None => format!("xindex = {lanes}{}", wide(&x)),
            });
            if self.block.has_rows() {
                self.cut(Direction::X, &x);
            }
        }
        let Some(r) = r else { return };
        let lanes = self.block.arange(Direction::R);
        match r_block {
            part if self.schedule.shape == Shape::Loop => {
                if let Some(part) = part {
                    self.out.line(format!("part = {}", whole(&part, &r)));
                }
                if !along {
                    return;
                }
                return self.out.line(format!("rbase = {lanes}{}", wide(&r)));
            }
            Some(first) => self.out.line(format!("rindex = {}{} * RBLOCK + {lanes}", first.inner(), wide(&r))),
            None => self.out.line(format!("rindex = {lanes}{}", wide(&r))),
        }
        self.cut(Direction::R, &r);
    }

    /// The number of the program's tile taken apart into the numbers of its blocks along each dimension, the last of which
    /// changes fastest; none where there is one block.
    fn digits(&mut self, blocks: &[Expr; 3]) -> [Option<Text>; 3] {
        let is_divided = |blocks: &[Expr]| blocks.iter().any(|count| *count != Expr::Int(1));
        let resident = self.schedule.resident.is_some();
        if !resident && blocks.iter().filter(|count| **count != Expr::Int(1)).count() > 1 {
            self.out.line("tile = tl.program_id(0)");
        }
        let mut digits = [const { None }; 3];
        for (at, digit) in digits.iter_mut().enumerate().filter(|(at, _)| is_divided(&blocks[*at..=*at])) {
            let (outer, inner) = (is_divided(&blocks[..at]), is_divided(&blocks[at + 1..]));
            let mut text = if resident || outer || inner { "tile" } else { "tl.program_id(0)" }.to_owned();
            if inner {
                let below = canonical(&Expr::mul(blocks[at + 1..].to_vec()), &self.graph.ranges);
                text = format!("{text} // {}", self.divisor(&below));
            }
            if outer {
                text = format!("{text} % {}", self.divisor(&blocks[at]));
            }
            *digit = Some(Text { alone: text, binding: if outer || inner { Binding::Product } else { Binding::Atom } });
        }
        digits
    }

    fn divisor(&mut self, count: &Expr) -> String {
        let text = self.spelling.plain(count);
        if matches!(count, Expr::Int(_) | Expr::Var(_)) { text } else { format!("({text})") }
    }

    fn cut(&mut self, direction: Direction, dimension: &Dimension) {
        if dimension.divides() {
            return;
        }
        let prefix = direction.prefix();
        let count = self.spelling.plain(&dimension.count);
        self.out.line(format!("{prefix}mask = {prefix}index < {count}"));
        self.masked = self.masked.or(Extent::along(direction));
    }
}

/// A number as an index of its own.
fn whole(number: &Text, dimension: &Dimension) -> String {
    if dimension.is_wide { format!("{}{}", number.inner(), wide(dimension)) } else { number.alone.clone() }
}

/// The conversion of an index to 64 bits, where it needs them.
const fn wide(dimension: &Dimension) -> &'static str {
    if dimension.is_wide { ".to(tl.int64)" } else { "" }
}
