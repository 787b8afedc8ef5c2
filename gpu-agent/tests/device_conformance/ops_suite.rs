//! Every op against the reference, bit for bit.

use kernelopt_gpu_agent::cuda::device::{Allowance, Compared, Device, Draw, EXPONENTS, Elements, Span};
use kernelopt_gpu_agent::cuda::ops::element;
use kernelopt_gpu_agent::cuda::ops::launch::ERROR_LANES;
use kernelopt_gpu_agent::cuda::ops::random::{normal, stream_word};
use kernelopt_gpu_agent::cuda::ops::reference::{self, Lanes, Truths};
use kernelopt_gpu_agent::referee::Regime;
use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::target::Distribution;

const DTYPES: [Dtype; 10] = [
    Dtype::Float64,
    Dtype::Float32,
    Dtype::Float16,
    Dtype::Bfloat16,
    Dtype::Int64,
    Dtype::Int32,
    Dtype::Int16,
    Dtype::Int8,
    Dtype::Uint8,
    Dtype::Bool,
];
/// Offsets within an allocation: aligned to packs of sixteen bytes, to words, to nothing.
const OFFSETS: [u64; 4] = [0, 8, 16, 3];
/// Elements of the larger tensors: no multiple of anything.
const COUNT: u64 = 4099;

/// Device memory filled with `bytes`, at an offset from where the device would put it.
fn placed(device: &mut dyn Device, bytes: &[u8], offset: u64) -> Span {
    let whole = device.allocate(offset + bytes.len() as u64 + 16).unwrap();
    let span = whole.part(offset, bytes.len() as u64).unwrap();
    device.upload(span, bytes).unwrap();
    span
}

fn fetched(device: &mut dyn Device, span: Span) -> Vec<u8> {
    let mut bytes = vec![0; span.bytes as usize];
    device.download(span, &mut bytes).unwrap();
    bytes
}

/// Any bits at all.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    (0..bytes.div_ceil(8) as u64).flat_map(|k| stream_word(seed, k).to_le_bytes()).take(bytes).collect()
}

pub fn poison_is_the_references(device: &mut dyn Device) {
    for bytes in [0, 1, 7, 8, 16, 17, 1000, 70_003] {
        for offset in OFFSETS {
            let span = placed(device, &vec![0; bytes], offset);
            let seed = bytes as u64 * 10 + offset;
            device.poison(span, seed).unwrap();
            let mut expected = vec![0; bytes];
            reference::poison(&mut expected, seed);
            assert!(fetched(device, span) == expected, "{bytes} bytes at {offset}");
            assert_eq!(device.first_unpoisoned(span, seed).unwrap(), None, "{bytes} bytes at {offset}");
            for at in [0, bytes / 3, bytes.saturating_sub(9), bytes.saturating_sub(1)] {
                if let Some(byte) = expected.get_mut(at) {
                    *byte ^= 0x10;
                    device.upload(span, &expected).unwrap();
                    expected[at] ^= 0x10;
                    assert_eq!(device.first_unpoisoned(span, seed).unwrap(), Some(at as u64), "{bytes} bytes at {offset}");
                }
            }
        }
    }
}

pub fn poison_stays_inside(device: &mut dyn Device) {
    for (offset, bytes) in [(16, 32), (5, 20), (16, 21)] {
        let whole = placed(device, &[7; 64], 0);
        device.poison(whole.part(offset, bytes).unwrap(), 1).unwrap();
        let after = fetched(device, whole);
        let end = (offset + bytes) as usize;
        assert!(after[..offset as usize].iter().chain(&after[end..]).all(|byte| *byte == 7), "{offset} {bytes}");
    }
}

pub fn digests_are_the_references(device: &mut dyn Device) {
    for bytes in [0, 1, 8, 9, 31, 32, 50_001] {
        for offset in OFFSETS {
            let content = noise(bytes, 3);
            let span = placed(device, &content, offset);
            assert_eq!(device.digest(span).unwrap(), reference::digest(&content), "{bytes} bytes at {offset}");
        }
    }
}

pub fn draws_are_the_references(device: &mut dyn Device) {
    let captured = |quantiles: &[f64], zero_share: f64| Distribution { quantiles: quantiles.to_vec(), zero_share, nan_share: 0.0 };
    let distributions = [
        captured(&[-3.0, -0.5, 0.25, 2.0, 40.0], 0.1),
        captured(&[1.0, 1.0], 0.0),
        captured(&[0.0, 0.0, 0.0], 1.0),
        captured(&[], 0.0),
        captured(&[-1e300, 1e300], 0.0),
    ];
    for (d, captured) in distributions.iter().enumerate() {
        for dtype in DTYPES {
            for (r, regime) in Regime::ALL.into_iter().enumerate() {
                let draw = Draw { regime, captured, row: [64, 1, 7][(d + r) % 3], seed: stream_word(5, (100 * d + r) as u64) };
                drawn(device, dtype, &draw, 513, [0, 8][r % 2]);
            }
        }
    }
    let draw = Draw { regime: Regime::Special, captured: &distributions[0], row: 1000, seed: u64::MAX };
    drawn(device, Dtype::Bfloat16, &draw, 8 * COUNT, 2);
}

