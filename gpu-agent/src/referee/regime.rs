//! Input regimes: what a candidate is tried on besides the values seen at capture.

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::target::Distribution;
use rand::{Rng, RngExt};

use super::values::{push_float, push_int};

/// A way to draw the floating-point inputs of a kernel. Integers and booleans are always drawn as captured, since they
/// are indices and masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regime {
    /// The captured distribution, parameters that were constant made random.
    Captured,
    /// Captured times 64.
    ScaledUp,
    /// Captured over 1024.
    ScaledDown,
    /// Minus the magnitude of the captured.
    Negative,
    /// Rows whose elements hardly differ: variance near zero, where an epsilon decides.
    Flat,
    /// Magnitudes spread evenly over the exponents from 1e2 to 1e30.
    Large,
    /// Subnormal numbers only.
    Denormal,
    /// Captured with NaN, infinities, zeros of both signs and extreme numbers sprinkled in.
    Special,
}

impl Regime {
    /// Every regime, the captured distribution first.
    pub const ALL: [Self; 8] =
        [Self::Captured, Self::ScaledUp, Self::ScaledDown, Self::Negative, Self::Flat, Self::Large, Self::Denormal, Self::Special];

    /// Name in evidence.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Captured => "captured",
            Self::ScaledUp => "scaled up",
            Self::ScaledDown => "scaled down",
            Self::Negative => "negative",
            Self::Flat => "flat rows",
            Self::Large => "large",
            Self::Denormal => "denormal",
            Self::Special => "special values",
        }
    }
}

/// Draws one argument's elements as bytes of `dtype`. `row` is the longest reduction of the kernel in elements (one for a
/// pointwise kernel): the regimes that work by rows use it.
pub fn draw(regime: Regime, dtype: Dtype, elements: usize, captured: &Distribution, row: usize, rng: &mut impl Rng) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(elements * dtype.size_bytes());
    if dtype.is_float() {
        let mut source = FloatSource { regime, dtype, captured: Sampler::new(captured), row: row.max(1), center: 0.0 };
        for i in 0..elements {
            let value = source.next(i, rng);
            push_float(&mut bytes, dtype, value);
        }
    } else {
        let sampler = Sampler::new(captured);
        for _ in 0..elements {
            push_int(&mut bytes, dtype, sampler.integer(rng));
        }
    }
    bytes
}

/// Inverse-transform sampling from captured quantiles (Devroye 1986, chapter 2).
struct Sampler<'a> {
    captured: &'a Distribution,
    constant: Option<f64>,
}

impl<'a> Sampler<'a> {
    fn new(captured: &'a Distribution) -> Self {
        let constant = match (captured.quantiles.first(), captured.quantiles.last()) {
            (Some(low), Some(high)) if low == high => Some(*low),
            _ => None,
        };
        Self { captured, constant }
    }

    /// A float as captured. A parameter that was constant is made random, of the same sign: weights of one and biases of
    /// zero would hide faults.
    fn float(&self, rng: &mut impl Rng) -> f64 {
        match self.constant {
            Some(0.0) => normal(rng),
            Some(value) => value * (0.5 + rng.random::<f64>()),
            None => self.quantile(rng),
        }
    }

    fn quantile(&self, rng: &mut impl Rng) -> f64 {
        let quantiles = &self.captured.quantiles;
        if quantiles.len() < 2 {
            return normal(rng);
        }
        if self.captured.zero_share > 0.0 && rng.random::<f64>() < self.captured.zero_share {
            return 0.0;
        }
        let at = rng.random::<f64>() * (quantiles.len() - 1) as f64;
        let below = (at as usize).min(quantiles.len() - 2);
        let part = at - below as f64;
        quantiles[below] * (1.0 - part) + quantiles[below + 1] * part
    }

    fn integer(&self, rng: &mut impl Rng) -> i64 {
        let low = self.captured.quantiles.first().copied().unwrap_or(0.0) as i64;
        let high = self.captured.quantiles.last().copied().unwrap_or(1.0) as i64;
        rng.random_range(low..=high.max(low))
    }
}

struct FloatSource<'a> {
    regime: Regime,
    dtype: Dtype,
    captured: Sampler<'a>,
    row: usize,
    center: f64,
}

