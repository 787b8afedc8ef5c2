//! The error function, fast enough for the activations that are made of it.

use std::f64::consts::FRAC_2_SQRT_PI;
use std::sync::LazyLock;

/// Points per unit of the grid on which the function is expanded.
const PER_UNIT: f64 = 32.0;
/// From here on the function is one in double precision.
const END: f64 = 6.0;
/// Terms of each expansion: the next, at most half a step from its point, is below 1e-20.
const TERMS: usize = 10;

/// Taylor coefficients about each point of the grid. The derivatives are Hermite polynomials times a Gaussian:
/// `erf⁽ⁿ⁺¹⁾(x) = 2/√π · (-1)ⁿ Hₙ(x) exp(-x²)` (Abramowitz, Stegun, 7.1.19).
static EXPANSIONS: LazyLock<Vec<[f64; TERMS]>> = LazyLock::new(|| {
    let expansion = |point: u32| {
        let x = f64::from(point) / PER_UNIT;
        let mut coefficients = [0.0; TERMS];
        coefficients[0] = libm::erf(x);
        let (mut before, mut hermite) = (0.0, 1.0);
        let mut scale = FRAC_2_SQRT_PI * (-x * x).exp();
        for (n, coefficient) in coefficients.iter_mut().skip(1).enumerate() {
            let n = n as f64;
            *coefficient = scale * hermite;
            (before, hermite) = (hermite, 2.0 * x * hermite - 2.0 * n * before);
            scale /= -(n + 2.0);
        }
        coefficients
    };
    (0..=(END * PER_UNIT) as u32).map(expansion).collect()
});

/// `out = erf(x)`, within two units in the last place.
pub(super) fn erf_of() -> impl Fn(f64) -> f64 {
    let expansions = EXPANSIONS.as_slice();
    move |x| {
        let size = x.abs();
        if size >= END {
            return 1f64.copysign(x);
        }
        // NaN becomes point zero, and stays NaN in the distance from it.
        let point = (size * PER_UNIT + 0.5) as i32;
        let distance = size - f64::from(point) / PER_UNIT;
        let [value, rest @ ..] = &expansions[point as usize];
        let slope = rest.iter().rev().fold(0.0, |sum, coefficient| sum * distance + coefficient);
        (value + distance * slope).copysign(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_an_independent_implementation() {
        let erf = erf_of();
        let sizes = (0..200_000).map(|k| f64::from(k) * 3.3e-5);
        let tiny = (0..1080).map(|k| 2f64.powi(-k));
        for x in sizes.chain(tiny) {
            for x in [x, -x] {
                let (found, expected) = (erf(x), libm::erf(x));
                assert!((found - expected).abs() <= 2.5 * f64::EPSILON * expected.abs(), "{x:e}: {found:e} {expected:e}");
                assert_eq!(found.is_sign_negative(), x.is_sign_negative());
            }
        }
        assert!(erf(f64::NAN).is_nan());
        assert_eq!((erf(f64::INFINITY), erf(-f64::INFINITY)), (1.0, -1.0));
    }
}
