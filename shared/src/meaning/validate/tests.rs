use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::fingerprint::{canonical, fingerprint};
use super::super::mutate::mutants;
use super::super::storage::reads_entry_value;
use super::super::traffic::traffic;
use super::super::{fixtures, storage};
use super::*;

/// `out[i] = exp(in[i])`, with one part replaced.
fn changed(pointer: &str, value: Value) -> Result<(), String> {
    let mut meaning = json!({
        "kernel": "k",
        "arguments": [
            {"name": "in_ptr0", "type": "const float*", "role": "in", "buffers": ["a"]},
            {"name": "out_ptr0", "type": "float*", "role": "out", "buffers": ["b"]},
            {"name": "ks0", "type": "const int64_t", "role": "size", "value": "s0"}
        ],
        "buffers": {
            "a": {"dtype": "float32", "size": ["s0"], "stride": ["1"]},
            "b": {"dtype": "float32", "size": ["s0"], "stride": ["1"]},
            "t": {"dtype": "float32", "size": ["s0"], "stride": ["1"], "internal": true}
        },
        "symbols": {"s0": 8},
        "nodes": [{
            "name": "op0",
            "iter": [{"var": "i", "extent": "s0"}],
            "reduce": [{"var": "r", "extent": "4"}],
            "body": [
                {"id": 0, "op": "load", "buffer": "a", "index": "i"},
                {"id": 1, "op": "pointwise", "function": "exp", "args": [0]},
                {"id": 2, "op": "reduction", "kind": "welford_reduce", "dtype": "float32", "values": [1]},
                {"id": 3, "op": "item", "value": 2, "position": 0},
                {"id": 4, "op": "store", "buffer": "b", "index": "i", "value": 3},
                {"id": 5, "op": "masked", "mask": 1, "other": 0.0, "body": [
                    {"id": 6, "op": "load", "buffer": "a", "index": "r"}
                ], "result": 6}
            ]
        }]
    });
    *meaning.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
    let meaning: Meaning = serde_json::from_value(meaning).map_err(|e| e.to_string())?;
    meaning.validate().map_err(|e| e.to_string())
}

#[test]
fn a_sound_meaning_passes() {
    assert_eq!(changed("/kernel", json!("k")), Ok(()));
    for (name, meaning) in fixtures::all() {
        assert_eq!(meaning.validate(), Ok(()), "{name}");
    }
}

