//! The float64 truth against torch: kernels that TorchInductor generated and the element-wise functions, with expected values
//! computed by torch eager in float64 and mpmath (`tests/fixtures/make_truth.py`).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kernelopt_gpu_agent::truth::{Rounding, Truth, Values};
use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::fingerprint::{canonical, fingerprint};
use kernelopt_shared::meaning::mutate::mutants;
use kernelopt_shared::meaning::storage::{ArgumentPlace, Layout};
use kernelopt_shared::meaning::{Meaning, Scalar};
use serde::Deserialize;

/// One kernel call.
#[derive(Deserialize)]
struct Case {
    meaning: Meaning,
    /// Bytes behind each pointer at entry.
    inputs: BTreeMap<String, String>,
    /// What torch computes in float64, int64 or bool, for the outputs that it returns.
    outputs: BTreeMap<String, String>,
    /// Bytes behind each output after the compiler's own kernel ran.
    real: BTreeMap<String, String>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}

fn cases() -> Vec<(String, Vec<Case>)> {
    let mut files: Vec<PathBuf> = fs::read_dir(fixtures().join("meanings")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: &PathBuf| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    files.iter().map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), read(path))).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Storages at entry, filled from what each argument held.
fn storages(case: &Case, layout: &Layout) -> Vec<Vec<u8>> {
    let mut storages: Vec<Vec<u8>> = layout.storages.iter().map(|storage| vec![0; storage.bytes]).collect();
    for (argument, place) in case.meaning.arguments.iter().zip(&layout.arguments) {
        if let (ArgumentPlace::Pointer { storage, offset_bytes, .. }, Some(held)) = (place, case.inputs.get(&argument.name)) {
            let held = bytes(held);
            let room = storages[*storage].len() - offset_bytes;
            let length = held.len().min(room);
            storages[*storage][*offset_bytes..offset_bytes + length].copy_from_slice(&held[..length]);
        }
    }
    storages
}

fn run(case: &Case, meaning: &Meaning, rounding: Rounding) -> BTreeMap<String, (Values, Vec<bool>)> {
    let truth = Truth::compile(meaning).unwrap();
    let storages = storages(case, truth.layout());
    let inputs: Vec<&[u8]> = storages.iter().map(Vec::as_slice).collect();
    let outputs = truth.run(&inputs, rounding).unwrap();
    // Names are those of the case, also where `meaning` is a renamed copy.
    outputs.into_iter().map(|output| (case.meaning.arguments[output.argument].name.clone(), (output.values, output.written))).collect()
}

/// Distance relative to the larger of one and the value; zero where both are the same NaN or infinity.
fn distance(found: f64, expected: f64) -> f64 {
    if found == expected || (found.is_nan() && expected.is_nan()) {
        return 0.0;
    }
    let distance = (found - expected).abs() / expected.abs().max(1.0);
    if distance.is_nan() { f64::INFINITY } else { distance }
}

/// Greatest distance over the written elements, and how many there are.
fn compare(found: &Values, written: &[bool], expected: &[u8]) -> (f64, usize) {
    let words: Vec<[u8; 8]> = expected.as_chunks().0.to_vec();
    let count = written.iter().filter(|written| **written).count();
    let worst = |distance: &dyn Fn(usize) -> f64| (0..written.len()).filter(|at| written[*at]).map(distance).fold(0.0, f64::max);
    let exact = |same: bool| if same { 0.0 } else { f64::INFINITY };
    let worst = match found {
        Values::Float(values) => worst(&|at| distance(values[at], f64::from_le_bytes(words[at]))),
        Values::Int(values) => worst(&|at| exact(values[at] == i64::from_le_bytes(words[at]))),
        Values::Bool(values) => worst(&|at| exact(values[at] == (expected[at] != 0))),
    };
    (worst, count)
}

#[test]
fn generated_kernels_agree_with_torch_in_float64() {
    let mut outputs = 0;
    for (name, kernels) in cases() {
        for case in &kernels {
            let found = run(case, &case.meaning, Rounding::None);
            for (argument, expected) in &case.outputs {
                let (values, written) = &found[argument];
                let (worst, count) = compare(values, written, &bytes(expected));
                assert!(worst <= 1e-12, "{name}, {}, {argument}: {worst:e}", case.meaning.kernel);
                assert!(count > 0, "{name}, {argument}: nothing written");
                outputs += 1;
            }
        }
    }
    assert!(outputs >= 70, "only {outputs} outputs were compared");
}

/// One element as the kernel left it.
fn element(bytes: &[u8], dtype: Dtype, at: usize) -> f64 {
    let word = &bytes[at * dtype.size_bytes()..];
    match dtype {
        Dtype::Float64 => f64::from_le_bytes(word[..8].try_into().unwrap()),
        Dtype::Float32 => f32::from_le_bytes(word[..4].try_into().unwrap()).into(),
        Dtype::Float16 => half::f16::from_le_bytes(word[..2].try_into().unwrap()).into(),
        Dtype::Bfloat16 => half::bf16::from_le_bytes(word[..2].try_into().unwrap()).into(),
        Dtype::Int64 => i64::from_le_bytes(word[..8].try_into().unwrap()) as f64,
        Dtype::Int32 => i32::from_le_bytes(word[..4].try_into().unwrap()).into(),
        Dtype::Int16 => i16::from_le_bytes(word[..2].try_into().unwrap()).into(),
        Dtype::Int8 => i8::from_le_bytes([word[0]]).into(),
        Dtype::Uint8 | Dtype::Bool => word[0].into(),
    }
}

