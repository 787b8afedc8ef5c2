//! What is wrong with a simulated kernel is wrong in memory, too.

use kernelopt_gpu_agent::cuda::device::{Block, Device, DeviceError, Elements, Run, Step, Value};
use kernelopt_gpu_agent::cuda::ops::element;
use kernelopt_gpu_agent::cuda::simulated::{Fault, Program, SimDevice, Stores};
use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::Meaning;
use serde_json::json;

use crate::kernel_suite::{COUNT, Loaded};
use crate::subjects::saxpy;

fn program() -> Program {
    Program::new(saxpy(), Stores::Rounded, 2000.0)
}

fn loaded(program: &Program) -> (SimDevice, Loaded) {
    let mut device = SimDevice::new(1);
    let loaded = Loaded::new(&mut device, &program.binary().unwrap());
    (device, loaded)
}

fn results(device: &mut SimDevice, loaded: &Loaded) -> Vec<f64> {
    let mut bytes = vec![0; loaded.out.bytes as usize];
    device.download(loaded.out, &mut bytes).unwrap();
    (0..COUNT).map(|i| element::number(Dtype::Float32, element::bits(&bytes, Dtype::Float32, i))).collect()
}

fn launched(fault: Fault) -> Vec<f64> {
    let (mut device, loaded) = loaded(&program().with(fault));
    device.poison(loaded.out, 3).unwrap();
    device.launch(&loaded.run()).unwrap();
    results(&mut device, &loaded)
}

#[test]
fn outputs_are_spoilt_as_named() {
    let zero = launched(Fault::Zero);
    assert!(zero.iter().all(|value| *value == 0.0));
    let tail = launched(Fault::Tail);
    assert!(tail[..999].iter().enumerate().all(|(i, value)| *value == 10.0 * i as f64) && tail[999] != 9990.0);
    let low = launched(Fault::LowPrecision);
    assert!(low[999] != 9990.0 && (low[999] - 9990.0).abs() < 40.0);
}

#[test]
fn what_lies_beside_is_touched_as_named() {
    let (mut device, right) = loaded(&program().with(Fault::ChangesInput));
    let before = [right.x, right.y].map(|span| device.digest(span).unwrap());
    device.launch(&right.run()).unwrap();
    assert_ne!(device.digest(right.x).unwrap(), before[0]);
    assert_eq!(device.digest(right.y).unwrap(), before[1]);
    assert_eq!(results(&mut device, &right)[7], 70.0);
    // Reading behind an input is seen where nothing is mapped there.
    let (mut device, reader) = loaded(&program().with(Fault::ReadsPast));
    assert!(matches!(device.launch(&reader.run()), Err(DeviceError::Fault(_))));
    assert!(matches!(device.allocate(1), Err(DeviceError::Fault(_))), "the context is lost");
}

#[test]
fn behaviour_changes_with_the_launches() {
    let (mut device, cheat) = loaded(&program().with(Fault::WorksFirst(2)));
    device.time(&[Block { steps: vec![Step::Launch(cheat.run()); 2], cold: true }]).unwrap();
    assert_eq!(results(&mut device, &cheat)[7], 70.0);
    device.launch(&cheat.run()).unwrap();
    assert_eq!(results(&mut device, &cheat)[7], 0.0);
    let (mut device, cache) = loaded(&program().with(Fault::RemembersFirst));
    device.launch(&cache.run()).unwrap();
    device.upload(cache.x, &vec![0; cache.x.bytes as usize]).unwrap();
    device.launch(&cache.run()).unwrap();
    assert_eq!(results(&mut device, &cache)[7], 70.0);
}

#[test]
fn the_clock_has_the_spread_that_the_program_names() {
    let (mut device, noisy) = loaded(&Program { noise: 0.05, ..program() });
    let block = Block { steps: vec![Step::Launch(noisy.run())], cold: false };
    let times = device.time(&vec![block; 400]).unwrap();
    let mean = times.iter().sum::<f64>() / 400.0;
    let spread = (times.iter().map(|ns| (ns - mean) * (ns - mean)).sum::<f64>() / 400.0).sqrt() / mean;
    assert!((1950.0..2050.0).contains(&mean) && (0.04..0.06).contains(&spread), "{mean} {spread}");
}

/// `x = x / 3` in place.
fn thirds() -> Meaning {
    let buffer = json!({"dtype": "bfloat16", "size": ["4"], "stride": ["1"], "offset": "0"});
    let meaning = json!({
        "kernel": "thirds",
        "arguments": [{"name": "x", "type": "*bf16", "role": "inout", "buffers": ["a", "c"]}],
        "buffers": {"a": buffer, "c": buffer},
        "nodes": [{"name": "op0", "iter": [{"var": "p0", "extent": "4"}], "reduce": [], "body": [
            {"id": 0, "op": "load", "buffer": "a", "index": "p0"},
            {"id": 1, "op": "constant", "value": 3.0, "dtype": "float32"},
            {"id": 2, "op": "pointwise", "function": "truediv", "args": [0, 1]},
            {"id": 3, "op": "store", "buffer": "c", "index": "p0", "value": 2},
        ]}],
    });
    serde_json::from_value(meaning).unwrap()
}

#[test]
fn a_twin_keeps_float64_in_memory() {
    let mut device = SimDevice::new(1);
    for (stores, dtype) in [(Stores::Rounded, Dtype::Bfloat16), (Stores::Wide, Dtype::Float64)] {
        let kernel = device.load(&Program::new(thirds(), stores, 1.0).binary().unwrap()).unwrap();
        let mut bytes = vec![0; 4 * dtype.size_bytes()];
        (0..4).for_each(|i| element::put(&mut bytes, dtype, i, element::stored(dtype, i as f64 + 1.0)));
        let elements = Elements { span: device.allocate(bytes.len() as u64).unwrap(), dtype };
        device.upload(elements.span, &bytes).unwrap();
        device.launch(&Run { kernel, grid: [1, 1, 1], arguments: vec![Value::Pointer(elements.span.address)] }).unwrap();
        device.download(elements.span, &mut bytes).unwrap();
        for i in 0..4 {
            let expected = element::stored(dtype, (i as f64 + 1.0) / 3.0);
            assert_eq!(element::bits(&bytes, dtype, i), expected, "{dtype}, element {i}");
        }
    }
}