#[test]
fn each_fault_is_found_and_named() {
    let body = "/nodes/0/body";
    let cases = [
        ("/arguments/1/buffers", json!(["nowhere"]), "nowhere"),
        ("/arguments/1/buffers", json!([]), "a pointer without a buffer"),
        ("/arguments/1/buffers", json!(["t"]), "internal"),
        ("/arguments/1/name", json!("in_ptr0"), "two arguments"),
        ("/arguments/1/role", json!("in"), "no argument points at buffer b"),
        ("/arguments/2/value", Value::Null, "a size without a value"),
        ("/arguments/2/role", json!("in"), "a pointer without a buffer"),
        ("/arguments/0", json!({"name": "x", "type": "float*", "role": "in", "buffers": ["a"], "value": "3"}), "a size has a value"),
        ("/arguments/2/value", json!("s1"), "not known"),
        ("/buffers/a/size", json!(["s1"]), "size or stride"),
        ("/buffers/a/size", json!(["-4"]), "size or stride"),
        ("/buffers/a/stride", json!([]), "size or stride"),
        ("/buffers/a/size", json!(["9223372036854775807"]), "size or stride"),
        ("/buffers/a", json!({"dtype": "float32", "size": ["8"], "stride": ["1"], "mutates": "a"}), "in a circle"),
        ("/buffers/a", json!({"dtype": "float32", "size": ["8"], "stride": ["1"], "mutates": "z"}), "z is not described"),
        ("/buffers/a", json!({"dtype": "int8", "size": ["8"], "stride": ["1"], "mutates": "b"}), "inside b"),
        ("/buffers/a", json!({"dtype": "float32", "size": ["8"], "stride": ["1"], "alias": {"of": "b", "offset": "-1"}}), "alias offset"),
        ("/symbols/s0", json!(-1), "symbol s0"),
        ("/nodes/0/iter/0/extent", json!("s0 - 9"), "extent"),
        ("/nodes/0/iter/0/extent", json!("1099511627776"), "2^40"),
        ("/nodes/0/iter/0/var", json!("r"), "named twice"),
        ("/nodes/0/iter/0/var", json!("s0"), "named twice"),
        ("/nodes/0/reduce", json!([]), "no reduction loop"),
        (&format!("{body}/0/buffer"), json!("nowhere"), "nowhere"),
        (&format!("{body}/0/buffer"), json!("t"), ""),
        (&format!("{body}/0/index"), json!("j"), "j is unknown"),
        (&format!("{body}/1/args"), json!([]), "exp of 0"),
        (&format!("{body}/1/args"), json!([3]), "value 3 is not made"),
        (&format!("{body}/1/args"), json!([1]), "value 1 is not made"),
        (&format!("{body}/1/id"), json!(0), "number is taken"),
        (&format!("{body}/2/values"), json!([1, 1]), "of 2 values"),
        (&format!("{body}/3/position"), json!(3), "no result 3"),
        (&format!("{body}/4/value"), json!(2), "not one value"),
        (&format!("{body}/4/index"), json!("r"), "mixes a reduction's result"),
        (&format!("{body}/5/mask"), json!(6), "value 6 is not made"),
        (&format!("{body}/5/mask"), json!(3), "mixes a reduction's result"),
        (&format!("{body}/5/body/0"), json!({"id": 6, "op": "store", "buffer": "b", "index": "i", "value": 1}), "inside a masked block"),
        (&format!("{body}/0"), json!({"id": 0, "op": "bitcast", "value": 0, "from": "int8", "dtype": "int16"}), "bits of int8"),
    ];
    for (pointer, value, expected) in cases {
        match changed(pointer, value.clone()) {
            Err(found) => assert!(!expected.is_empty() && found.contains(expected), "{pointer} {value}: {found}"),
            Ok(()) => assert!(expected.is_empty(), "{pointer} {value} passed"),
        }
    }
}

#[test]
fn what_a_masked_block_makes_is_not_seen_outside() {
    let after = json!([
        {"id": 0, "op": "load", "buffer": "a", "index": "i"},
        {"id": 1, "op": "masked", "mask": 0, "other": 0.0, "body": [{"id": 2, "op": "load", "buffer": "a", "index": "i"}], "result": 2},
        {"id": 3, "op": "store", "buffer": "b", "index": "i", "value": 2}
    ]);
    assert!(changed("/nodes/0/body", after).unwrap_err().contains("value 2 is not made"));
}

#[test]
fn nesting_and_counts_are_bounded() {
    let mut inner = json!([{"id": 0, "op": "constant", "value": 1, "dtype": "bool"}]);
    for id in 1..40 {
        inner = json!([{"id": 100 + id, "op": "constant", "value": 1, "dtype": "bool"},
                       {"id": id, "op": "masked", "mask": 100 + id, "other": 0, "body": inner, "result": id - 1}]);
    }
    assert!(changed("/nodes/0/body", inner).unwrap_err().contains("nested too deeply"));
    let many: Vec<Value> = (0..20_000).map(|id| json!({"id": id, "op": "constant", "value": 1, "dtype": "bool"})).collect();
    assert!(changed("/nodes/0/body", json!(many)).unwrap_err().contains("statements"));
    let axes: Vec<Value> = (0..40).map(|k| json!({"var": format!("i{k}"), "extent": "1"})).collect();
    assert!(changed("/nodes/0/iter", json!(axes)).unwrap_err().contains("loops"));
}

/// Every place in a JSON value.
fn places(value: &Value, at: &mut String, found: &mut Vec<String>) {
    found.push(at.clone());
    let length = at.len();
    let mut enter = |key: String, inner: &Value| {
        at.push('/');
        at.push_str(&key.replace('~', "~0").replace('/', "~1"));
        places(inner, at, found);
        at.truncate(length);
    };
    match value {
        Value::Array(items) => items.iter().enumerate().for_each(|(k, item)| enter(k.to_string(), item)),
        Value::Object(fields) => fields.iter().for_each(|(key, item)| enter(key.clone(), item)),
        _ => {}
    }
}