fn drawn(device: &mut dyn Device, dtype: Dtype, draw: &Draw<'_>, count: u64, offset: u64) {
    let bytes = count as usize * dtype.size_bytes();
    let span = placed(device, &vec![0; bytes], offset);
    device.draw(Elements { span, dtype }, draw).unwrap();
    let mut expected = vec![0; bytes];
    reference::draw(&mut expected, dtype, draw);
    let found = fetched(device, span);
    if let Some(at) = reference::first_difference(&found, &expected) {
        let i = at / dtype.size_bytes() as u64;
        let [found, expected] = [&found, &expected].map(|bytes| element::bits(bytes, dtype, i));
        panic!("{dtype}, {}, {:?}: element {i} is {found:#x}, not {expected:#x}", draw.regime.name(), draw.captured);
    }
}

pub fn widening_is_exact(device: &mut dyn Device) {
    for dtype in DTYPES {
        // Every number that has sixteen bits, and more of the others.
        let narrow: Vec<u8> = if dtype.size_bytes() == 2 {
            (0..=u16::MAX).flat_map(u16::to_le_bytes).collect()
        } else {
            noise(COUNT as usize * dtype.size_bytes(), 11)
        };
        let from = Elements { span: placed(device, &narrow, 0), dtype };
        let to = device.allocate(8 * from.count()).unwrap();
        device.widen(from, to).unwrap();
        let mut expected = vec![0; to.bytes as usize];
        reference::widen(&narrow, dtype, &mut expected);
        assert_eq!(reference::first_difference(&fetched(device, to), &expected).map(|at| at / 8), None, "{dtype}");
    }
}

pub fn first_differences_are_found(device: &mut dyn Device) {
    for (dtype, offset) in [(Dtype::Float32, 0), (Dtype::Float32, 4), (Dtype::Int64, 8), (Dtype::Bfloat16, 2), (Dtype::Uint8, 3)] {
        let mut content = noise(1003 * dtype.size_bytes(), 1);
        let a = Elements { span: placed(device, &content, offset), dtype };
        let b = Elements { span: placed(device, &content, 0), dtype };
        assert_eq!(device.first_difference(a, b).unwrap(), None);
        for element in [1002u64, 517, 1, 0] {
            content[element as usize * dtype.size_bytes()] ^= 1;
            device.upload(a.span, &content).unwrap();
            assert_eq!(device.first_difference(a, b).unwrap(), Some(element), "{dtype}");
        }
    }
}

/// Truths and what two kernels made of them.
struct Outputs {
    values: Vec<u8>,
    baseline: Vec<u8>,
    exact: Vec<u8>,
    rounded: Vec<u8>,
}

const TRUTH_POISON: u64 = 77;
const VALUES_POISON: u64 = 78;

/// Numbers over many magnitudes, with gaps that nobody writes, special values, and in `values` some that are wrong.
fn outputs(dtype: Dtype, count: u64) -> Outputs {
    let size = dtype.size_bytes();
    let [mut exact, mut rounded] = [(); 2].map(|()| vec![0; 8 * count as usize]);
    let [mut values, mut baseline] = [(); 2].map(|()| vec![0; size * count as usize]);
    reference::poison(&mut exact, TRUTH_POISON);
    reference::poison(&mut rounded, TRUTH_POISON);
    reference::poison(&mut values, VALUES_POISON);
    reference::poison(&mut baseline, VALUES_POISON);
    for i in (0..count).filter(|i| i % 13 != 5 || i % 169 == 18) {
        let random = stream_word(21, i);
        let truth = match i % 97 {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => 0.0,
            4 => 3.4e38,
            5 => 1e-42,
            _ if dtype.is_float() => normal(random) * 2f64.powi((random % 40) as i32 - 20),
            _ => (random % 100) as f64,
        };
        let near = truth * (1.0 + normal(random.rotate_left(17)) * 1e-3);
        let wrong = match i % 61 {
            7 => truth + 1.0,
            8 => f64::NAN,
            9 => f64::INFINITY,
            _ => near,
        };
        let bits = |value: f64| if dtype.is_float() { element::stored(dtype, value) } else { element::cut(dtype, value as i64) };
        element::put(&mut exact, Dtype::Float64, i, truth.to_bits());
        element::put(&mut rounded, Dtype::Float64, i, (truth * (1.0 + 1e-3)).to_bits());
        element::put(&mut baseline, dtype, i, bits(if i % 53 == 0 { f64::INFINITY } else { near }));
        element::put(&mut values, dtype, i, bits(wrong));
    }
    Outputs { values, baseline, exact, rounded }
}

