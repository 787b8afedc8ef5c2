//! Where the search of schedules begins, and where it can go from there.

use super::space::{Algebra, Flags, Keep, Schedule, Statistics, Threads, Vector};

/// Schedules to try first, the best guess first. `parallel`: the compiler uses threads for this kernel.
pub fn portfolio(parallel: bool) -> Vec<Schedule> {
    let algebra = Algebra { factors: true, shifts: false, exponents: true, sums: true };
    let threads = if parallel { Threads::Rows } else { Threads::One };
    let guess = Schedule { threads, keep: Keep::Costly, algebra, prefetch: true, ..Schedule::default() };
    let vary = |change: &dyn Fn(&mut Schedule)| {
        let mut schedule = guess.clone();
        change(&mut schedule);
        schedule
    };
    vec![
        guess.clone(),
        vary(&|s| s.keep = Keep::Everything),
        vary(&|s| s.algebra = Algebra::default()),
        vary(&|s| s.algebra.shifts = true),
        vary(&|s| (s.vector, s.stage, s.lanes) = (Vector::Rows, true, 16)),
        vary(&|s| s.lanes = 64),
        vary(&|s| s.threads = if parallel { Threads::One } else { Threads::Rows }),
        vary(&|s| s.statistics = Statistics::Shifted),
        vary(&|s| s.vector = Vector::Rows),
        vary(&|s| s.lanes = 16),
        vary(&|s| s.keep = Keep::Nothing),
        vary(&|s| s.threads = Threads::Within),
        vary(&|s| s.prefetch = false),
        vary(&|s| s.vector = Vector::Inner),
        vary(&|s| s.unroll = 4),
    ]
}

/// Schedules one step away from `centre`. `wide`: the processor has vectors of 512 bits.
pub fn neighbours(centre: &Schedule, wide: bool) -> Vec<Schedule> {
    let mut around = Vec::new();
    let mut step = |change: &dyn Fn(&mut Schedule)| {
        let mut schedule = centre.clone();
        change(&mut schedule);
        if schedule != *centre {
            around.push(schedule);
        }
    };
    step(&|s| s.lanes = (s.lanes * 2).min(256));
    step(&|s| s.lanes = (s.lanes / 2).max(8));
    step(&|s| s.algebra.shifts ^= true);
    step(&|s| s.algebra.factors ^= true);
    step(&|s| s.algebra.exponents ^= true);
    step(&|s| s.algebra.sums ^= true);
    [Keep::Nothing, Keep::Costly, Keep::Everything].into_iter().for_each(|keep| step(&|s| s.keep = keep));
    step(&|s| s.prefetch ^= true);
    step(&|s| s.stage ^= true);
    step(&|s| s.unroll = (s.unroll * 2).min(8));
    step(&|s| s.unroll = (s.unroll / 2).max(1));
    [Threads::One, Threads::Rows, Threads::Within].into_iter().for_each(|threads| step(&|s| s.threads = threads));
    [Vector::Auto, Vector::Inner, Vector::Rows].into_iter().for_each(|vector| step(&|s| s.vector = vector));
    [Statistics::TwoPass, Statistics::Shifted].into_iter().for_each(|statistics| step(&|s| s.statistics = statistics));
    step(&|s| s.contract ^= true);
    step(&|s| s.flags = Flags { unroll_loops: !s.flags.unroll_loops, ..s.flags });
    step(&|s| s.flags = Flags { wide_vectors: wide && !s.flags.wide_vectors, ..s.flags });
    around
}