/// Greatest distance of what the compiler's own kernel left in `argument` from the truth; and the limit for its type.
fn real_distance(case: &Case, argument: &str, (values, written): &(Values, Vec<bool>)) -> (f64, f64) {
    let layout = Layout::of(&case.meaning).unwrap();
    let position = case.meaning.arguments.iter().position(|a| a.name == argument).unwrap();
    let ArgumentPlace::Pointer { dtype, .. } = layout.arguments[position] else { panic!("{argument} is no pointer") };
    let real = bytes(&case.real[argument]);
    let truth = |at: usize| match values {
        Values::Float(values) => values[at],
        Values::Int(values) => values[at] as f64,
        Values::Bool(values) => values[at].into(),
    };
    let far = (0..written.len()).filter(|at| written[*at]).map(|at| distance(element(&real, dtype, at), truth(at)));
    (far.fold(0.0, f64::max), if dtype.is_float() { 2e-6_f64.max(dtype.unit_roundoff()) } else { 0.0 })
}

/// Every output, those that only other kernels read included, and the marks of what is written.
#[test]
fn the_compilers_own_kernels_lie_near_the_truth() {
    let mut outputs = 0;
    for (name, kernels) in cases() {
        for case in &kernels {
            let found = run(case, &case.meaning, Rounding::ArgumentStores);
            for argument in case.real.keys() {
                assert!(found[argument].1.contains(&true), "{name}, {argument}: nothing written");
                let (far, limit) = real_distance(case, argument, &found[argument]);
                assert!(far <= limit, "{name}, {}, {argument}: {far:e}", case.meaning.kernel);
                outputs += 1;
            }
        }
    }
    assert!(outputs >= 100, "only {outputs} outputs were compared");
}

#[test]
fn a_renamed_copy_means_the_same() {
    for (name, kernels) in cases() {
        for case in &kernels {
            let renamed = canonical(&case.meaning);
            assert_eq!(fingerprint(&renamed), fingerprint(&case.meaning), "{name}");
            let (found, again) = (run(case, &case.meaning, Rounding::None), run(case, &renamed, Rounding::None));
            // Debug text compares NaN with NaN.
            assert_eq!(format!("{found:?}"), format!("{again:?}"), "{name}");
        }
    }
}

#[test]
fn rounding_matters_only_where_the_kernel_reads_what_it_rounded() {
    let mut rounding = Vec::new();
    for (name, kernels) in cases() {
        for case in &kernels {
            let (plain, rounded) = (run(case, &case.meaning, Rounding::None), run(case, &case.meaning, Rounding::ArgumentStores));
            if format!("{plain:?}") != format!("{rounded:?}") {
                assert!(Truth::compile(&case.meaning).unwrap().rounds(), "{name}");
                rounding.push(name.clone());
            }
        }
    }
    assert_eq!(rounding, ["reread_bf16"]);
    // C++ reads the rounded value: only the truth that rounds too is near.
    let (_, kernels) = cases().into_iter().find(|(name, _)| name == "reread_bf16").unwrap();
    let case = &kernels[0];
    let farthest = |rounding| {
        let found = run(case, &case.meaning, rounding);
        case.real.keys().map(|argument| real_distance(case, argument, &found[argument]).0).fold(0.0, f64::max)
    };
    let (plain, rounded) = (farthest(Rounding::None), farthest(Rounding::ArgumentStores));
    assert!(rounded <= Dtype::Bfloat16.unit_roundoff() && plain > 2.0 * rounded, "{plain:e} {rounded:e}");
}

/// Whether two runs differ in what is written or by more than rounding.
fn differs(a: &BTreeMap<String, (Values, Vec<bool>)>, b: &BTreeMap<String, (Values, Vec<bool>)>) -> bool {
    a.iter().zip(b).any(|((_, (a, in_a)), (_, (b, in_b)))| {
        let far = |at: usize| match (a, b) {
            (Values::Float(a), Values::Float(b)) => distance(a[at], b[at]) > 1e-9,
            (Values::Int(a), Values::Int(b)) => a[at] != b[at],
            (Values::Bool(a), Values::Bool(b)) => a[at] != b[at],
            _ => true,
        };
        in_a != in_b || (0..in_a.len()).any(|at| in_a[at] && far(at))
    })
}

