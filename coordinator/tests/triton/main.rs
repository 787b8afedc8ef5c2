//! The `schedule` proposer for Triton.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod fixtures;

use kernelopt_coordinator::schedule::triton::space::{Schedule, Shape};
use std::collections::BTreeSet;
#[test]
fn print() {
    let name = std::env::var("FIX").unwrap();
    let f = fixtures::load(&name);
    let shape = match std::env::var("SHAPE").unwrap().as_str() { "flat" => Shape::Flat, "row" => Shape::Row, "loop" => Shape::Loop, t => Shape::Tile(t.parse().unwrap()) };
    let n = |k: &str, d: u32| std::env::var(k).ok().map_or(d, |v| v.parse().unwrap());
    let s = Schedule { shape, x_block: n("X", 1), r_block: n("R", 1024), warps: n("W", 4), stages: n("ST", 1), ..Schedule::default() };
    match kernelopt_coordinator::schedule::triton::kernel(&f.meaning, &BTreeSet::new(), &s) {
        Ok(k) => println!("{}\n{:?} {}", k.source, k.constants, k.programs),
        Err(e) => println!("{e}"),
    }
}
