//! Meanings of real generated kernels, for tests: `tests/fixtures/meanings`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::Value;

use super::Meaning;

static VALUES: LazyLock<Vec<(String, Value)>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/meanings");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let kernels = |path: &PathBuf| -> Vec<(String, Value)> {
        let kernels: Vec<Value> = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let name = |position: usize| format!("{}/{position}", path.file_stem().unwrap().to_string_lossy());
        kernels.into_iter().enumerate().map(|(position, kernel)| (name(position), kernel["meaning"].clone())).collect()
    };
    files.iter().flat_map(kernels).collect()
});

/// Every fixture as JSON, by the name of its file and the position of the kernel in it.
pub(super) fn values() -> Vec<(String, Value)> {
    assert!(VALUES.len() >= 45, "only {} fixtures", VALUES.len());
    VALUES.clone()
}

/// Every fixture.
pub(super) fn all() -> Vec<(String, Meaning)> {
    values().into_iter().map(|(name, value)| (name, serde_json::from_value(value).unwrap())).collect()
}

/// The first kernel of one fixture.
pub(super) fn one(name: &str) -> Meaning {
    let (_, value) = VALUES.iter().find(|(known, _)| *known == format!("{name}/0")).unwrap();
    serde_json::from_value(value.clone()).unwrap()
}
