//! Every captured file: counts against an independent counter, round trips, and what people see.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kernelopt_coordinator::inductor::dataflow::{Dataflow, Later};
use kernelopt_coordinator::inductor::{ModelFile, Replacements, StitchError};
use kernelopt_coordinator::inspect::Inspection;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/captures")
}

/// Path relative to the captures, and text.
fn captures() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![root()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "py") {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    assert!(found.len() >= 30, "{} captures", found.len());
    found
}

fn capture(name: &str) -> String {
    fs::read_to_string(root().join(name).join("output_code_0.py")).unwrap()
}

/// The fields of an inspection that the counter counts, in its form.
fn counted(inspection: &Value) -> Value {
    let graph = |graph: &Value| {
        let mut fields = graph.as_object().unwrap().clone();
        fields.retain(|name, _| !["graph", "kind", "vendor"].contains(&name.as_str()));
        let lines: Vec<Value> = fields["opaque"].as_array().unwrap().iter().map(|statement| statement["line"].clone()).collect();
        fields.insert("opaque".into(), lines.into());
        Value::Object(fields)
    };
    let target = |row: &Value| json!({"name": row["name"], "language": row["language"], "calls": row["calls"]});
    let graphs: Vec<Value> = inspection["graphs"].as_array().unwrap().iter().map(graph).collect();
    let kernels = inspection["targets"].as_array().unwrap().iter().filter(|row| !row["language"].is_null());
    json!({"graphs": graphs, "targets": kernels.map(target).collect::<Vec<_>>()})
}

#[test]
fn counts_are_those_of_the_independent_counter() {
    let expected: BTreeMap<String, Value> = serde_json::from_str(&fs::read_to_string(root().join("expected.json")).unwrap()).unwrap();
    let found: BTreeMap<String, Value> = captures()
        .into_iter()
        .map(|(name, text)| {
            let inspection = Inspection::of_text(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            (name, counted(&serde_json::to_value(inspection).unwrap()))
        })
        .collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, counts) in &found {
        assert_eq!(counts, &expected[name], "{name}");
    }
}

#[test]
fn an_untouched_file_is_written_back_byte_for_byte() {
    for (name, text) in captures() {
        let file = ModelFile::parse(&text).unwrap();
        assert!(file.write(&Replacements::new()).unwrap() == text, "{name}");
        // A replacement by the same source is no replacement.
        let same: Replacements =
            file.kernels().iter().filter_map(|kernel| Some((kernel.name.clone(), kernel.source()?.text.clone()))).collect();
        assert!(file.write(&same).unwrap() == text, "{name}");
    }
}

#[test]
fn a_replaced_source_reads_back_and_nothing_else_changes() {
    for (name, text) in captures() {
        let file = ModelFile::parse(&text).unwrap();
        for kernel in file.kernels().iter().filter(|kernel| kernel.source().is_some()) {
            let source = format!("{}// '''quoted''' \"\"\"twice\"\"\" \\n é\\", kernel.source().unwrap().text);
            let written = file.write(&Replacements::from([(kernel.name.clone(), source.clone())])).unwrap();
            let again = ModelFile::parse(&written).unwrap();
            for (before, after) in file.kernels().iter().zip(again.kernels()) {
                let expected = if before.name == kernel.name { Some(&source) } else { before.source().map(|s| &s.text) };
                assert_eq!(after.source().map(|s| &s.text), expected, "{name}: {}", before.name);
            }
            assert_eq!(again.graphs(), file.graphs(), "{name}");
        }
    }
}

#[test]
fn unknown_and_foreign_kernels_are_not_replaced() {
    let file = ModelFile::parse(&capture("cuda-more/multi")).unwrap();
    let replace = |kernel: &str| file.write(&Replacements::from([(kernel.to_owned(), "x".to_owned())]));
    assert_eq!(replace("nobody"), Err(StitchError::NoSuchKernel { kernel: "nobody".into() }));
    assert!(matches!(replace("multi_kernel_0"), Err(StitchError::NotReplaceable { .. })));
}

/// Names of the scratch arguments of every kernel that has some.
fn scratch(name: &str) -> Vec<(String, Vec<String>)> {
    let file = ModelFile::parse(&capture(name)).unwrap();
    let flow = Dataflow::of(&file);
    let name_of = |kernel: &str, position: usize| {
        let definition = file.kernels().iter().find(|k| k.name == kernel).unwrap();
        definition.source().unwrap().parameters[position].name.clone()
    };
    let kernels = flow.kernels.iter().filter(|kernel| !kernel.scratch.is_empty());
    kernels.map(|k| (k.name.clone(), k.scratch.iter().map(|position| name_of(&k.name, *position)).collect())).collect()
}

#[test]
fn scratch_outputs_of_real_models() {
    let own = |pairs: &[(&str, &[&str])]| -> Vec<(String, Vec<String>)> {
        pairs.iter().map(|(kernel, names)| ((*kernel).to_owned(), names.iter().map(|n| (*n).to_owned()).collect())).collect()
    };
    // Mean and variance of a layer norm, maximum and sum of a softmax: allocated, passed, freed.
    let mlp = own(&[("cpp_fused_native_layer_norm_0", &["out_ptr0", "out_ptr1"]), ("cpp_fused__softmax_2", &["out_ptr0", "out_ptr1"])]);
    assert_eq!(scratch("cpu/mlp_static"), mlp);
    assert_eq!(scratch("cpu/mlp_dynamic"), mlp);
    // The mean square of the first norm lies in memory that a later kernel takes over and fills anew.
    let block = own(&[
        ("cpp_fused_add_mean_mul_pow_rsqrt_0", &["out_ptr0"]),
        ("cpp_fused__softmax__unsafe_view_amax_clone_mul_permute_select_sub_view_2", &["out_ptr0", "out_ptr1"]),
        ("cpp_fused__unsafe_view_add_mean_mul_pow_rsqrt_4", &["out_ptr0"]),
    ]);
    assert_eq!(scratch("cpu/block_static"), block);
    // Running statistics are inputs that change in place: the caller sees them.
    let file = ModelFile::parse(&capture("cpu/conv_train")).unwrap();
    let flow = Dataflow::of(&file);
    let launch = flow.launches.iter().find(|launch| launch.kernel.ends_with("relu_1")).unwrap();
    let seen: Vec<(&str, Later)> = launch.arguments[5..].iter().map(|a| (a.buffers[0].as_str(), a.later)).collect();
    assert_eq!(seen[0], ("buf4", Later::Read { line: 543 }));
    assert_eq!((seen[1], seen[2]), (("buf5", Later::Never), ("primals_5", Later::Outside)));
    for name in ["cuda-nogpu/mempl", "cuda-nogpu/scatter", "cuda-nogpu/many", "cpu-more/copies", "cpu-more/random", "cuda-more/partition"] {
        assert_eq!(scratch(name), [], "{name}");
    }
}

#[test]
fn what_people_see() {
    for name in ["cpu/block_static", "cpu-more/control", "cuda-more/multi", "cuda-nogpu/user", "cpu-more/cpp_wrapper"] {
        let table = Inspection::of_text(&capture(name)).unwrap().table();
        insta::assert_snapshot!(name.replace('/', "_"), table);
    }
}

#[test]
fn the_json_is_the_contract() {
    let inspection = Inspection::of_text(&capture("cpu/mlp_dynamic")).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&inspection).unwrap());
}
