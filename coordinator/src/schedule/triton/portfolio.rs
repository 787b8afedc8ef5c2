//! Where the search of Triton schedules begins, and where it can go from there.
//!
//! The figures are those of an H200: a thread has at least 16 bytes of every input in flight, a program at least one warp per
//! scheduler, and a row of up to [`MAX_ROW`] elements stays in the registers of one program.

use super::super::space::Statistics;
use super::facts::{Facts, Tiling, Work};
use super::space::{Erf, Exp, Hints, Schedule, Shape, Softmax, Tail};

/// Longest row, in elements, that stays in registers: 64 of each value for every thread of the largest program.
pub const MAX_ROW: i64 = 64 * 1024;
/// Longest row that is not worth a loop.
const LONG_ROW: i64 = 4096;
/// Most schedules of a portfolio.
const MAX_PORTFOLIO: usize = 28;

/// Schedules to try first, the best guess first.
pub fn portfolio(facts: &Facts) -> Vec<Schedule> {
    let bases = match &facts.work {
        None => Vec::new(),
        Some(Work::Elements { count, tilings }) => elements(*count, tilings),
        Some(Work::Rows { rows, length, is_fixed, across: true }) => {
            let whole = across(*rows, if *is_fixed { *length } else { i64::MAX }, facts);
            if *is_fixed { interleaved(columns_in_parts(*rows, *length, facts), whole) } else { whole }
        }
        Some(Work::Rows { rows, length, is_fixed, .. }) => {
            let whole = along(*rows, *length, *is_fixed, facts);
            if *is_fixed { interleaved(rows_in_parts(*rows, *length, facts), whole) } else { whole }
        }
    };
    // Where the outputs keep every bit and nothing is summed, an error that grows with the argument shows: the cheaper exponential is
    // a variation there.
    let shows = facts.has_exp && facts.stores_wide && matches!(facts.work, Some(Work::Elements { .. }));
    let exp = if shows { Exp::Library } else { Exp::Base2 };
    let erf = if facts.has_erf && !facts.stores_wide { Erf::Short } else { Erf::Library };
    let bases: Vec<Schedule> = bases.into_iter().map(|base| Schedule { exp, erf, ..base }).collect();
    let mut schedules = Vec::new();
    // The best guess in every variation, then other sizes, then the variations of the second.
    let (first, others) = bases.split_at(bases.len().min(3));
    schedules.extend(first.iter().cloned());
    schedules.extend(first.iter().take(1).flat_map(|base| variations(base, facts)));
    schedules.extend(others.iter().cloned());
    schedules.extend(first.iter().skip(1).flat_map(|base| variations(base, facts)));
    schedules.truncate(MAX_PORTFOLIO);
    schedules
}

/// A schedule of a shape with these sizes.
fn sized(shape: Shape, x_block: i64, r_block: i64, warps: u32) -> Schedule {
    let size = |block: i64| u32::try_from(block.max(1)).unwrap_or(u32::MAX);
    Schedule { shape, x_block: size(x_block), r_block: size(r_block), warps, ..Schedule::default() }
}

fn power(count: i64) -> i64 {
    u64::try_from(count).ok().and_then(u64::checked_next_power_of_two).and_then(|power| i64::try_from(power).ok()).unwrap_or(1 << 62)
}

/// Element-wise kernels.
fn elements(count: i64, tilings: &[Tiling]) -> Vec<Schedule> {
    let flat = [(1024, 4), (2048, 4), (512, 4), (2048, 8), (1024, 8), (4096, 8), (512, 2), (256, 4), (4096, 16), (256, 2), (128, 1)];
    // A small kernel is spread over all multiprocessors.
    let fitting = flat.into_iter().filter(|(block, _)| *block <= 512 || count >= block * 512);
    let flat = fitting.map(|(block, warps)| sized(Shape::Flat, block, 1, warps));
    let mut tiled: Vec<_> = tilings.iter().enumerate().map(|(k, tiling)| tiles(k, tiling).into_iter()).collect();
    // One of each tiling in turn.
    let longest = tiled.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    let tiled = (0..longest).flat_map(|_| tiled.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>());
    let is_two_dimensional = tilings.iter().any(|tiling| tiling.transposes || tiling.shares);
    if is_two_dimensional { interleaved(tiled.collect(), flat.collect()) } else { interleaved(flat.collect(), tiled.collect()) }
}

