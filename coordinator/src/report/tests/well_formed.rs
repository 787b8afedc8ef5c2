//! A checker small enough to trust: tags close in order, attributes are quoted and unique, entities are known, identifiers are unique.

use std::collections::BTreeSet;

/// What a document holds.
#[derive(Debug, Default)]
pub(super) struct Outline {
    /// Names of elements, in order of their start.
    pub(super) elements: Vec<String>,
    /// Attributes as `element.attribute=value`.
    pub(super) attributes: Vec<String>,
    /// All text outside tags and style sheets, unescaped.
    pub(super) text: String,
}

/// Reads `document`, or says what is wrong and where.
pub(super) fn outline(document: &str) -> Result<Outline, String> {
    let mut rest = document.strip_prefix("<!doctype html>").ok_or("no document type")?;
    let (mut found, mut open, mut ids) = (Outline::default(), Vec::<String>::new(), BTreeSet::new());
    while let Some(at) = rest.find('<') {
        found.text.push_str(&unescaped(&rest[..at])?);
        rest = &rest[at + 1..];
        let end = tag_end(rest).ok_or_else(|| format!("tag without end: {}", start(rest)))?;
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop().as_deref() != Some(name) {
                return Err(format!("</{name}> closes nothing"));
            }
            continue;
        }
        let (tag, is_empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        if !name.chars().all(|c| c.is_ascii_alphanumeric()) || name.is_empty() {
            return Err(format!("element name {name:?}"));
        }
        for (key, value) in self::attributes(attributes)? {
            if key == "id" && !ids.insert(value.clone()) {
                return Err(format!("id {value:?} twice"));
            }
            found.attributes.push(format!("{name}.{key}={value}"));
        }
        found.elements.push(name.to_owned());
        if name == "style" {
            rest = &rest[rest.find("</style>").ok_or("style without end")?..];
        }
        if !is_empty {
            open.push(name.to_owned());
        }
    }
    if open.is_empty() && rest.trim().is_empty() { Ok(found) } else { Err(format!("left open: {open:?}, {:?}", start(rest))) }
}

fn start(text: &str) -> String {
    text.chars().take(60).collect()
}

/// End of a tag: the first `>` outside quotes.
fn tag_end(text: &str) -> Option<usize> {
    let mut quoted = false;
    text.char_indices().find_map(|(at, c)| {
        quoted ^= c == '"';
        (c == '>' && !quoted).then_some(at)
    })
}

fn attributes(mut text: &str) -> Result<Vec<(String, String)>, String> {
    let mut found: Vec<(String, String)> = Vec::new();
    while !text.is_empty() {
        let (key, after) = text.split_once("=\"").ok_or_else(|| format!("attribute {:?}", start(text)))?;
        let (value, after) = after.split_once('"').ok_or_else(|| format!("value of {key}"))?;
        if !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') || found.iter().any(|(other, _)| other == key) {
            return Err(format!("attribute {key:?}"));
        }
        found.push((key.to_owned(), unescaped(value)?));
        text = after.strip_prefix(' ').unwrap_or(after);
    }
    Ok(found)
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut pieces = text.split('&');
    out.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (entity, after) = piece.split_once(';').ok_or_else(|| format!("bare & before {:?}", start(piece)))?;
        out.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "#39" => '\'',
            other => return Err(format!("entity {other:?}")),
        });
        out.push_str(after);
    }
    match out.contains('\u{0}') {
        true => Err("a NUL".into()),
        false => Ok(out),
    }
}