fn replacement() -> impl Strategy<Value = Value> {
    prop_oneof![
        prop::sample::select(vec![0i64, 1, -1, 2, 7, 1 << 20, i64::MAX, i64::MIN]).prop_map(|n| json!(n)),
        prop::sample::select(vec![
            "",
            "0",
            "1",
            "p0",
            "-p0",
            "p0//p0",
            "2**8*p1",
            "9223372036854775807*p0",
            "ModularIndexing(p0, 3, 5)",
            "buf0",
            "float16",
            "in"
        ])
        .prop_map(|text| json!(text)),
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!(true)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn hostile_meanings_are_refused_or_handled(
        fixture in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), replacement(), any::<bool>()), 1..4),
    ) {
        let mut values = fixtures::values();
        let mut value = values.swap_remove(fixture.index(values.len())).1;
        for (to, from, new, copy) in changes {
            let mut found = Vec::new();
            places(&value, &mut String::new(), &mut found);
            let new = if copy { value.pointer(&found[from.index(found.len())]).cloned().unwrap() } else { new };
            *value.pointer_mut(&found[to.index(found.len())]).unwrap() = new;
        }
        if let Ok(meaning) = serde_json::from_value::<Meaning>(value) {
            let _ = canonical(&meaning);
            let _ = traffic(&meaning, &BTreeSet::new());
            if meaning.validate().is_ok() {
                let layout = storage::Layout::of(&meaning).unwrap();
                prop_assert_eq!(reads_entry_value(&meaning, &layout).len(), meaning.arguments.len());
                let renamed = canonical(&meaning);
                prop_assert_eq!(renamed.validate().map_err(|e| e.detail), Ok(()));
                prop_assert_eq!(fingerprint(&renamed), fingerprint(&meaning));
                prop_assert!(mutants(&meaning).all(|mutant| mutant.meaning != meaning));
            }
        }
    }
}

#[test]
fn a_text_stands_in_for_loops_and_never_beside_them() {
    let program = json!("0123456789abcdef0123456789abcdef");
    let number = json!({"name": "eps", "type": "fp32", "role": "number", "number": 1e-5});
    let authors = |change: &dyn Fn(&mut Value)| {
        let mut meaning = json!({
            "kernel": "k",
            "arguments": [
                {"name": "x", "type": "*fp32", "role": "inout", "buffers": ["x", "x_after"]},
                {"name": "y", "type": "*fp32", "role": "out", "buffers": ["y"]},
                number
            ],
            "buffers": {
                "x": {"dtype": "float32", "size": ["6", "7"], "stride": ["7", "1"]},
                "x_after": {"dtype": "float32", "size": ["6", "7"], "stride": ["7", "1"], "mutates": "x"},
                "y": {"dtype": "float32", "size": ["6"], "stride": ["1"]}
            },
            "nodes": [],
            "program": program
        });
        change(&mut meaning);
        let meaning: Meaning = serde_json::from_value(meaning).map_err(|e| e.to_string())?;
        meaning.validate().map_err(|e| e.to_string()).map(|()| meaning)
    };
    let meaning = authors(&|_| {}).unwrap();
    let layout = storage::Layout::of(&meaning).unwrap();
    assert_eq!(layout.storages.iter().map(|s| s.bytes).collect::<Vec<_>>(), [168, 24]);
    assert_eq!(reads_entry_value(&meaning, &layout), [true, false, false]);
    assert_eq!((meaning.longest_reduction(), traffic(&meaning, &BTreeSet::new()).exact), (7, false));
    for (pointer, value, reason) in [
        ("/arguments/2/number", Value::Null, "a number without a value"),
        ("/arguments/0/number", json!(1.0), "a number has a finite value"),
        ("/arguments/2/buffers", json!(["y"]), "a value with a buffer"),
        ("/program", Value::Null, "a number, which no kernel of the compiler takes"),
        ("/program", json!("text"), "not a digest"),
        ("/nodes", json!([{"name": "op0", "iter": [], "reduce": [], "body": []}]), "loops beside a text"),
    ] {
        let error = authors(&|meaning| match meaning.pointer_mut(pointer) {
            Some(place) => *place = value.clone(),
            None => {
                let (parent, key) = pointer.rsplit_once('/').unwrap();
                meaning.pointer_mut(parent).unwrap()[key] = value.clone();
            }
        });
        let error = error.map(|_| ()).unwrap_err();
        assert!(error.contains(reason), "{pointer}: {error}");
    }
}