/// Two of the first list for one of the second.
fn interleaved(first: Vec<Schedule>, second: Vec<Schedule>) -> Vec<Schedule> {
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(first.by_ref().take(2));
        all.extend(second.next());
        if all.len() == before {
            return all;
        }
    }
}

fn tiles(number: usize, tiling: &Tiling) -> Vec<Schedule> {
    let shape = Shape::Tile(number);
    if tiling.transposes {
        let square = [(32, 32, 4), (64, 64, 8), (64, 32, 4), (32, 64, 4), (16, 64, 4), (128, 32, 8), (64, 64, 4), (32, 128, 8)];
        return square.into_iter().map(|(x, r, warps)| sized(shape, x, r, warps)).collect();
    }
    if !tiling.shares {
        return Vec::new();
    }
    let (width, height) = (power(tiling.columns).min(1024), power(tiling.rows));
    if tiling.outer > 1 {
        // What all rows share is computed by every thread for its own columns, so that a thread should have many rows.
        let sizes = [(2048, 2), (2048, 1), (4096, 4), (1024, 1), (2048, 4)];
        let tile = |(elements, warps): (i64, u32)| {
            let rows = height.min(elements / 32);
            sized(shape, rows, width.min(elements / rows), warps)
        };
        return sizes.into_iter().filter(|(elements, _)| width.saturating_mul(height) > elements / 2).map(tile).collect();
    }
    let sizes = [(1024, 4), (2048, 4), (2048, 8), (512, 4), (4096, 8)];
    let tile = |(elements, warps): (i64, u32)| sized(shape, (elements / width).clamp(1, height), width.min(elements), warps);
    sizes.into_iter().filter(|(elements, _)| width.saturating_mul(height) > elements / 2).map(tile).collect()
}

/// Rows whose elements are neighbours in memory.
fn along(rows: i64, length: i64, is_fixed: bool, facts: &Facts) -> Vec<Schedule> {
    let (row, most) = (power(length), power(rows));
    let whole = || {
        let sizes = [(1, 16), (1, 8), (2, 16), (1, 32), (2, 8), (4, 16), (4, 8), (1, 4), (8, 16), (8, 8), (1, 64), (1, 2), (1, 1)];
        let schedule = move |(rows, per_thread): (i64, i64)| {
            // Short rows share a program of a few warps.
            let rows = (rows * (1024 / row).max(1)).min(most);
            let warps = (rows * row / (32 * per_thread)).max(i64::from(rows * row < 32));
            (1..=32).contains(&warps).then(|| sized(Shape::Row, rows, row, warps as u32))
        };
        sizes.into_iter().filter_map(schedule).collect::<Vec<_>>()
    };
    let looped = || {
        let sizes = [
            (4096, 8),
            (2048, 16),
            (2048, 8),
            (4096, 16),
            (8192, 16),
            (1024, 4),
            (1024, 8),
            (8192, 32),
            (2048, 4),
            (8192, 8),
            (512, 4),
            (256, 2),
        ];
        let plain = || sizes.into_iter().map(|(block, warps)| sized(Shape::Loop, 1, block, warps)).collect();
        let all: Vec<Schedule> = if facts.has_statistics { running() } else { plain() };
        all.into_iter().filter(|schedule| i64::from(schedule.r_block) / 2 < row).collect::<Vec<_>>()
    };
    match row {
        _ if !is_fixed => looped(),
        ..=LONG_ROW => whole(),
        row if row <= MAX_ROW => interleaved(whole(), looped()),
        _ => looped(),
    }
}

/// Running statistics keep two values of each lane, and `ptxas` saves registers by loading late: without more blocks in shared
/// memory, or an unrolled loop, a thread waits for every load. A block that fills four loads of a thread does without.
fn running() -> Vec<Schedule> {
    let sizes = [
        (2048, 8, 3, 1),
        (2048, 8, 1, 2),
        (4096, 8, 1, 1),
        (4096, 8, 3, 1),
        (2048, 4, 3, 1),
        (4096, 16, 1, 1),
        (4096, 4, 1, 1),
        (8192, 16, 3, 1),
        (8192, 8, 1, 1),
        (2048, 16, 3, 1),
        (1024, 4, 4, 1),
        (512, 4, 3, 1),
        (256, 2, 3, 1),
    ];
    let schedule = |(block, warps, stages, unroll)| {
        let block = sized(Shape::Loop, 1, block, warps);
        Schedule { statistics: Statistics::Running, stages, unroll, ..block }
    };
    sizes.into_iter().map(schedule).collect()
}

