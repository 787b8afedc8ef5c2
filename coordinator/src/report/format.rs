//! Numbers as people read them.

use std::fmt::{self, Display};

/// A time given in microseconds: `812 ns`, `3.41 µs`, `20.8 ms`, `1.25 s`.
pub(super) struct Micros(pub(super) f64);

impl Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0;
        if !us.is_finite() || us < 0.0 {
            return f.write_str("unknown");
        }
        let (value, unit) = match us {
            _ if us == 0.0 => return f.write_str("0"),
            _ if us < 0.9995 => (us * 1e3, "ns"),
            _ if us < 999.5 => (us, "µs"),
            _ if us < 999_500.0 => (us / 1e3, "ms"),
            _ => (us / 1e6, "s"),
        };
        write!(f, "{:.*}\u{a0}{unit}", three_digits(value), value)
    }
}

/// A round time given in microseconds, without the zeros that a measured one would have: `5 ms`.
pub(super) struct RoundMicros(pub(super) f64);

impl Display for RoundMicros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = Micros(self.0).to_string();
        match exact.split_once('\u{a0}') {
            Some((value, unit)) if value.contains('.') => write!(f, "{}\u{a0}{unit}", value.trim_end_matches('0').trim_end_matches('.')),
            _ => f.write_str(&exact),
        }
    }
}

/// Decimals that leave three significant digits.
fn three_digits(value: f64) -> usize {
    match value {
        _ if value < 9.995 => 2,
        _ if value < 99.95 => 1,
        _ => 0,
    }
}

/// A ratio: `3.92×`, `12.4×`.
pub(super) struct Times(pub(super) f64);

impl Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_finite() { write!(f, "{}×", Plain(self.0)) } else { f.write_str("unknown") }
    }
}

/// The number of a ratio without its sign, for intervals.
struct Plain(f64);

impl Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.*}", three_digits(self.0), self.0)
    }
}

/// A 95 % interval: `[3.70, 4.10]`.
pub(super) struct Bracket(pub(super) [f64; 2]);

impl Display for Bracket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, high] = self.0;
        if low.is_finite() && high.is_finite() { write!(f, "[{}, {}]", Plain(low), Plain(high)) } else { f.write_str("no interval") }
    }
}

/// A share as a percentage: `4.2 %`, `38 %`.
pub(super) struct Share(pub(super) f64);

impl Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        match percent {
            _ if !percent.is_finite() => f.write_str("unknown"),
            _ if percent.abs() < 9.95 => write!(f, "{percent:.1}\u{a0}%"),
            // Nearly all is not all.
            _ if percent > 99.0 && percent < 100.0 => write!(f, "{:.1}\u{a0}%", percent.min(99.9)),
            _ => write!(f, "{percent:.0}\u{a0}%"),
        }
    }
}

/// A fraction of the roofline; zero stands for unknown in `result.json`.
pub(super) struct Roofline(pub(super) f64);

impl Display for Roofline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0.0 { Share(self.0).fmt(f) } else { f.write_str("unknown") }
    }
}

/// A duration in seconds: `42 s`, `9 min 40 s`, `1 h 05 min`.
pub(super) struct Seconds(pub(super) f64);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_finite() || self.0 < 0.0 {
            return f.write_str("unknown");
        }
        if self.0 > 0.0 && self.0 < 9.95 {
            return write!(f, "{:.1}\u{a0}s", self.0);
        }
        let whole = self.0.round() as u64;
        let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
        match (hours, minutes, seconds) {
            (0, 0, s) => write!(f, "{s}\u{a0}s"),
            (0, m, 0) => write!(f, "{m}\u{a0}min"),
            (0, m, s) => write!(f, "{m}\u{a0}min {s}\u{a0}s"),
            (h, 0, _) => write!(f, "{h}\u{a0}h"),
            (h, m, _) => write!(f, "{h}\u{a0}h {m:02}\u{a0}min"),
        }
    }
}

/// `name` cut in its middle to at most `most` characters: both ends of a kernel's name tell it from others.
pub(super) fn middle_cut(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        return name.to_owned();
    }
    let tail = (most - 1) / 2;
    let head = most - 1 - tail;
    name.chars().take(head).chain(['…']).chain(name.chars().skip(count - tail)).collect()
}

/// `1 target`, `3 targets`.
pub(super) fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(value: impl Display) -> String {
        value.to_string().replace('\u{a0}', " ")
    }

    #[test]
    fn times_keep_three_digits_and_change_unit() {
        let shown: Vec<String> =
            [0.0, 0.0421, 0.9999, 8.004, 999.6, 20_812.0, 1_250_000.0, f64::NAN, -1.0].map(|us| plain(Micros(us))).into();
        assert_eq!(shown, ["0", "42.1 ns", "1.00 µs", "8.00 µs", "1.00 ms", "20.8 ms", "1.25 s", "unknown", "unknown"]);
    }

    #[test]
    fn ratios_and_intervals() {
        assert_eq!(plain(Times(3.9)), "3.90×");
        assert_eq!(plain(Times(12.34)), "12.3×");
        assert_eq!(plain(Bracket([3.7, 10.04])), "[3.70, 10.0]");
        assert_eq!(plain(Bracket([f64::NAN, 1.0])), "no interval");
        assert_eq!([1000.0, 100.0, 2.5, 0.0].map(|us| plain(RoundMicros(us))), ["1 ms", "100 µs", "2.5 µs", "0"]);
        assert_eq!(plain(Roofline(0.0)), "unknown");
        assert_eq!([0.0421, 0.38, 0.9999, 1.0].map(|s| plain(Share(s))), ["4.2 %", "38 %", "99.9 %", "100 %"]);
    }

    #[test]
    fn durations() {
        let shown: Vec<String> = [0.0, 2.34, 42.0, 60.0, 580.0, 3600.0, 3900.0, f64::INFINITY].map(|s| plain(Seconds(s))).into();
        assert_eq!(shown, ["0 s", "2.3 s", "42 s", "1 min", "9 min 40 s", "1 h", "1 h 05 min", "unknown"]);
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(middle_cut("short", 9), "short");
        assert_eq!(middle_cut("cpp_fused_softmax_12", 9), "cpp_…x_12");
        assert_eq!(middle_cut("äöüäöüäöüäöü", 5), "äö…öü");
    }
}