impl FloatSource<'_> {
    fn next(&mut self, index: usize, rng: &mut impl Rng) -> f64 {
        let captured = self.captured.float(rng);
        match self.regime {
            Regime::Captured => captured,
            Regime::ScaledUp => captured * 64.0,
            Regime::ScaledDown => captured / 1024.0,
            Regime::Negative => -captured.abs(),
            Regime::Flat => {
                if index.is_multiple_of(self.row) {
                    self.center = captured;
                }
                self.center + 1e-4 * normal(rng)
            }
            Regime::Large => sign(rng) * 10f64.powf(2.0 + 28.0 * rng.random::<f64>()),
            Regime::Denormal => sign(rng) * 2f64.powf(-149.0 + 23.0 * rng.random::<f64>()),
            Regime::Special => self.special(captured, rng),
        }
    }

    /// So rare that about half of all rows stay free of special values.
    fn special(&self, captured: f64, rng: &mut impl Rng) -> f64 {
        let rarity = (2 * self.row).max(16);
        if rng.random_range(0..rarity) != 0 {
            return captured;
        }
        // So far below the end of the range that a sum over a row, in any order and unscaled, stays finite: an order of
        // operations is no fault.
        let end = if self.dtype == Dtype::Float16 { 65504.0 } else { f64::from(f32::MAX) };
        let greatest = end / (4 * self.row) as f64;
        let choices = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, greatest, -greatest, 1.2e-38, -1e-40, 100.0, -100.0];
        choices[rng.random_range(0..choices.len())]
    }
}

fn sign(rng: &mut impl Rng) -> f64 {
    if rng.random::<bool>() { 1.0 } else { -1.0 }
}

/// Sum of four uniforms, scaled to unit variance: near enough to normal here and cheap (Irwin-Hall).
fn normal(rng: &mut impl Rng) -> f64 {
    let bits: u64 = rng.random();
    let sum: u64 = (0..4).map(|i| (bits >> (16 * i)) & 0xffff).sum();
    (sum as f64 / 65535.0 - 2.0) * 3f64.sqrt()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn floats(regime: Regime, captured: &Distribution) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let bytes = draw(regime, Dtype::Float32, 4096, captured, 64, &mut rng);
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    fn uniform() -> Distribution {
        Distribution { quantiles: vec![-1.0, 0.0, 3.0], zero_share: 0.0, nan_share: 0.0 }
    }

    #[test]
    fn captured_values_keep_range_and_median() {
        let mut values = floats(Regime::Captured, &uniform());
        values.sort_by(f32::total_cmp);
        assert!(values[0] >= -1.0 && values[4095] <= 3.0);
        assert!(values[2048].abs() < 0.1, "{}", values[2048]);
    }

    #[test]
    fn constant_parameters_are_made_random() {
        let ones = Distribution { quantiles: vec![1.0, 1.0], ..Default::default() };
        let values = floats(Regime::Captured, &ones);
        assert!(values.iter().all(|v| (0.5..=1.5).contains(v)) && values[0] != values[1]);
        let zeros = Distribution { quantiles: vec![0.0, 0.0], zero_share: 1.0, nan_share: 0.0 };
        assert!(floats(Regime::Captured, &zeros).iter().any(|v| *v != 0.0));
    }

    #[test]
    fn regimes_are_what_they_say() {
        assert!(floats(Regime::Negative, &uniform()).iter().all(|v| *v <= 0.0));
        assert!(floats(Regime::Denormal, &uniform()).iter().all(|v| v.is_subnormal() || *v == 0.0));
        assert!(floats(Regime::Large, &uniform()).iter().all(|v| v.abs() >= 99.0 && v.is_finite()));
        let special = floats(Regime::Special, &uniform());
        assert!(special.iter().any(|v| v.is_nan()) && special.iter().any(|v| v.is_infinite()));
        let clean_rows = special.chunks(64).filter(|row| row.iter().all(|v| v.is_finite())).count();
        assert!(clean_rows > 16, "{clean_rows} of 64");
        let flat = floats(Regime::Flat, &uniform());
        assert!(flat.chunks(64).all(|row| row.iter().all(|v| (v - row[0]).abs() < 1e-3)));
    }

    #[test]
    fn integers_stay_in_the_captured_range() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let captured = Distribution { quantiles: vec![3.0, 9.0], ..Default::default() };
        let bytes = draw(Regime::Large, Dtype::Int64, 500, &captured, 1, &mut rng);
        assert!(bytes.chunks_exact(8).all(|b| (3..=9).contains(&b[0]) && b[1..].iter().all(|z| *z == 0)));
    }
}
