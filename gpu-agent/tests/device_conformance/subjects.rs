//! The devices that the suite is run on.
//!
//! | variable | what |
//! |---|---|
//! | `KERNELOPT_GPU_TESTS=1` | run on a real GPU, too |
//! | `KERNELOPT_OPS_CUBIN` | the ops for it, made by `tests/gpu/ops_cubin.py OUT gpu-agent/src/cuda/ops` |
//! | `KERNELOPT_TEST_CUBIN` | the suite's kernels, made from `kernels.cu` in the same way |
//! | `KERNELOPT_GPU_UUID` | which GPU; the first one otherwise |
//!
//! On a GPU, `--test-threads 1`: children of this program use it, too. `tests/gpu/device_conformance.sh` does it all.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kernelopt_gpu_agent::cuda::device::{Binary, Device};
use kernelopt_gpu_agent::cuda::driver::CudaDevice;
use kernelopt_gpu_agent::cuda::nvml::Monitor;
use kernelopt_gpu_agent::cuda::simulated::{Fault, Program, SimDevice, Stores};
use kernelopt_shared::meaning::Meaning;
use serde_json::json;

use crate::emulation::Emulated;
use crate::kernel_suite::{COUNT, Kernels};

/// A device, and kernels for it. Held one at a time: a GPU is one, and so is the emulation's grid.
pub struct Subject {
    pub device: Box<dyn Device>,
    pub kernels: Kernels,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

fn subject(device: Box<dyn Device>, kernels: Kernels) -> Subject {
    Subject { device, kernels, _turn: TURN.lock().unwrap_or_else(PoisonError::into_inner) }
}

pub fn simulated() -> Subject {
    subject(Box::new(SimDevice::new(3)), simulated_kernels())
}

pub fn emulated() -> Subject {
    subject(Box::new(Emulated::new()), simulated_kernels())
}

/// `None` where no GPU is to be tested.
pub fn gpu() -> Option<Subject> {
    if std::env::var_os("KERNELOPT_GPU_TESTS").is_none_or(|value| value != "1") {
        return None;
    }
    let read = |name: &str| std::fs::read(std::env::var(name).unwrap_or_else(|_| panic!("{name} names no file"))).unwrap();
    let uuid = std::env::var("KERNELOPT_GPU_UUID").unwrap_or_else(|_| CudaDevice::list().unwrap().remove(0).uuid);
    let device = CudaDevice::open(&uuid, &read("KERNELOPT_OPS_CUBIN"), Monitor::open().ok()).unwrap();
    let cubin = read("KERNELOPT_TEST_CUBIN");
    let kernel = |entry: &str| Binary {
        cubin: cubin.clone(),
        entry: entry.into(),
        shared_bytes: 0,
        threads: 128,
        hidden_pointers: 2,
        registers: 0,
        spill_bytes: 0,
    };
    let kernels = Kernels { saxpy: kernel("saxpy"), past_the_end: kernel("past_the_end"), spin: kernel("spin") };
    Some(subject(Box::new(device), kernels))
}

/// `out = 2 x + y`.
pub fn saxpy() -> Meaning {
    let buffer = json!({"dtype": "float32", "size": [COUNT.to_string()], "stride": ["1"], "offset": "0"});
    let pointer = |name: &str, kind: &str, role: &str, buffer: &str| json!({"name": name, "type": kind, "role": role, "buffers": [buffer]});
    let meaning = json!({
        "kernel": "saxpy",
        "arguments": [
            pointer("x", "const float*", "in", "a"),
            pointer("y", "const float*", "in", "b"),
            pointer("out", "float*", "out", "c"),
            {"name": "n", "type": "const int64_t", "role": "size", "value": COUNT.to_string()},
        ],
        "buffers": {"a": buffer, "b": buffer, "c": buffer},
        "nodes": [{"name": "op0", "iter": [{"var": "p0", "extent": COUNT.to_string()}], "reduce": [], "body": [
            {"id": 0, "op": "load", "buffer": "a", "index": "p0"},
            {"id": 1, "op": "constant", "value": 2.0, "dtype": "float32"},
            {"id": 2, "op": "pointwise", "function": "mul", "args": [0, 1]},
            {"id": 3, "op": "load", "buffer": "b", "index": "p0"},
            {"id": 4, "op": "pointwise", "function": "add", "args": [2, 3]},
            {"id": 5, "op": "store", "buffer": "c", "index": "p0", "value": 4},
        ]}],
    });
    serde_json::from_value(meaning).unwrap()
}

fn simulated_kernels() -> Kernels {
    let program = Program::new(saxpy(), Stores::Rounded, 2000.0);
    let with = |fault: Fault| program.clone().with(fault).binary().unwrap();
    Kernels { saxpy: program.binary().unwrap(), past_the_end: with(Fault::WritesPast), spin: with(Fault::Hangs(600_000)) }
}