/// What does not move is equivalent on these inputs: the order within a sum, a maximum that one element less does not change,
/// bounds that no index reaches (most of them in pooling and interpolation).
#[test]
fn nearly_every_mutant_moves_the_truth() {
    let (mut moved, mut still) = (0, Vec::new());
    for (name, kernels) in cases() {
        for case in &kernels {
            let own = run(case, &case.meaning, Rounding::None);
            let storages = storages(case, &Layout::of(&case.meaning).unwrap());
            let inputs: Vec<&[u8]> = storages.iter().map(Vec::as_slice).collect();
            for mutant in mutants(&case.meaning) {
                // An access that leaves its buffer is a mutant caught.
                let run = Truth::compile(&mutant.meaning).ok().and_then(|truth| truth.run(&inputs, Rounding::None).ok());
                let found = run.map(|outputs| {
                    let name = |argument: usize| case.meaning.arguments[argument].name.clone();
                    outputs.into_iter().map(|o| (name(o.argument), (o.values, o.written))).collect::<BTreeMap<_, _>>()
                });
                match found {
                    Some(found) if !differs(&own, &found) => still.push(format!("{name}: {}", mutant.description)),
                    _ => moved += 1,
                }
            }
        }
    }
    let share = moved as f64 / (moved + still.len()) as f64;
    println!("{moved} moved, {} did not ({:.1} % moved):\n{}", still.len(), 100.0 * share, still.join("\n"));
    assert!(share > 0.85, "{share}");
}

/// Runs `function` on one element of each argument.
fn apply(function: &str, args: &[Scalar], expected: Scalar) -> f64 {
    let dtype = |value: &Scalar| if matches!(value, Scalar::Int(_)) { "int64" } else { "float64" };
    let condition = |position: usize| function == "where" && position == 0;
    let is_predicate = matches!(
        function,
        "eq" | "ne"
            | "lt"
            | "gt"
            | "le"
            | "ge"
            | "isnan"
            | "isinf"
            | "signbit"
            | "logical_not"
            | "logical_and"
            | "logical_or"
            | "logical_xor"
    );
    let out = if is_predicate { "bool" } else { dtype(&args[args.len() - 1]) };
    let buffer = |dtype: &str| serde_json::json!({"dtype": dtype, "size": ["1"], "stride": ["1"]});
    let mut buffers = BTreeMap::from([("out".to_owned(), buffer(out))]);
    let mut arguments = Vec::new();
    let mut body = Vec::new();
    let mut storages: Vec<Vec<u8>> = Vec::new();
    for (position, value) in args.iter().enumerate() {
        let name = format!("in{position}");
        buffers.insert(name.clone(), buffer(if condition(position) { "bool" } else { dtype(value) }));
        arguments.push(serde_json::json!({"name": name, "type": "const void*", "role": "in", "buffers": [name]}));
        body.push(serde_json::json!({"id": position, "op": "load", "buffer": name, "index": "0"}));
        storages.push(match value {
            Scalar::Int(value) if condition(position) => vec![*value as u8],
            Scalar::Int(value) => value.to_ne_bytes().to_vec(),
            Scalar::Float(value) => value.to_ne_bytes().to_vec(),
        });
    }
    arguments.push(serde_json::json!({"name": "out", "type": "void*", "role": "out", "buffers": ["out"]}));
    let ids: Vec<usize> = (0..args.len()).collect();
    body.push(serde_json::json!({"id": 100, "op": "pointwise", "function": function, "args": ids}));
    body.push(serde_json::json!({"id": 101, "op": "store", "buffer": "out", "index": "0", "value": 100}));
    let node = serde_json::json!({"name": "op0", "iter": [], "reduce": [], "body": body});
    let meaning = serde_json::json!({"kernel": "k", "arguments": arguments, "buffers": buffers, "nodes": [node]});
    let truth = Truth::compile(&serde_json::from_value(meaning).unwrap()).unwrap();
    storages.push(vec![0; 8]);
    let inputs: Vec<&[u8]> = storages.iter().map(Vec::as_slice).collect();
    match &truth.run(&inputs, Rounding::None).unwrap()[0].values {
        Values::Float(values) => values[0],
        Values::Int(values) => {
            assert_eq!(Scalar::Int(values[0]), expected, "{function} {args:?}");
            values[0] as f64
        }
        Values::Bool(values) => values[0].into(),
    }
}

#[test]
fn functions_agree_with_mpmath_and_torch() {
    let text = fs::read_to_string(fixtures().join("functions.json")).unwrap();
    let rows: Vec<(String, Vec<Scalar>, Scalar)> = serde_json::from_str(&text).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for (function, args, expected) in &rows {
        seen.insert(function.clone());
        let (found, expected) = (apply(function, args, *expected), expected.as_f64());
        let ulps = if found == expected { 0.0 } else { (found - expected).abs() / (expected.abs() * f64::EPSILON).max(f64::from_bits(1)) };
        let same_kind = found.is_nan() == expected.is_nan() && (found.is_nan() || found.is_infinite() == expected.is_infinite());
        let same_sign = expected.is_nan() || found.is_sign_negative() == expected.is_sign_negative();
        assert!(same_kind && same_sign && (found.is_nan() || ulps <= 2.0), "{function} {args:?}: {found:e}, expected {expected:e}");
    }
    let missing: Vec<_> = kernelopt_shared::meaning::Function::ALL.iter().map(|f| f.name()).filter(|name| !seen.contains(name)).collect();
    assert!(missing.is_empty(), "no reference for {missing:?}");
}
