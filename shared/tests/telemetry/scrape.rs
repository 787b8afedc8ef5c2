//! The text format, read as far as these tests need it.

use std::collections::BTreeMap;

/// Values by series, `name{labels}`.
pub fn series(text: &str) -> BTreeMap<&str, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.rsplit_once(' ').unwrap()).map(|(series, value)| (series, value.parse().unwrap())).collect()
}

/// Series of one metric: its own, and those of its histogram.
pub fn of<'a>(all: &BTreeMap<&'a str, f64>, name: &str) -> BTreeMap<&'a str, f64> {
    let belongs = |series: &str| {
        let metric = series.split('{').next().unwrap_or_default();
        metric == name || metric.strip_prefix(name).is_some_and(|end| ["_bucket", "_sum", "_count"].contains(&end))
    };
    all.iter().filter(|(series, _)| belongs(series)).map(|(series, value)| (*series, *value)).collect()
}
