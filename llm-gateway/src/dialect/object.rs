//! A JSON object of which only some fields are read, and which is written again with those changed and all else as it came.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde::de::{DeserializeOwned, IgnoredAny};

/// Most fields of an object; the dialects know some forty.
const MOST_FIELDS: usize = 256;

/// Why bytes are no object that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum BadObject {
    #[error("the body is no JSON object (at byte {at})")]
    Syntax { at: usize },
    // One reader would take the first and another the last: a limit could be passed by.
    #[error("the field {0:?} stands there twice")]
    Twice(String),
    #[error("the body has more than {MOST_FIELDS} fields")]
    TooMany,
    #[error("the field {field:?} cannot be read: {what}")]
    Field { field: String, what: String },
}

/// A JSON object, valid throughout, of which only the outermost fields are known.
#[derive(Clone, Debug)]
pub struct Object {
    text: Bytes,
    fields: Vec<(String, Range<usize>)>,
}

/// What becomes of a field.
#[derive(Clone, Debug)]
pub enum Change {
    /// It gets this value, as JSON; it is added where there is none.
    Set(&'static str, String),
    /// It is left out.
    Remove(&'static str),
}

impl Change {
    const fn field(&self) -> &'static str {
        match self {
            Self::Set(field, _) | Self::Remove(field) => field,
        }
    }
}

impl Object {
    /// Reads an object, all of it, and keeps where its fields are.
    ///
    /// # Errors
    /// It is no JSON, no object, or has a field twice.
    pub fn read(text: Bytes) -> Result<Self, BadObject> {
        let whole = std::str::from_utf8(&text).map_err(|error| BadObject::Syntax { at: error.valid_up_to() })?;
        let mut cursor = Cursor { text: whole, at: 0 };
        let mut fields: Vec<(String, Range<usize>)> = Vec::with_capacity(16);
        cursor.expect(b'{')?;
        let mut more = !cursor.take(b'}');
        while more {
            let (key, _) = cursor.value::<String>()?;
            cursor.expect(b':')?;
            let (_, place) = cursor.value::<IgnoredAny>()?;
            if fields.len() == MOST_FIELDS {
                return Err(BadObject::TooMany);
            }
            if fields.iter().any(|(known, _)| *known == key) {
                return Err(BadObject::Twice(key));
            }
            fields.push((key, place));
            more = cursor.take(b',');
            if !more {
                cursor.expect(b'}')?;
            }
        }
        cursor.end()?;
        Ok(Self { text, fields })
    }

    /// The JSON of a field that is there and is not null.
    pub fn get(&self, field: &str) -> Option<&str> {
        let (_, place) = self.fields.iter().find(|(name, _)| name == field)?;
        self.text.get(place.clone()).and_then(|bytes| std::str::from_utf8(bytes).ok()).filter(|json| *json != "null")
    }

    /// A field as a value; `None` where it is not there or null.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse<T: DeserializeOwned>(&self, field: &str) -> Result<Option<T>, BadObject> {
        let parsed = self.get(field).map(serde_json::from_str).transpose();
        parsed.map_err(|error: serde_json::Error| BadObject::Field { field: field.into(), what: plain(&error) })
    }

    /// Names of its fields, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| name.as_str())
    }

    /// The whole text as it came.
    pub const fn text(&self) -> &Bytes {
        &self.text
    }

    /// The object with some fields changed; the values of all others are the same bytes.
    pub fn with(&self, changes: &[Change]) -> Bytes {
        let added: usize =
            changes.iter().map(|change| if let Change::Set(field, json) = change { field.len() + json.len() + 4 } else { 0 }).sum();
        let mut out = BytesMut::with_capacity(self.text.len() + added);
        out.extend_from_slice(b"{");
        let mut put = |name: &str, json: &[u8]| {
            if out.len() > 1 {
                out.extend_from_slice(b",");
            }
            out.extend_from_slice(serde_json::Value::from(name).to_string().as_bytes());
            out.extend_from_slice(b":");
            out.extend_from_slice(json);
        };
        for (name, place) in &self.fields {
            match changes.iter().find(|change| change.field() == name) {
                None => put(name, &self.text[place.clone()]),
                Some(Change::Set(_, json)) => put(name, json.as_bytes()),
                Some(Change::Remove(_)) => {}
            }
        }
        for change in changes {
            if let Change::Set(field, json) = change
                && !self.fields.iter().any(|(name, _)| name == field)
            {
                put(field, json.as_bytes());
            }
        }
        out.extend_from_slice(b"}");
        out.freeze()
    }
}

/// An error of the parser without the place within the field, which says nothing to the sender.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(what, _)| what.to_owned())
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn skip_blanks(&mut self) {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let found = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), BadObject> {
        if self.take(byte) { Ok(()) } else { Err(BadObject::Syntax { at: self.at }) }
    }

    fn value<T: serde::Deserialize<'a>>(&mut self) -> Result<(T, Range<usize>), BadObject> {
        self.skip_blanks();
        let at = self.at;
        let mut values = serde_json::Deserializer::from_str(self.text.get(at..).unwrap_or_default()).into_iter::<T>();
        let value = values.next().and_then(Result::ok).ok_or(BadObject::Syntax { at })?;
        self.at += values.byte_offset();
        Ok((value, at..self.at))
    }

    fn end(&mut self) -> Result<(), BadObject> {
        self.skip_blanks();
        if self.at == self.text.len() { Ok(()) } else { Err(BadObject::Syntax { at: self.at }) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn read(text: &str) -> Result<Object, BadObject> {
        Object::read(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn only_the_fields_named_change() {
        let object = read(r#" { "model" : "a", "x":[1, {"y": 1.50}], "stream":null,"n":1 } "#).unwrap();
        let changed = object.with(&[Change::Set("model", "\"b\"".into()), Change::Remove("n"), Change::Set("max_tokens", "7".into())]);
        assert_eq!(&changed[..], br#"{"model":"b","x":[1, {"y": 1.50}],"stream":null,"max_tokens":7}"#);
        assert_eq!(object.get("x"), Some(r#"[1, {"y": 1.50}]"#));
        assert_eq!(object.get("stream"), None);
        assert_eq!(object.parse::<u64>("n"), Ok(Some(1)));
        assert!(object.parse::<u64>("model").unwrap_err().to_string().contains("expected u64"));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in [
            "",
            "[]",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1}x",
            "{\"a\":1 \"b\":2}",
            "{a:1}",
            "{\"a\":tru}",
            "1",
            "{\"a\":12x}",
        ] {
            assert!(matches!(read(text), Err(BadObject::Syntax { .. })), "{text}");
        }
        assert_eq!(read(r#"{"max_tokens":1,"max\u005ftokens":100}"#).unwrap_err(), BadObject::Twice("max_tokens".into()));
        assert!(Object::read(Bytes::from_static(b"{\"a\":\"\xff\"}")).is_err());
    }

    #[test]
    fn depth_does_not_end_the_process() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        // Either answer is right; that there is one is the point.
        let _ = read(&deep);
    }

    proptest! {
        #[test]
        fn an_object_is_what_serde_says_it_is(text in r#"[{}\[\]:,"a1\\ en.-]{0,24}"#) {
            let ours = read(&text).is_ok();
            let theirs = serde_json::from_str::<Value>(&text).is_ok_and(|value| value.is_object());
            // Ours refuses fields that stand there twice.
            prop_assert!(ours == theirs || matches!(read(&text), Err(BadObject::Twice(_))), "{}", text);
        }
    }
}
