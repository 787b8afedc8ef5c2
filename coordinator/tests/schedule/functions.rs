//! Accuracy of the inline functions: a kernel of one function, over a dense sample of all float32 values, against double.

use std::collections::BTreeSet;
use std::process::Command;

use kernelopt_coordinator::schedule::emit::Team;
use kernelopt_coordinator::schedule::{self, Schedule};
use kernelopt_shared::meaning::Meaning;

use super::compiler::{FLAGS, compile};

/// `to[i] = function(from[i])` for `i < n`.
fn meaning(function: &str) -> Meaning {
    let buffer = |internal: bool| serde_json::json!({"dtype": "float32", "size": ["n"], "stride": ["1"], "internal": internal});
    let value = serde_json::json!({
        "kernel": function,
        "arguments": [
            {"name": "from", "type": "const float*", "role": "in", "buffers": ["x"]},
            {"name": "to", "type": "float*", "role": "out", "buffers": ["y"]},
            {"name": "ks0", "type": "const int64_t", "role": "size", "value": "n"},
        ],
        "buffers": {"x": buffer(false), "y": buffer(false)},
        "symbols": {"n": 4096},
        "nodes": [{"name": "op0", "iter": [{"var": "i", "extent": "n"}], "reduce": [], "body": [
            {"id": 0, "op": "load", "buffer": "x", "index": "i"},
            {"id": 1, "op": "pointwise", "function": function, "args": [0]},
            {"id": 2, "op": "store", "buffer": "y", "index": "i", "value": 1},
        ]}],
    });
    serde_json::from_value(value).unwrap()
}

/// Checks every 509th float32 and all special ones; `want` is the function in double, of `x`. The bounds, in ulp, are those
/// with fused multiply-adds and without.
fn check(function: &str, want: &str, bounds: [f64; 2]) {
    for (contract, ulps) in [true, false].into_iter().zip(bounds) {
        let schedule = Schedule { threads: schedule::space::Threads::One, contract, ..Schedule::default() };
        let source = schedule::source(&meaning(function), &BTreeSet::new(), &schedule, Team(Some(1))).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let library = compile(directory.path(), "kernel.so", &source, FLAGS);
        let main = include_str!("ulps.cpp").replace("WANT", want);
        let main = compile(directory.path(), "main", &main, "-O2 -std=c++17");
        let output = Command::new(main).arg(library).arg(ulps.to_string()).output().unwrap();
        assert!(output.status.success(), "{function}, contract {contract}: {}", String::from_utf8_lossy(&output.stdout));
        println!("{function}, contract {contract}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

macro_rules! functions {
    ($($name:ident: $want:literal, $fused:literal, $apart:literal;)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name), $want, [$fused, $apart]);
        })*
    };
}

functions! {
    exp: "std::exp(x)", 0.9, 1.2;
    log: "std::log(x)", 0.95, 0.95;
    erf: "std::erf(x)", 1.1, 1.3;
    tanh: "std::tanh(x)", 1.4, 1.4;
    sigmoid: "1 / (1 + std::exp(-x))", 2.2, 2.5;
    expm1: "std::expm1(x)", 1.4, 1.5;
    log1p: "std::log1p(x)", 1.5, 1.5;
}