/// Programs per multiprocessor below which the device is idle for most of a kernel that reads its memory once.
const BUSY: i64 = 2;
/// Least elements of a row that is worth a second launch.
const MIN_SPLIT: i64 = 8192;

/// Few rows in parts that fill the device.
fn rows_in_parts(rows: i64, length: i64, facts: &Facts) -> Vec<Schedule> {
    let device = i64::from(facts.multiprocessors);
    if rows >= BUSY * device || length < MIN_SPLIT {
        return Vec::new();
    }
    let statistics = if facts.has_statistics { Statistics::Running } else { Statistics::TwoPass };
    let sizes = [(2048, 8, 2), (4096, 8, 2), (1024, 4, 4), (2048, 8, 1), (2048, 8, 4), (4096, 16, 1), (1024, 4, 8)];
    let schedule = |(block, warps, busy): (i64, u32, i64)| Schedule {
        statistics,
        splits: splits(busy * device, rows, length / block),
        ..sized(Shape::Loop, 1, block, warps)
    };
    sizes.into_iter().map(schedule).filter(|schedule| schedule.splits.is_some()).collect()
}

/// The same where neighbours in memory are elements of neighbouring rows.
fn columns_in_parts(rows: i64, length: i64, facts: &Facts) -> Vec<Schedule> {
    let device = i64::from(facts.multiprocessors);
    let statistics = if facts.has_statistics { Statistics::Running } else { Statistics::TwoPass };
    let sizes = [(64, 16, 4, 2), (128, 16, 8, 2), (64, 32, 8, 2), (32, 32, 4, 4), (128, 8, 4, 1), (64, 16, 4, 4)];
    let schedule = |(x, r, warps, busy): (i64, i64, u32, i64)| {
        let x = x.min(power(rows));
        let programs = (rows - 1).div_euclid(x) + 1;
        let is_idle = programs < BUSY * device && length.saturating_mul(rows) >= MIN_SPLIT;
        let splits = splits(busy * device, programs, length / r).filter(|_| is_idle);
        Schedule { statistics, splits, ..sized(Shape::Loop, x, r, warps) }
    };
    sizes.into_iter().map(schedule).filter(|schedule| schedule.splits.is_some()).collect()
}

/// Parts of each of so many rows for so many programs in all: two at least, and none without a block of its own.
fn splits(programs: i64, rows: i64, blocks: i64) -> Option<u32> {
    let parts = ((programs - 1).div_euclid(rows.max(1)) + 1).min(blocks).min(1024);
    u32::try_from(parts).ok().filter(|parts| *parts >= 2)
}

/// Rows whose neighbours in memory are other rows.
fn across(rows: i64, length: i64, facts: &Facts) -> Vec<Schedule> {
    let widest = power(rows);
    let sizes = [(64, 16, 4), (32, 32, 4), (64, 32, 8), (128, 8, 4), (128, 16, 8), (32, 64, 8), (16, 64, 4), (32, 8, 1), (64, 64, 16)];
    let statistics = if facts.has_statistics { Statistics::Running } else { Statistics::TwoPass };
    let block = |(x, r, warps): (i64, i64, u32)| {
        let (x, row) = (x.min(widest), power(length));
        if row <= r { sized(Shape::Row, x, row, warps) } else { Schedule { statistics, ..sized(Shape::Loop, x, r, warps) } }
    };
    let whole = [(16, 4), (32, 8), (8, 4)].into_iter().map(|(x, warps)| sized(Shape::Row, x, power(length), warps));
    sizes.into_iter().map(block).chain(whole.filter(|_| length <= 1024)).collect()
}

