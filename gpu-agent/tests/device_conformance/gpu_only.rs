//! What only a GPU is large and fast enough for.

use std::time::Instant;

use kernelopt_gpu_agent::cuda::device::{Allowance, Compared, Device, Draw, EXPONENTS, Elements, Span};
use kernelopt_gpu_agent::cuda::ops::launch::ERROR_LANES;
use kernelopt_gpu_agent::referee::Regime;
use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::target::Distribution;

use crate::subjects;

#[test]
fn positions_beyond_four_gigabytes_count() {
    let Some(mut subject) = subjects::gpu() else { return };
    let device = &mut *subject.device;
    let bytes = (5 << 30) + 3;
    let span = device.allocate(bytes).unwrap();
    device.poison(span, 9).unwrap();
    assert_eq!(device.first_unpoisoned(span, 9).unwrap(), None);
    let digest = device.digest(span).unwrap();
    let last = span.part(bytes - 1, 1).unwrap();
    let mut byte = [0];
    device.download(last, &mut byte).unwrap();
    device.upload(last, &[!byte[0]]).unwrap();
    assert_eq!(device.first_unpoisoned(span, 9).unwrap(), Some(bytes - 1));
    assert_ne!(device.digest(span).unwrap(), digest);
    let elements = Elements { span: span.part(0, 5 << 30).unwrap(), dtype: Dtype::Uint8 };
    let captured = Distribution { quantiles: vec![0.0, 255.0], ..Default::default() };
    device.draw(elements, &Draw { regime: Regime::Captured, captured: &captured, row: 1, seed: 4 }).unwrap();
    let (low, high) = (elements.span.part(0, 1 << 20).unwrap(), elements.span.part(1 << 32, 1 << 20).unwrap());
    assert_ne!(device.digest(low).unwrap(), device.digest(high).unwrap(), "a counter of 32 bits would begin again");
    device.free(span).unwrap();
}

#[test]
fn squares_are_added_in_order() {
    let Some(mut subject) = subjects::gpu() else { return };
    crate::ops_suite::squares_are_added_in_order(&mut *subject.device, 1_000_003, ERROR_LANES);
}

/// Prints what the ops take on a tensor of 1 GiB of bfloat16, the second time.
#[test]
fn a_large_tensor_takes_milliseconds() {
    let Some(mut subject) = subjects::gpu() else { return };
    let device = &mut *subject.device;
    let count = 1u64 << 29;
    let dtype = Dtype::Bfloat16;
    let [a, b] = [(); 2].map(|()| Elements { span: device.allocate(2 * count).unwrap(), dtype });
    let truth = device.allocate(8 * count).unwrap();
    let captured = Distribution { quantiles: (0..129).map(|i| f64::from(i - 64) / 20.0).collect(), zero_share: 0.01, nan_share: 0.0 };
    let allowance = Allowance { by_exponent: vec![1e-2; EXPONENTS], relative: 1e-2, least: 1e-30, at_zero: 1e-30, greatest: 3e38 };
    let compared = Compared { values: a, values_poison: 1, baseline: b, truth, rounded: None, truth_poison: 2 };
    let mut slow = Vec::new();
    let mut report = |name: &str, device: &mut dyn Device, work: &mut dyn FnMut(&mut dyn Device)| {
        work(device);
        let started = Instant::now();
        work(device);
        let ms = started.elapsed().as_secs_f64() * 1e3;
        eprintln!("{name:>16}: {ms:7.2} ms");
        if ms > 100.0 {
            slow.push(format!("{name}: {ms} ms"));
        }
    };
    for regime in [Regime::Captured, Regime::Flat, Regime::Special] {
        report(regime.name(), device, &mut |device| {
            device.draw(a, &Draw { regime, captured: &captured, row: 4096, seed: 3 }).unwrap();
        });
    }
    report("copy", device, &mut |device| device.copy(a.span, b.span).unwrap());
    report("digest", device, &mut |device| assert_ne!(device.digest(a.span).unwrap(), 0));
    report("first_difference", device, &mut |device| assert_eq!(device.first_difference(a, b).unwrap(), None));
    report("widen", device, &mut |device| device.widen(a, truth).unwrap());
    report("errors", device, &mut |device| assert_eq!(device.errors(a, truth, None, 2).unwrap().squares, 0.0));
    report("compare", device, &mut |device| assert_eq!(device.compare(&compared, &allowance).unwrap().wrong, 0));
    report("poison", device, &mut |device| device.poison(b.span, 5).unwrap());
    report("first_unpoisoned", device, &mut |device| assert_eq!(device.first_unpoisoned(b.span, 5).unwrap(), None));
    let spans: [Span; 3] = [a.span, b.span, truth];
    spans.into_iter().for_each(|span| device.free(span).unwrap());
    assert!(slow.is_empty(), "{slow:?}");
}