/// Errors of many elements by each lane, in the order of a launch of that shape.
pub fn squares_are_added_in_order(device: &mut dyn Device, count: u64, lanes: Lanes) {
    // In this type the largest truths overflow and are left out; they would drown the rest.
    let dtype = Dtype::Float16;
    let made = outputs(dtype, count);
    let values = Elements { span: placed(device, &made.baseline, 0), dtype };
    let exact = placed(device, &made.exact, 0);
    let truths = Truths { exact: &made.exact, rounded: None, poison: TRUTH_POISON };
    let expected = reference::errors(&made.baseline, dtype, &truths, lanes);
    let found = device.errors(values, exact, None, TRUTH_POISON).unwrap();
    assert_eq!((found.squares, found == expected), (expected.squares, true));
    let other = reference::errors(&made.baseline, dtype, &truths, Lanes { blocks: 1, threads: 1 });
    assert_ne!(other.squares, expected.squares, "the order matters for these");
}

pub fn errors_are_the_references(device: &mut dyn Device) {
    for (dtype, count) in [(Dtype::Float32, COUNT), (Dtype::Bfloat16, 700), (Dtype::Float16, 257), (Dtype::Float64, 1)] {
        let made = outputs(dtype, count);
        let values = Elements { span: placed(device, &made.baseline, 0), dtype };
        let (exact, rounded) = (placed(device, &made.exact, 0), placed(device, &made.rounded, 8));
        for rounded in [None, Some((&made.rounded, rounded))] {
            let truths = Truths { exact: &made.exact, rounded: rounded.map(|(bytes, _)| bytes.as_slice()), poison: TRUTH_POISON };
            let expected = reference::errors(&made.baseline, dtype, &truths, ERROR_LANES);
            let found = device.errors(values, exact, rounded.map(|(_, span)| span), TRUTH_POISON).unwrap();
            assert!(count < 100 || (expected.squares > 0.0 && expected.count.iter().sum::<u64>() > count / 2));
            assert_eq!((found.squares, found == expected), (expected.squares, true), "{dtype}, {count} elements");
        }
    }
}

pub fn comparisons_are_the_references(device: &mut dyn Device) {
    let mut by_exponent: Vec<f64> =
        (0..EXPONENTS).map(|e| if (900..1100).contains(&e) { 2f64.powi(e as i32 - 1033) } else { 0.0 }).collect();
    by_exponent[0] = 1e-30;
    let allowance = Allowance { by_exponent, relative: 1e-6, least: 1e-44, at_zero: 1e-38, greatest: f64::from(f32::MAX) };
    for dtype in DTYPES {
        for count in [COUNT, 1] {
            let made = outputs(dtype, count);
            let values = Elements { span: placed(device, &made.values, 0), dtype };
            let baseline = Elements { span: placed(device, &made.baseline, 8), dtype };
            let (truth, other) = (placed(device, &made.exact, 0), placed(device, &made.rounded, 0));
            for rounded in [None, Some(&made.rounded)] {
                let truths = Truths { exact: &made.exact, rounded: rounded.map(Vec::as_slice), poison: TRUTH_POISON };
                let expected = reference::compare(&made.values, VALUES_POISON, &made.baseline, dtype, &truths, &allowance);
                let rounded = rounded.map(|_| other);
                let what = Compared { values, values_poison: VALUES_POISON, baseline, truth, rounded, truth_poison: TRUTH_POISON };
                let found = device.compare(&what, &allowance).unwrap();
                assert_eq!(found, expected, "{dtype}, {count} elements");
                assert!(count == 1 || (expected.wrong > 0 && expected.wrong < count * 3 / 4), "{dtype}: {expected:?}");
            }
        }
    }
}

pub fn sweeps_copy(device: &mut dyn Device) {
    let content = noise(16 * 1003, 9);
    let from = placed(device, &content, 0);
    let to = device.allocate(from.bytes).unwrap();
    assert!(device.sweep(from, None, 3).unwrap() > 0.0);
    assert!(device.sweep(from, Some(to), 2).unwrap() > 0.0);
    assert!(fetched(device, to) == content);
}
