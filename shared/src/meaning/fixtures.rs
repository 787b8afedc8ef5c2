//! Meanings of real generated kernels, for tests: `tests/fixtures/meanings`.

use std::fs;
use std::path::Path;

use super::Meaning;

/// Every fixture as JSON, by the name of its file and the position of the kernel in it.
pub(super) fn values() -> Vec<(String, serde_json::Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/meanings");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kernels: Vec<serde_json::Value> = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        for (position, kernel) in kernels.into_iter().enumerate() {
            found.push((format!("{}/{position}", path.file_stem().unwrap().to_string_lossy()), kernel["meaning"].clone()));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(found.len() >= 45, "only {} fixtures", found.len());
    found
}

/// Every fixture.
pub(super) fn all() -> Vec<(String, Meaning)> {
    values().into_iter().map(|(name, value)| (name, serde_json::from_value(value).unwrap())).collect()
}

/// The first kernel of one fixture.
pub(super) fn one(name: &str) -> Meaning {
    all().into_iter().find(|(known, _)| *known == format!("{name}/0")).unwrap().1
}
