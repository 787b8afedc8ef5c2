//! Kernels that the compiler generated for a GPU: their text and their meaning.

use kernelopt_shared::meaning::Meaning;
use serde::Deserialize;

/// One kernel.
#[derive(Deserialize)]
pub struct Fixture {
    /// The compiler's own module.
    pub source: String,
    /// What it computes.
    pub meaning: Meaning,
}

/// The kernel of that name.
pub fn load(name: &str) -> Fixture {
    let path = format!("{}/tests/fixtures/triton/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap_or_else(|why| panic!("{path}: {why}"))
}
