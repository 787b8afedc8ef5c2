//! A bench to put candidates on: the softmax target of the fixtures, 64 rows of 256, with a plain compiler and no torch.

#![allow(dead_code, reason = "each test uses a part of the bench")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kernelopt_gpu_agent::cpu::arena::Arena;
use kernelopt_gpu_agent::cpu::build::{BuildLimits, Builder, BuilderOptions, Toolchain};
use kernelopt_gpu_agent::cpu::child::Reexec;
use kernelopt_gpu_agent::cpu::runner::{ArgumentPlan, Fault, Limits, Plan, Runner, Zygote, ZygoteOptions};
use kernelopt_shared::meaning::{Argument, Role};

pub const ROWS: usize = 64;
pub const COLUMNS: usize = 256;
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Input, row maxima, row sums, output.
pub const STORAGES: [usize; 4] = [ROWS * COLUMNS * 4, ROWS * 4, ROWS * 4, ROWS * COLUMNS * 4];

/// One test at a time in this process, so that each can count the processes that it leaves behind.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn reexec() -> Reexec {
    Reexec { program: env!("CARGO_BIN_EXE_kernelopt-runner").into(), words: Vec::new() }
}

pub fn builder() -> Builder {
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("builds");
    let toolchain = Toolchain::plain().unwrap();
    Builder::new(BuilderOptions { reexec: reexec(), toolchain, cache, limits: BuildLimits::default(), permit_weak_sandbox: false }).unwrap()
}

pub fn zygote(threads: u32) -> Arc<Zygote> {
    Arc::new(Zygote::new(ZygoteOptions { reexec: reexec(), preload: Vec::new(), threads, permit_weak_sandbox: false }))
}

pub fn argument(name: &str, c_type: &str, role: Role) -> Argument {
    Argument { name: name.into(), c_type: c_type.into(), role, buffers: Vec::new(), value: None, number: None }
}

pub fn softmax_signature() -> Vec<Argument> {
    vec![
        argument("in_ptr0", "const float*", Role::In),
        argument("out_ptr0", "float*", Role::Out),
        argument("out_ptr1", "float*", Role::Out),
        argument("out_ptr2", "float*", Role::Out),
    ]
}

pub fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/candidates/softmax").join(format!("{name}.cpp"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn library(name: &str) -> PathBuf {
    builder().build(&fixture(name), &softmax_signature()).unwrap_or_else(|e| panic!("{name}: {e}")).library
}

pub fn limits() -> Limits {
    Limits { start: Duration::from_secs(5), memory_bytes: 256 << 20, ..Limits::default() }
}

pub fn plan(library: PathBuf) -> Plan {
    let arguments = (0..STORAGES.len()).map(|storage| ArgumentPlan::Pointer { storage, offset_bytes: 0 }).collect();
    Plan { library, arguments, flush_denormal: false, limits: limits() }
}

/// Value of the input at `index` in `slot`: different everywhere, between -4 and 4.
pub fn input(slot: u32, index: usize) -> f32 {
    let hash = (index as u32 + 1).wrapping_mul(2_654_435_761) ^ slot.wrapping_mul(40_503);
    (hash >> 8) as f32 / (1u32 << 21) as f32 - 4.0
}

/// An arena with inputs filled and outputs poisoned.
pub fn arena(slots: u32) -> Arena {
    let mut arena = Arena::new(slots, &STORAGES, 64 << 20).unwrap();
    for slot in 0..slots {
        refill(&mut arena, slot);
    }
    arena
}

pub fn refill(arena: &mut Arena, slot: u32) {
    for (index, bytes) in arena.bytes_mut(slot, 0).chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&input(slot, index).to_le_bytes());
    }
    (1..4).for_each(|storage| arena.bytes_mut(slot, storage).fill(0xff));
}

/// Distance of the outputs of `slot` from softmax in double precision; infinite where something was not written.
pub fn error(arena: &Arena, slot: u32) -> f64 {
    let floats = |storage: usize| -> Vec<f64> {
        arena.bytes(slot, storage).chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
    };
    let (tops, sums, outputs) = (floats(1), floats(2), floats(3));
    let mut worst = 0.0f64;
    for row in 0..ROWS {
        let x: Vec<f64> = (0..COLUMNS).map(|column| f64::from(input(slot, row * COLUMNS + column))).collect();
        let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = x.iter().map(|v| (v - top).exp()).sum();
        let rows = x.iter().zip(&outputs[row * COLUMNS..]).map(|(v, y)| ((v - top).exp() / sum - y).abs());
        let errors = [(tops[row] - top).abs(), (sums[row] / sum - 1.0).abs()].into_iter().chain(rows);
        // What was not written is NaN, and `max` would drop it.
        worst = errors.map(|error| if error.is_nan() { f64::INFINITY } else { error }).fold(worst, f64::max);
    }
    worst
}

pub const TOLERANCE: f64 = 1e-5;

/// Starts `name` on a fresh arena with one slot and launches it once.
pub fn fault_of(zygote: &Arc<Zygote>, name: &str, timeout: Duration) -> Fault {
    let arena = arena(1);
    match Runner::start(zygote, &plan(library(name)), &arena) {
        Err(fault) => fault,
        Ok(mut runner) => match runner.run(&[0], timeout) {
            Err(fault) => fault,
            Ok(elapsed) => panic!("{name}: no fault; it took {elapsed:?} and is {} off", error(&arena, 0)),
        },
    }
}

/// Processes whose parent is this one or a zygote of this one, zombies included.
pub fn descendants() -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    let mut parents = vec![own];
    while let Some(parent) = parents.pop() {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
            let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
            if name.parse::<u32>().is_ok() && after.split_ascii_whitespace().nth(1) == Some(parent.as_str()) {
                parents.push(name);
                found.push(stat.trim().to_owned());
            }
        }
    }
    found
}
