//! Memory bandwidth of the host by working set: the roof that no kernel can pass (Williams, Waterman, Patterson 2009).

use std::hint::black_box;
use std::time::{Duration, Instant};

use kernelopt_shared::task::BandwidthCurve;

/// Working sets that are measured, in bytes: from what lies in a first-level cache to what lies in memory only.
const WORKING_SETS: [usize; 7] = [32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20, 128 << 20];
/// Time for each.
const TIME: Duration = Duration::from_millis(40);

/// The roof over this host, measured when it is first asked for.
#[derive(Debug)]
pub struct Roof {
    threads: usize,
    curve: Option<BandwidthCurve>,
}

impl Roof {
    /// Over `threads` threads.
    pub const fn new(threads: usize) -> Self {
        Self { threads, curve: None }
    }

    /// What was measured.
    pub fn curve(&mut self) -> &BandwidthCurve {
        let threads = self.threads;
        self.curve.get_or_insert_with(|| measure(threads))
    }

    /// Measures again and keeps the better of each working set: before something is called impossible, a roof that was
    /// measured on a busy host must have had another chance.
    pub fn raise(&mut self) -> &BandwidthCurve {
        let again = measure(self.threads);
        let BandwidthCurve(rows) = self.curve.get_or_insert_with(|| again.clone());
        rows.iter_mut().zip(&again.0).for_each(|((_, rate), (_, better))| *rate = rate.max(*better));
        self.curve()
    }
}

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
    fn a_roof_only_rises() {
        let mut roof = Roof { threads: 1, curve: Some(BandwidthCurve(WORKING_SETS.map(|bytes| (bytes as u64, 1e9)).to_vec())) };
        assert!(roof.raise().0.iter().all(|(_, rate)| *rate == 1e9));
        roof.curve = Some(BandwidthCurve(WORKING_SETS.map(|bytes| (bytes as u64, 1e-9)).to_vec()));
        assert!(roof.raise().0.iter().all(|(_, rate)| *rate > 1.0));
    }

    #[test]
    fn every_working_set_has_a_plausible_rate() {
        let BandwidthCurve(rows) = measure(1);
        assert_eq!(rows.len(), WORKING_SETS.len());
        // Between a tenth of a GB/s and 10 TB/s.
        assert!(rows.iter().all(|(_, rate)| (100.0..1e7).contains(rate)), "{rows:?}");
    }
}
