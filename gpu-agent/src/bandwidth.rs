//! Memory bandwidth of the host by working set: the roof that no kernel can pass (Williams, Waterman, Patterson 2009).

use std::hint::black_box;
use std::time::{Duration, Instant};

use kernelopt_shared::task::BandwidthCurve;

/// Working sets that are measured, in bytes: from what lies in a first-level cache to what lies in memory only.
const WORKING_SETS: [usize; 7] = [32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20, 128 << 20];
/// Time for each.
const TIME: Duration = Duration::from_millis(40);

/// Measures with `threads` threads, each on its share of the working set. The better of reading and copying counts: the
/// roof must be one that no honest kernel passes.
pub fn measure(threads: usize) -> BandwidthCurve {
    let rates = WORKING_SETS.iter().map(|&bytes| {
        let share = (bytes / threads.max(1) / 16).max(64);
        let rates: Vec<f64> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(move || best_rate(share))).collect();
            workers.into_iter().map(|worker| worker.join().unwrap_or(0.0)).collect()
        });
        (bytes as u64, rates.iter().sum())
    });
    BandwidthCurve(rates.collect())
}

/// Bytes per microsecond of one thread over two arrays of `words` doubles each.
fn best_rate(words: usize) -> f64 {
    let source = vec![1.0f64; words];
    let mut target = vec![0.0f64; words];
    let bytes = (words * 16) as f64;
    let copy = fastest(|| {
        target.copy_from_slice(black_box(&source));
        black_box(&mut target);
    });
    let read = fastest(|| {
        black_box(sum(black_box(&source)) + sum(black_box(&target)));
    });
    bytes / copy.min(read)
}

fn sum(values: &[f64]) -> f64 {
    let mut lanes = [0.0f64; 32];
    for chunk in values.chunks_exact(32) {
        lanes.iter_mut().zip(chunk).for_each(|(lane, value)| *lane += value);
    }
    lanes.iter().sum()
}

/// Least time of `work` in microseconds.
fn fastest(mut work: impl FnMut()) -> f64 {
    let started = Instant::now();
    let mut least = Duration::MAX;
    while started.elapsed() < TIME || least == Duration::MAX {
        // Several at a time: one pass over a small array is shorter than the clock can tell.
        let before = Instant::now();
        for _ in 0..8 {
            work();
        }
        least = least.min(before.elapsed() / 8);
    }
    least.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_working_set_has_a_plausible_rate() {
        let BandwidthCurve(rows) = measure(1);
        assert_eq!(rows.len(), WORKING_SETS.len());
        // Between a tenth of a GB/s and 10 TB/s.
        assert!(rows.iter().all(|(_, rate)| (100.0..1e7).contains(rate)), "{rows:?}");
    }
}