/// The same blocks in other ways.
fn variations(base: &Schedule, facts: &Facts) -> Vec<Schedule> {
    let mut all = Vec::new();
    let mut vary = |applies: bool, change: &dyn Fn(&mut Schedule)| {
        if applies {
            let mut schedule = base.clone();
            change(&mut schedule);
            all.push(schedule);
        }
    };
    let is_loop = base.shape == Shape::Loop;
    vary(facts.has_exp, &|s| s.exp = s.exp.other());
    vary(facts.has_erf, &|s| s.erf = s.erf.other());
    vary(is_loop, &|s| s.stages = if s.stages == 1 { 3 } else { 4 });
    vary(is_loop && facts.has_softmax, &|s| s.softmax = Softmax::Block);
    vary(true, &|s| s.hints = if is_loop { Hints::Stream } else { Hints::None });
    vary(facts.has_row_factors, &|s| s.factors = false);
    vary(is_loop && facts.has_statistics, &|s| s.unroll = 4);
    vary(is_loop && facts.has_statistics, &|s| s.statistics = Statistics::Shifted);
    vary(is_loop && facts.has_statistics, &|s| s.statistics = Statistics::TwoPass);
    vary(true, &|s| s.streaming_stores = true);
    vary(true, &|s| s.resident = Some(facts.multiprocessors * (32 / s.warps).clamp(1, 8)));
    vary(is_loop, &|s| s.unroll = 2);
    vary(base.shape == Shape::Row, &|s| s.early_loads = false);
    all
}

/// Schedules one step away from `centre`.
pub fn neighbours(centre: &Schedule, facts: &Facts) -> Vec<Schedule> {
    let mut around: Vec<Schedule> = Vec::new();
    let mut step = |change: &dyn Fn(&mut Schedule)| {
        let mut schedule = centre.clone();
        change(&mut schedule);
        if schedule != *centre && !around.contains(&schedule) {
            around.push(schedule);
        }
    };
    let is_loop = centre.shape == Shape::Loop;
    if centre.splits.is_some() {
        step(&|s| s.splits = s.splits.map(|parts| parts * 2));
        step(&|s| s.splits = s.splits.map(|parts| (parts / 2).max(2)));
        step(&|s| s.splits = None);
    }
    step(&|s| s.warps = (s.warps * 2).min(32));
    step(&|s| s.warps = (s.warps / 2).max(1));
    step(&|s| s.x_block *= 2);
    step(&|s| s.x_block = (s.x_block / 2).max(1));
    if matches!(centre.shape, Shape::Loop | Shape::Tile(_)) {
        step(&|s| s.r_block *= 2);
        step(&|s| s.r_block = (s.r_block / 2).max(1));
        step(&|s| (s.r_block, s.warps) = (s.r_block * 2, (s.warps * 2).min(32)));
        step(&|s| (s.r_block, s.warps) = ((s.r_block / 2).max(1), (s.warps / 2).max(1)));
    }
    step(&|s| (s.x_block, s.warps) = (s.x_block * 2, (s.warps * 2).min(32)));
    [Hints::None, Hints::Reuse, Hints::Stream].into_iter().for_each(|hints| step(&|s| s.hints = hints));
    step(&|s| s.streaming_stores ^= true);
    if facts.has_exp {
        step(&|s| s.exp = s.exp.other());
    }
    if facts.has_erf {
        step(&|s| s.erf = s.erf.other());
    }
    step(&|s| s.factors ^= true);
    let resident = |per_multiprocessor: u32| Some(facts.multiprocessors * per_multiprocessor);
    [None, resident(1), resident(2), resident(4)].into_iter().for_each(|resident| step(&|s| s.resident = resident));
    if is_loop {
        (1..=4).for_each(|stages| step(&|s| s.stages = stages));
        [1, 2, 4].into_iter().for_each(|unroll| step(&|s| s.unroll = unroll));
        [Softmax::Lanes, Softmax::Block, Softmax::TwoPass].into_iter().for_each(|softmax| step(&|s| s.softmax = softmax));
        [Statistics::Running, Statistics::Shifted, Statistics::TwoPass]
            .into_iter()
            .for_each(|statistics| step(&|s| s.statistics = statistics));
        step(&|s| s.tail = if s.tail == Tail::Peel { Tail::Mask } else { Tail::Peel });
    } else {
        step(&|s| s.early_loads ^= true);
    }
    around
}
