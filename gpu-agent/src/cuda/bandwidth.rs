//! Memory bandwidth of a device by working set: the roof that no kernel can pass (Williams, Waterman, Patterson 2009).

use kernelopt_shared::task::BandwidthCurve;

use super::device::{Device, Done, Span};

/// Working sets that are measured, in bytes: from what lies in the L2 cache to what does not, on every device there is.
const WORKING_SETS: [u64; 7] = [1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30, 4 << 30];
/// Share of the device's memory that a working set may take.
const LARGEST_SHARE: u64 = 4;
/// Time of one sample, in nanoseconds.
const SAMPLE_NS: f64 = 500_000.0;
/// Samples for each working set.
const SAMPLES: usize = 5;
/// Most passes of one sample.
const MAX_PASSES: f64 = 1e6;

/// Measures. The better of reading and copying counts, and the best of all samples: the roof must be one that no honest kernel passes.
///
/// # Errors
/// The device runs out of memory, or fails.
pub fn measure(device: &mut dyn Device) -> Done<BandwidthCurve> {
    let memory = device.facts().memory_bytes;
    let sets = WORKING_SETS.into_iter().filter(|bytes| *bytes <= memory / LARGEST_SHARE);
    let largest = sets.clone().max().unwrap_or(WORKING_SETS[0]);
    let whole = device.allocate(largest)?;
    let rates = device.poison(whole, 1).and_then(|()| sets.map(|bytes| Ok((bytes, best_rate(device, whole, bytes)?))).collect());
    let freed = device.free(whole);
    let rates = rates?;
    freed.map(|()| BandwidthCurve(rates))
}

/// Bytes per microsecond over the first `bytes` of `memory`.
fn best_rate(device: &mut dyn Device, memory: Span, bytes: u64) -> Done<f64> {
    let half = bytes / 2;
    let all = Span { bytes, ..memory };
    let (from, to) = (Span { bytes: half, ..memory }, Span { address: memory.address + half, bytes: half });
    Ok(rate(device, all, None, bytes)?.max(rate(device, from, Some(to), bytes)?))
}

/// Bytes per microsecond of reading `from`, or of copying it, where one pass touches `bytes`.
fn rate(device: &mut dyn Device, from: Span, to: Option<Span>, bytes: u64) -> Done<f64> {
    let once = device.sweep(from, to, 1)?;
    let passes = (SAMPLE_NS / once.max(1.0)).clamp(1.0, MAX_PASSES) as u32;
    let mut least = f64::INFINITY;
    for _ in 0..SAMPLES {
        least = least.min(device.sweep(from, to, passes)?);
    }
    Ok(bytes as f64 * f64::from(passes) / least * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::simulated::SimDevice;

    #[test]
    fn the_curve_of_the_simulated_device_is_its_own() {
        let mut device = SimDevice::new(1);
        let curve = measure(&mut device).unwrap();
        assert_eq!(device.allocated_bytes(), 0);
        // 8000 bytes a nanosecond from its cache of 1 MiB, 4000 from its memory.
        let first = curve.0[0].1;
        let last = curve.0.last().unwrap().1;
        assert!((6e6..=8e6).contains(&first) && (3.9e6..=4e6).contains(&last), "{curve:?}");
        assert!(curve.least_us(256 << 20).is_some_and(|us| (64.0..70.0).contains(&us)));
    }
}
