//! How long the truth takes on kernels of real size, in processor time of all its threads, so that a busy machine does not
//! count. Run with
//! `cargo test --release -p kernelopt-gpu-agent --test truth_speed -- --ignored --nocapture`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use kernelopt_gpu_agent::truth::{Rounding, Truth};
use kernelopt_shared::meaning::Meaning;
use kernelopt_shared::meaning::storage::ArgumentPlace;
use nix::time::{ClockId, clock_gettime};

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap().into()
}

/// Shortest of a few runs on plausible floats.
fn time(name: &str) -> Duration {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/large").join(name);
    let meaning: Meaning = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let truth = Truth::compile(&meaning).unwrap();
    let mut storages: Vec<Vec<u8>> = truth.layout().storages.iter().map(|storage| vec![0; storage.bytes]).collect();
    for place in &truth.layout().arguments {
        if let ArgumentPlace::Pointer { storage, dtype, .. } = place
            && dtype.is_float()
        {
            let (values, _) = storages[*storage].as_chunks_mut::<4>();
            for (number, value) in values.iter_mut().enumerate() {
                *value = ((number as f32 * 0.37).sin() * 3.0).to_ne_bytes();
            }
        }
    }
    let inputs: Vec<&[u8]> = storages.iter().map(Vec::as_slice).collect();
    let run = || {
        let start = processor_time();
        let outputs = truth.run(&inputs, Rounding::None).unwrap();
        let took = processor_time() - start;
        assert!(!outputs.is_empty());
        took
    };
    (0..5).map(|_| run()).min().unwrap()
}

#[test]
#[ignore = "a measurement: needs a quiet machine and a release build"]
fn large_kernels() {
    for (name, limit_ms) in [("token_loss.json", 700), ("layer_norm.json", 60), ("gelu.json", 30)] {
        let took = time(name);
        println!("{name}: {:.1} ms", took.as_secs_f64() * 1e3);
        assert!(took < Duration::from_millis(limit_ms), "{name}: {took:?}");
    }
}
