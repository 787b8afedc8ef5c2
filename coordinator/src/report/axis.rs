//! Axes: from values to places.

/// How values spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spread {
    Linear,
    Log,
}

/// A ratio beyond this, either way, is drawn at this place; no honest one comes near it.
const GREATEST_RATIO: f64 = 1e6;

/// One axis of a picture. Places are fractions of its length, from 0 to 1; what lies outside is drawn at the nearer end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    spread: Spread,
}

impl Axis {
    /// From zero to just above `greatest`, linear.
    pub(super) fn from_zero(greatest: f64) -> Self {
        let usable = greatest.is_finite() && greatest >= f64::MIN_POSITIVE;
        Self { low: 0.0, high: if usable { greatest } else { 1.0 }, spread: Spread::Linear }
    }

    /// Ratios on a log scale: holds one, all usable `values`, and some air on both sides.
    pub(super) fn ratios(values: impl IntoIterator<Item = f64>) -> Self {
        let usable = values.into_iter().filter(|v| v.is_finite() && *v > 0.0).map(|v| v.clamp(1.0 / GREATEST_RATIO, GREATEST_RATIO));
        let (least, greatest) = usable.fold((0.9, 1.25), |(least, greatest): (f64, f64), v| (least.min(v), greatest.max(v)));
        let air = (greatest / least).powf(0.06);
        Self { low: least / air, high: greatest * air, spread: Spread::Log }
    }

    /// Place of `value`; NaN stands at the low end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let fraction = match self.spread {
            Spread::Linear => (value - self.low) / (self.high - self.low),
            Spread::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        if fraction.is_nan() { 0.0 } else { fraction.clamp(0.0, 1.0) }
    }

    /// Round values inside the axis, about `want` of them at most, ascending.
    pub(super) fn ticks(&self, want: usize) -> Vec<f64> {
        match self.spread {
            Spread::Linear => multiples(self.low, self.high, nice_step(self.high - self.low, want)),
            Spread::Log => self.log_ticks(want),
        }
    }

    fn log_ticks(&self, want: usize) -> Vec<f64> {
        if self.high / self.low < 2.2 {
            return multiples(self.low, self.high, nice_step(self.high - self.low, want));
        }
        const MANTISSAS: [&[f64]; 4] = [&[1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0], &[1.0, 2.0, 3.0, 5.0], &[1.0, 2.0, 5.0], &[1.0]];
        let decades = (self.low.log10().floor() as i32)..=(self.high.log10().ceil() as i32);
        let of = |mantissas: &[f64]| -> Vec<f64> {
            let all = decades.clone().flat_map(|decade| mantissas.iter().map(move |m| m * 10f64.powi(decade)));
            all.filter(|v| (self.low..=self.high).contains(v)).collect()
        };
        let sets: Vec<Vec<f64>> = MANTISSAS.iter().map(|m| of(m)).collect();
        sets.iter().find(|set| set.len() <= want).or(sets.last()).cloned().unwrap_or_default()
    }
}

/// Step of 1, 2 or 5 times a power of ten that cuts `span` into at most `want` pieces.
fn nice_step(span: f64, want: usize) -> f64 {
    let rough = span / want.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= rough * (1.0 - 1e-9)).unwrap_or(10.0);
    factor * power
}

/// A step of whole seconds, minutes or hours that cuts `span` seconds into at most `want` pieces.
pub(super) fn time_ticks(span: f64, want: usize) -> Vec<f64> {
    const STEPS: [f64; 16] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0];
    let wanted = span / want.max(1) as f64;
    let step = STEPS.into_iter().find(|step| *step >= wanted).unwrap_or_else(|| nice_step(span, want));
    multiples(0.0, span, step)
}

/// A tick of `ticks`, which stand a whole step apart, in the greatest unit that leaves every one of them whole.
pub(super) fn time_words(ticks: &[f64], tick: f64) -> String {
    let whole = |unit: f64| ticks.iter().all(|t| t % unit == 0.0);
    let (unit, name) = [(3600.0, "h"), (60.0, "min")].into_iter().find(|(unit, _)| whole(*unit) && ticks.len() > 1).unwrap_or((1.0, "s"));
    format!("{}\u{a0}{name}", tick / unit)
}

fn multiples(low: f64, high: f64, step: f64) -> Vec<f64> {
    if !(step.is_finite() && step > 0.0 && (high - low) / step < 1000.0) {
        return Vec::new();
    }
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|i| i as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_lies_inside_every_axis_of_ratios() {
        for values in [vec![], vec![3.9], vec![0.2], vec![f64::NAN, -1.0, f64::INFINITY, 400.0]] {
            let place = Axis::ratios(values).place(1.0);
            assert!(place > 0.0 && place < 1.0, "{place}");
        }
    }

    #[test]
    fn ticks_of_usual_axes() {
        let shown = |ticks: Vec<f64>| {
            ticks.iter().map(|t| format!("{t:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(Axis::ratios([4.1]).ticks(8)), "1 1.5 2 3 4");
        assert_eq!(shown(Axis::ratios([]).ticks(5)), "0.9 1 1.1 1.2");
        assert_eq!(shown(Axis::from_zero(830.0).ticks(5)), "0 200 400 600 800");
        assert_eq!(shown(time_ticks(580.0, 6)), "0 120 240 360 480");
        let words = |span| {
            time_ticks(span, 5)
                .into_iter()
                .map(|t| time_words(&time_ticks(span, 5), t).replace('\u{a0}', " "))
                .collect::<Vec<_>>()
                .join(", ")
        };
        assert_eq!(words(118.0), "0 s, 30 s, 60 s, 90 s");
        assert_eq!(words(571.0), "0 min, 2 min, 4 min, 6 min, 8 min");
        assert_eq!(words(0.4), "0 s");
    }

    proptest! {
        #[test]
        fn ticks_are_few_ascending_and_inside(greatest in 1e-9f64..1e9, least in 1e-9f64..1.0, want in 2usize..12) {
            for axis in [Axis::from_zero(greatest), Axis::ratios([least, greatest])] {
                let ticks = axis.ticks(want);
                prop_assert!(ticks.windows(2).all(|w| w[0] < w[1]));
                prop_assert!(ticks.len() <= want.max(14) + 1, "{} ticks", ticks.len());
                prop_assert!(ticks.iter().all(|t| *t >= axis.low - 1e-9 * axis.high && *t <= axis.high * (1.0 + 1e-9)));
            }
        }

        #[test]
        fn any_number_makes_an_axis_and_stays_on_it(value in proptest::num::f64::ANY, other in proptest::num::f64::ANY) {
            for axis in [Axis::from_zero(other), Axis::ratios([other])] {
                prop_assert!((0.0..=1.0).contains(&axis.place(value)));
                prop_assert!(axis.ticks(6).len() <= 16, "{:?}", axis.ticks(6));
            }
        }
    }
}
