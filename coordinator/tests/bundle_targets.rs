//! Targets of a bundle: what the meaning and the text give together, and why a kernel is none.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use kernelopt_coordinator::inspect::{Inspection, targets};
use kernelopt_shared::bundle::{Bundle, CapturedDevice, FileEntry, GraphEntry, Manifest};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::target::Language;
use serde_json::{Value, json};
use tempfile::TempDir;

const KERNEL: &str = "cpp_fused_native_layer_norm_0";

fn fixture(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/captures/cpu-more/bundle").join(name)).unwrap()
}

fn meanings() -> Value {
    serde_json::from_str(&fixture("meanings_0.json")).unwrap()
}

/// A bundle of one captured layer norm, with these meanings and this code.
fn bundle(code: &str, meanings: &Value) -> (TempDir, Bundle) {
    let folder = TempDir::new().unwrap();
    let files = [("output_code_0.py", code.to_owned()), ("meanings_0.json", meanings.to_string())];
    let entries = files.iter().map(|(name, text)| {
        fs::write(folder.path().join(name), text).unwrap();
        ((*name).to_owned(), FileEntry { sha256: String::new(), bytes: text.len() as u64 })
    });
    let manifest = Manifest {
        schema_version: 1,
        model: "models.py:layer_norm".into(),
        versions: BTreeMap::from([("torch".into(), "2.11.0".into())]),
        device: CapturedDevice { kind: "cpu".into(), name: "any".into(), threads: 2, capability: None },
        precision: BTreeMap::new(),
        inductor: BTreeMap::new(),
        compile_command: Vec::new(),
        graphs: vec![GraphEntry {
            index: 3,
            kind: "inference".into(),
            code: "output_code_0.py".into(),
            meanings: "meanings_0.json".into(),
            calls_per_run: 1,
        }],
        files: entries.collect(),
    };
    let bundle = Bundle { root: folder.path().into(), manifest, digest: Digest::of([]) };
    (folder, bundle)
}

#[test]
fn a_kernel_with_a_meaning_is_a_target() {
    let code = fixture("output_code_0.py");
    let (_folder, bundle) = bundle(&code, &meanings());
    let (targets, untouched) = targets(&bundle).unwrap();
    assert_eq!((targets.len(), untouched.len()), (1, 0));
    let target = &targets[0];
    assert_eq!((target.label().as_str(), target.calls), ("3/cpp_fused_native_layer_norm_0", 1));
    assert_eq!(target.scratch, BTreeSet::from(["out_ptr0".to_owned(), "out_ptr1".to_owned()]));
    // Rows, weight and bias in, rows out; mean and variance are scratch.
    assert_eq!((target.traffic.read_bytes, target.traffic.write_bytes), (4 * (4096 * 256 + 512), 4 * 4096 * 256));
    assert_eq!((target.baseline.language, target.baseline.origin.proposer.as_str()), (Language::Cpp, "baseline"));
    assert!(code.contains(&target.baseline.source) && target.baseline.source.starts_with("\n#include"));
    assert_eq!(target.distributions.keys().next().map(String::as_str), Some("in_ptr0"));

    let inspection = Inspection::of_bundle(&bundle).unwrap();
    let row = &inspection.targets[0];
    assert_eq!((row.fingerprint, row.bytes_min, &row.reason), (Some(target.fingerprint), Some(target.traffic.total_bytes()), &None));
    insta::assert_snapshot!(inspection.table());
}

/// The sentence that says why the kernel is none.
fn reason(code: &str, meanings: &Value) -> String {
    let (_folder, bundle) = bundle(code, meanings);
    let (targets, untouched) = targets(&bundle).unwrap();
    assert!(targets.is_empty());
    let rows = Inspection::of_bundle(&bundle).unwrap().targets;
    assert_eq!(rows[0].reason.as_ref(), Some(&untouched[0].reason));
    untouched[0].reason.clone()
}

#[test]
fn a_kernel_that_is_no_target_says_why() {
    let code = fixture("output_code_0.py");
    let with = |change: fn(&mut Value)| {
        let mut changed = meanings();
        change(&mut changed);
        reason(&code, &changed)
    };
    assert_eq!(with(|m| *m = json!([])), "no meaning was exported");
    assert_eq!(with(|m| m[0] = json!({"kernel": KERNEL, "reason": "bessel_j0 is not known"})), "bessel_j0 is not known");
    assert_eq!(with(|m| *m = json!([m[0], m[0]])), "two meanings were exported for it");
    assert!(with(|m| m[0]["meaning"]["nodes"] = json!(7)).starts_with("its meaning does not decode"));
    let renamed = with(|m| m[0]["meaning"]["arguments"][0]["name"] = json!("in_ptr9"));
    assert_eq!(renamed, "its source has the parameter in_ptr0, its meaning in_ptr9 there");

    let touched = code.replace("        return (buf3, )", "        something(buf3)\n        return (buf3, )");
    assert_ne!(touched, code);
    let line = touched.lines().position(|line| line.contains("something")).unwrap() + 1;
    assert_eq!(reason(&touched, &meanings()), format!("shares buf3 with line {line}, which is not understood"));
}

#[test]
fn a_meaning_without_a_kernel_is_told() {
    let stray = json!([meanings()[0], {"kernel": "cpp_fused_gone_1"}]);
    let (_folder, bundle) = bundle(&fixture("output_code_0.py"), &stray);
    let (targets, untouched) = targets(&bundle).unwrap();
    assert_eq!(targets.len(), 1);
    assert_eq!(untouched[0].reason, "has a meaning, but output_code_0.py does not define it");
}
