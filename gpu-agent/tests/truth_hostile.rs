//! The truth of meanings that were tampered with: an error or a result, never a panic.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use kernelopt_gpu_agent::truth::{Rounding, Truth};
use kernelopt_shared::meaning::Meaning;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Every place in a JSON value that holds a number, a text or a truth value.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().enumerate().for_each(|(k, item)| places(item, &format!("{at}/{k}"), found)),
        Value::Object(fields) => fields.iter().for_each(|(key, item)| places(item, &format!("{at}/{key}"), found)),
        _ => found.push(at.to_owned()),
    }
}

/// What kind of thing is at a place: the last name in its path that is not a number.
fn key(place: &str) -> &str {
    place.rsplit('/').find(|part| part.parse::<usize>().is_err()).unwrap_or("")
}

fn replacement() -> impl Strategy<Value = Value> {
    let texts = [
        "0",
        "1",
        "7",
        "p0",
        "3 - p0",
        "p0*p0",
        "FloorDiv(p0, 3)",
        "2**8*p1",
        "4611686018427387904*p0",
        "ModularIndexing(p0, 3, 5)",
        "float16",
        "int8",
        "bool",
        "uint8",
    ];
    let functions = ["pow", "floordiv", "remainder", "bitwise_left_shift", "where", "isnan", "truediv", "neg", "maximum"];
    prop_oneof![
        prop::sample::select(vec![0i64, 1, -1, 2, 7, i64::MAX, i64::MIN]).prop_map(|n| json!(n)),
        prop::sample::select(texts.to_vec()).prop_map(|text| json!(text)),
        prop::sample::select(functions.to_vec()).prop_map(|text| json!(text)),
        Just(json!(true)),
    ]
}

/// Meanings of the fixtures.
fn meanings() -> Vec<Value> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/meanings");
    let mut found: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    let read = |path: &std::path::PathBuf| serde_json::from_str::<Value>(&std::fs::read_to_string(path).unwrap()).unwrap();
    found
        .iter()
        .flat_map(|path| read(path).as_array().unwrap().iter().map(|kernel| kernel["meaning"].clone()).collect::<Vec<_>>())
        .collect()
}

#[test]
fn hostile_meanings_end_in_a_truth_or_an_error() {
    let meanings = meanings();
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), replacement(), 0..4), 1..4);
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) });
    let mut ran = std::cell::Cell::new(0);
    runner
        .run(&(any::<prop::sample::Index>(), changes), |(fixture, changes)| {
            let mut value = meanings[fixture.index(meanings.len())].clone();
            for (to, from, new, choice) in changes {
                let mut found = Vec::new();
                places(&value, "", &mut found);
                let to = &found[to.index(found.len())];
                // Most changes put one index, buffer, type, ... in the place of another, so that much of it still decodes.
                let alike: Vec<&String> = found.iter().filter(|place| key(place) == key(to)).collect();
                let new = if choice > 0 { value.pointer(alike[from.index(alike.len())]).cloned().unwrap() } else { new };
                *value.pointer_mut(to).unwrap() = new;
            }
            let Ok(meaning) = serde_json::from_value::<Meaning>(value) else { return Ok(()) };
            let Ok(truth) = Truth::compile(&meaning) else { return Ok(()) };
            let bytes: usize = truth.layout().storages.iter().map(|storage| storage.bytes).sum();
            let loops = meaning
                .nodes
                .iter()
                .map(|node| node.iter.iter().chain(&node.reduce).filter_map(|a| meaning.size(&a.extent)).product::<i64>());
            if bytes < 1 << 20 && loops.sum::<i64>() < 1 << 20 {
                let storages: Vec<Vec<u8>> = truth.layout().storages.iter().map(|storage| vec![0xa5; storage.bytes]).collect();
                let inputs: Vec<&[u8]> = storages.iter().map(Vec::as_slice).collect();
                let _ = truth.run(&inputs, Rounding::ArgumentStores);
                ran.set(ran.get() + 1);
            }
            Ok(())
        })
        .unwrap();
    assert!(*ran.get_mut() > 300, "only {} changed meanings ran", ran.get());
}
