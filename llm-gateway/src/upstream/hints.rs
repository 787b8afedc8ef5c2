//! When to come again, and how much is left: what upstreams say in headers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, header};

/// Longest time that a header is believed: a year would be a mistake.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// The wait that an answer asks for: `retry-after-ms` (or Azure's name for it), else `retry-after` as seconds with or without a fraction, else
/// as a date. What cannot be read, or lies in the past, is no wait.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = |number: f64| Duration::try_from_secs_f64(number).ok();
    let milliseconds = ["retry-after-ms", "x-ms-retry-after-ms"].into_iter().find_map(|name| text(name)?.parse::<f64>().ok());
    let wait = match milliseconds {
        Some(number) => seconds(number / 1000.0),
        None => {
            let value = text(header::RETRY_AFTER.as_str())?;
            match value.parse::<f64>() {
                Ok(number) => seconds(number),
                Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).ok(),
            }
        }
    };
    wait.filter(|wait| !wait.is_zero()).map(|wait| wait.min(LONGEST))
}

/// A time span such as `12ms`, `1s`, `6m0s`, `1h2m3.5s`, as OpenAI writes resets. A plain number is none: of what, is not said.
pub fn span(text: &str) -> Option<Duration> {
    let (mut rest, mut total) = (text.trim(), Duration::ZERO);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let seconds = match rest.get(..letters)? {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return None,
        };
        rest = rest.get(letters..)?;
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
    }
    Some(total.min(LONGEST))
}

/// Time until a moment such as `2026-11-30T12:00:00Z` (RFC 3339), as Anthropic writes resets; zero once it is past.
pub fn until(text: &str, now: SystemTime) -> Option<Duration> {
    let moment = UNIX_EPOCH.checked_add(Duration::from_secs(seconds_since_1970(text.trim())?))?;
    Some(moment.duration_since(now).unwrap_or_default().min(LONGEST))
}

/// Seconds since 1970 of a moment in RFC 3339, fractions left out.
fn seconds_since_1970(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let sign = |at: usize, signs: &[u8]| text.as_bytes().get(at).filter(|byte| signs.contains(byte));
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    for (at, signs) in [(4, &b"-"[..]), (7, b"-"), (10, b"Tt "), (13, b":"), (16, b":")] {
        sign(at, signs)?;
    }
    let rest = text.get(19..)?;
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let offset = match zone.as_bytes() {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), ..] if zone.len() == 6 => {
            let minutes = zone.get(1..3)?.parse::<i64>().ok()? * 60 + zone.get(4..6)?.parse::<i64>().ok()?;
            if *sign == b'+' { minutes * 60 } else { -minutes * 60 }
        }
        _ => return None,
    };
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days of the Gregorian calendar with years that begin in March (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    u64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second - offset).ok()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    /// 2026-11-30 12:00:00.
    fn noon() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_796_040_000)
    }

    fn wait(set: &[(&'static str, &str)]) -> Option<Duration> {
        let headers = set.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())).collect();
        retry_after(&headers, noon())
    }

    #[test]
    fn waits_come_as_milliseconds_seconds_and_dates() {
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(wait(&[("retry-after-ms", "1250"), ("retry-after", "9")]), ms(1250));
        assert_eq!(wait(&[("x-ms-retry-after-ms", "70")]), ms(70));
        assert_eq!(wait(&[("retry-after", "107")]), ms(107_000));
        assert_eq!(wait(&[("retry-after", "0.25")]), ms(250));
        assert_eq!(wait(&[("retry-after", "Mon, 30 Nov 2026 12:01:30 GMT")]), ms(90_000));
        assert_eq!(wait(&[("retry-after", "99999999999")]), Some(LONGEST));
        for nothing in ["", "soon", "-5", "0", "NaN", "inf", "Mon, 30 Nov 2026 11:00:00 GMT"] {
            assert_eq!(wait(&[("retry-after", nothing)]), None, "{nothing}");
        }
    }

    #[test]
    fn spans_are_read_as_openai_writes_them() {
        for (text, milliseconds) in [("12ms", 12), ("1s", 1000), ("6m0s", 360_000), ("1h2m3.5s", 3_723_500), ("7.66s", 7660)] {
            assert_eq!(span(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for unknown in ["", "-1", "60", "0", "s", "1x", "1.2.3s"] {
            assert_eq!(span(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn moments_are_read_as_anthropic_writes_them() {
        for text in ["2026-11-30T12:00:30Z", "2026-11-30T12:00:30.123456Z", "2026-11-30T14:00:30+02:00", "2026-11-30t11:30:30-00:30"] {
            assert_eq!(until(text, noon()), Some(Duration::from_secs(30)), "{text}");
        }
        assert_eq!(until("2026-11-30T11:00:00Z", noon()), Some(Duration::ZERO));
        assert_eq!(until("2024-02-29T00:00:00Z", UNIX_EPOCH + Duration::from_secs(1_709_164_799)), Some(Duration::from_secs(1)));
        for unknown in ["", "2026-11-30", "2026-13-30T12:00:00Z", "2026-11-30T12:00:00", "tomorrow", "2026-11-30T1é:00:00Z"] {
            assert_eq!(until(unknown, noon()), None, "{unknown}");
        }
    }
}
