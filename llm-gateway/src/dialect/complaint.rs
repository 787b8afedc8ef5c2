//! What an upstream says when it does not answer. It is read here and never passed on as it is.

use serde_json::Value;

/// An upstream's error, reduced to its words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Complaint {
    /// `type` of the error.
    pub kind: String,
    /// `code`, where there is one.
    pub code: String,
    /// What it says. It may hold anything, secrets too.
    pub message: String,
}

/// Longest word that is kept of a complaint, and longest message, in characters.
const LONGEST: (usize, usize) = (64, 500);

impl Complaint {
    /// Reads `{"error": {...}}` of either dialect, `{"error": "..."}`, or `{"message": "..."}`; `None` where it is none of these.
    pub fn read(body: &[u8]) -> Option<Self> {
        Self::of(&serde_json::from_slice(body).ok()?)
    }

    /// The same of a value.
    pub fn of(body: &Value) -> Option<Self> {
        let cut = |value: &Value, most: usize| -> String {
            match value {
                Value::String(text) => text.chars().take(most).collect(),
                Value::Number(number) => number.to_string(),
                _ => String::new(),
            }
        };
        let error = match body.get("error") {
            Some(error) if !error.is_null() => error,
            _ if body.get("message").is_some_and(Value::is_string) => body,
            _ => return None,
        };
        if error.is_string() {
            return Some(Self { message: cut(error, LONGEST.1), ..Self::default() });
        }
        Some(Self {
            kind: cut(&error["type"], LONGEST.0),
            code: cut(&error["code"], LONGEST.0),
            message: cut(&error["message"], LONGEST.1),
        })
    }

    /// Money is gone there. Rate limits come with the same status, and only words tell them apart.
    pub fn is_about_money(&self) -> bool {
        let money = ["insufficient_quota", "billing", "credit_balance", "spend_limit", "spending_limit", "budget"];
        let says = |text: &str| money.iter().any(|word| text.contains(word));
        says(&self.kind) || says(&self.code) || {
            let message = self.message.to_ascii_lowercase();
            ["credit balance", "exceeded your current quota", "spend limit", "spending limit"].iter().any(|words| message.contains(words))
        }
    }

    /// The prompt is too long for the model.
    pub fn is_about_length(&self) -> bool {
        let message = self.message.to_ascii_lowercase();
        self.code == "context_length_exceeded"
            || self.kind == "exceed_context_size_error"
            || ["context length", "context size", "prompt is too long", "context window"].iter().any(|words| message.contains(words))
    }

    /// Its message with everything taken out that may be a secret: `known` ones, and long words of letters and digits that are not `plain`.
    pub fn without_secrets(&self, known: &str, plain: &[&str]) -> String {
        let message = if known.is_empty() { self.message.clone() } else { self.message.replace(known, "[withheld]") };
        let word = |word: &str| {
            let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            let begins_like_a_key = ["sk-", "sk_", "key-", "Bearer", "pk-", "AIza"].iter().any(|start| bare.starts_with(start));
            let looks_random = bare.len() >= 20 && bare.bytes().any(|byte| byte.is_ascii_digit());
            if (begins_like_a_key && bare.len() > 8 || looks_random) && !plain.contains(&bare) {
                "[withheld]".to_owned()
            } else {
                word.to_owned()
            }
        };
        message.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn complaints_come_in_several_shapes() {
        for (body, kind, code, message) in [
            (json!({"error": {"message": "m", "type": "t", "param": null, "code": "c"}}), "t", "c", "m"),
            (json!({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}), "overloaded_error", "", "m"),
            (json!({"error": {"code": 400, "message": "m", "type": "t"}}), "t", "400", "m"),
            (json!({"error": "m"}), "", "", "m"),
            (json!({"message": "m"}), "", "", "m"),
        ] {
            let complaint = Complaint::of(&body).unwrap();
            assert_eq!((complaint.kind.as_str(), complaint.code.as_str(), complaint.message.as_str()), (kind, code, message));
        }
        assert_eq!(Complaint::read(b"<html>"), None);
        assert_eq!(Complaint::of(&json!({"choices": [], "error": null})), None);
    }

    #[test]
    fn money_is_told_from_haste() {
        let complaint = |kind: &str, code: &str, message: &str| Complaint { kind: kind.into(), code: code.into(), message: message.into() };
        assert!(complaint("insufficient_quota", "insufficient_quota", "").is_about_money());
        assert!(complaint("invalid_request_error", "", "Your credit balance is too low").is_about_money());
        assert!(complaint("billing_error", "", "").is_about_money());
        assert!(!complaint("requests", "rate_limit_exceeded", "Rate limit reached for gpt").is_about_money());
    }

    #[test]
    fn secrets_do_not_get_through() {
        let said = |message: &str| {
            Complaint { message: message.into(), ..Complaint::default() }.without_secrets("hunter2 !", &["claude-3-5-sonnet-20241022"])
        };
        assert_eq!(said("Incorrect API key provided: sk-abc12*****xyz."), "Incorrect API key provided: [withheld]");
        assert_eq!(said("key (hunter2 !) is wrong"), "key ([withheld]) is wrong");
        assert_eq!(said("token 0123456789abcdef0123456789"), "token [withheld]");
        assert_eq!(said("no model claude-3-5-sonnet-20241022 here"), "no model claude-3-5-sonnet-20241022 here");
    }
}
