//! What is left of a provider's limits, as its headers say.

use std::time::SystemTime;

use axum::http::HeaderMap;

use super::hints;
use crate::queue::{Headers, Seen};

/// Reads OpenAI's headers, or Anthropic's. Azure writes `-1` and `0` where it means that there is no limit: a limit of nothing, with an answer
/// that came all the same, is none.
pub fn read(headers: &HeaderMap, now: SystemTime) -> Headers {
    let text = |name: String| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |name: String| text(name)?.parse::<u64>().ok();
    let level = |prefix: &str, what: &str| {
        // OpenAI names the figure before what it is of, Anthropic after.
        let openai = prefix == "x-ratelimit";
        let name = |figure: &str| if openai { format!("{prefix}-{figure}-{what}") } else { format!("{prefix}-{what}-{figure}") };
        let (limit, remaining) = (number(name("limit")), number(name("remaining")));
        let reset = text(name("reset")).and_then(|reset| if openai { hints::span(reset) } else { hints::until(reset, now) });
        let means_none = limit == Some(0) || remaining.is_none() || (limit.is_none() && remaining == Some(0) && reset.is_none());
        if means_none { Seen::default() } else { Seen { limit, remaining, reset } }
    };
    let either = |what: &str| {
        let openai = level("x-ratelimit", what);
        if openai == Seen::default() { level("anthropic-ratelimit", what) } else { openai }
    };
    Headers {
        requests: either("requests"),
        tokens: either("tokens"),
        input_tokens: either("input-tokens"),
        output_tokens: either("output-tokens"),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use std::time::Duration;

    use super::*;

    fn levels(set: &[(&'static str, &str)]) -> Headers {
        let headers = set.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())).collect();
        read(&headers, SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_040_000))
    }

    #[test]
    fn openai_says_what_is_left() {
        let levels = levels(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]);
        let level =
            |limit, remaining, seconds| Seen { limit: Some(limit), remaining: Some(remaining), reset: Some(Duration::from_secs(seconds)) };
        assert_eq!(levels, Headers { requests: level(60, 59, 1), tokens: level(150_000, 0, 360), ..Headers::default() });
    }

    #[test]
    fn anthropic_says_it_by_direction() {
        let levels = levels(&[
            ("anthropic-ratelimit-input-tokens-limit", "40000"),
            ("anthropic-ratelimit-input-tokens-remaining", "1000"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-11-30T12:00:07Z"),
            ("anthropic-ratelimit-output-tokens-remaining", "8000"),
        ]);
        assert_eq!(levels.input_tokens, Seen { limit: Some(40_000), remaining: Some(1000), reset: Some(Duration::from_secs(7)) });
        assert_eq!(levels.output_tokens, Seen { limit: None, remaining: Some(8000), reset: None });
        assert_eq!((levels.requests, levels.tokens), (Seen::default(), Seen::default()));
    }

    #[test]
    fn azures_figures_are_unknown() {
        let azure = [("x-ratelimit-limit-requests", "-1"), ("x-ratelimit-remaining-requests", "-1"), ("x-ratelimit-reset-requests", "0")];
        assert_eq!(levels(&azure), Headers::default());
        let azure = [("x-ratelimit-limit-tokens", "0"), ("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "60")];
        assert_eq!(levels(&azure), Headers::default());
        assert_eq!(levels(&[("x-ratelimit-remaining-tokens", "many")]), Headers::default());
    }
}
