//! The truth on shapes around its own seams (lanes, blocks, workers), against plain loops; and what it refuses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use kernelopt_gpu_agent::truth::{Rounding, Truth, TruthError, Unsupported, Values};
use kernelopt_shared::meaning::Meaning;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A kernel of `in_ptr0: rows x columns` doubles to `out_ptr0` of `outputs` elements of type `dtype`.
fn kernel(rows: usize, columns: usize, outputs: usize, dtype: &str, nodes: Value) -> Meaning {
    let meaning = json!({
        "kernel": "k",
        "arguments": [
            {"name": "in_ptr0", "type": "const double*", "role": "in", "buffers": ["x"]},
            {"name": "out_ptr0", "type": "void*", "role": "out", "buffers": ["y"]}
        ],
        "buffers": {
            "x": {"dtype": "float64", "size": [rows.to_string(), columns.to_string()], "stride": [columns.to_string(), "1"]},
            "y": {"dtype": dtype, "size": [outputs.to_string()], "stride": ["1"]},
            "t": {"dtype": "float64", "size": [(rows * columns).to_string()], "stride": ["1"], "internal": true},
            "u": {"dtype": "float64", "size": [rows.max(columns).to_string()], "stride": ["1"], "internal": true}
        },
        "nodes": nodes
    });
    serde_json::from_value(meaning).unwrap()
}

fn node(iter: &[(&str, usize)], reduce: &[(&str, usize)], body: Value) -> Value {
    let axes =
        |axes: &[(&str, usize)]| axes.iter().map(|(var, extent)| json!({"var": var, "extent": extent.to_string()})).collect::<Vec<_>>();
    json!({"name": "op", "iter": axes(iter), "reduce": axes(reduce), "body": body})
}

/// `y[o] = reduce(x[index])`.
fn reduction(kind: &str, dtype: &str, iter: (&str, usize), reduce: (&str, usize), index: &str) -> Value {
    node(
        &[iter],
        &[reduce],
        json!([
            {"id": 0, "op": "load", "buffer": "x", "index": index},
            {"id": 1, "op": "reduction", "kind": kind, "dtype": dtype, "values": [0]},
            {"id": 2, "op": "item", "value": 1, "position": usize::from(kind == "welford_reduce")},
            {"id": 3, "op": "store", "buffer": "y", "index": iter.0, "value": 2}
        ]),
    )
}

/// Multiples of 1/1024 between -1 and 1, so that plain sums of them are exact.
fn data(count: usize) -> Vec<f64> {
    (0..count).map(|k| ((k * 2_654_435_761) % 2003) as f64 / 1024.0 - 1001.0 / 1024.0).collect()
}

fn run(meaning: &Meaning, x: &[f64]) -> Result<(Values, Vec<bool>), TruthError> {
    let truth = Truth::compile(meaning).unwrap();
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let out = vec![0u8; truth.layout().storages[1].bytes];
    let output = truth.run(&[&bytes, &out], Rounding::None)?.remove(0);
    Ok((output.values, output.written))
}

fn floats(meaning: &Meaning, x: &[f64]) -> Vec<f64> {
    let (values, written) = run(meaning, x).unwrap();
    assert!(written.iter().all(|written| *written));
    match values {
        Values::Float(values) => values,
        Values::Int(values) => values.iter().map(|v| *v as f64).collect(),
        Values::Bool(values) => values.iter().map(|v| f64::from(u8::from(*v))).collect(),
    }
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= 1e-12 * expected.abs().max(1.0), "[{at}] {found} {expected}");
    }
}

/// Rows and columns around lanes (1024), few lanes (64), short reductions (16), and large enough for two workers.
const SHAPES: [(usize, usize); 16] = [
    (1, 1),
    (1, 63),
    (1, 1023),
    (3, 1024),
    (3, 1025),
    (5, 2049),
    (70, 1),
    (1025, 5),
    (2050, 15),
    (1100, 17),
    (64, 64),
    (65, 300),
    (300, 65),
    (1500, 700),
    (700, 1500),
    (2, 600_000),
];

#[test]
fn sums_of_rows_and_columns() {
    for (rows, columns) in SHAPES {
        let x = data(rows * columns);
        let of_row = reduction("sum", "float64", ("i", rows), ("r", columns), &format!("{columns}*i + r"));
        let expected: Vec<f64> = x.chunks(columns).map(|row| row.iter().sum()).collect();
        close(&floats(&kernel(rows, columns, rows, "float64", json!([of_row])), &x), &expected);
        let of_column = reduction("sum", "float64", ("i", columns), ("r", rows), &format!("i + {columns}*r"));
        let expected: Vec<f64> = (0..columns).map(|j| x.iter().skip(j).step_by(columns).sum()).collect();
        close(&floats(&kernel(rows, columns, columns, "float64", json!([of_column])), &x), &expected);
    }
}

#[test]
fn positions_extremes_and_moments() {
    for (rows, columns) in SHAPES {
        // Few distinct values, so that the first of several must be found.
        let x: Vec<f64> = data(rows * columns).into_iter().map(|x| (x * 4.0).round()).collect();
        let rows_of = |kind: &str, dtype: &str| {
            let node = reduction(kind, dtype, ("i", rows), ("r", columns), &format!("{columns}*i + r"));
            floats(&kernel(rows, columns, rows, dtype, json!([node])), &x)
        };
        let per_row = |f: &dyn Fn(&[f64]) -> f64| x.chunks(columns).map(f).collect::<Vec<f64>>();
        let max = |row: &[f64]| row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        close(&rows_of("max", "float64"), &per_row(&max));
        close(&rows_of("argmax", "int64"), &per_row(&|row| row.iter().position(|x| *x == max(row)).unwrap() as f64));
        close(
            &rows_of("argmin", "int64"),
            &per_row(&|row| row.iter().position(|x| *x == -max(&row.iter().map(|x| -x).collect::<Vec<_>>())).unwrap() as f64),
        );
        let m2 = per_row(&|row| {
            let sum: f64 = row.iter().sum();
            row.iter().map(|x| x * x).sum::<f64>() - sum * sum / row.len() as f64
        });
        close(&rows_of("welford_reduce", "float64"), &m2);
    }
}

#[test]
fn softmax_through_memory() {
    for (rows, columns) in SHAPES {
        let x = data(rows * columns);
        let (row, element) = (("i", rows), format!("{columns}*i + j"));
        let max = node(
            &[row],
            &[("j", columns)],
            json!([
                {"id": 0, "op": "load", "buffer": "x", "index": element},
                {"id": 1, "op": "reduction", "kind": "max", "dtype": "float64", "values": [0]},
                {"id": 2, "op": "store", "buffer": "u", "index": "i", "value": 1}
            ]),
        );
        let exp = node(
            &[row, ("j", columns)],
            &[],
            json!([
                {"id": 0, "op": "load", "buffer": "x", "index": element},
                {"id": 1, "op": "load", "buffer": "u", "index": "i"},
                {"id": 2, "op": "pointwise", "function": "sub", "args": [0, 1]},
                {"id": 3, "op": "pointwise", "function": "exp", "args": [2]},
                {"id": 4, "op": "store", "buffer": "t", "index": element, "value": 3}
            ]),
        );
        let sum = node(
            &[row],
            &[("j", columns)],
            json!([
                {"id": 0, "op": "load", "buffer": "t", "index": element},
                {"id": 1, "op": "reduction", "kind": "sum", "dtype": "float64", "values": [0]},
                {"id": 2, "op": "store", "buffer": "u", "index": "i", "value": 1}
            ]),
        );
        let divide = node(
            &[row, ("j", columns)],
            &[],
            json!([
                {"id": 0, "op": "load", "buffer": "t", "index": element},
                {"id": 1, "op": "load", "buffer": "u", "index": "i"},
                {"id": 2, "op": "pointwise", "function": "truediv", "args": [0, 1]},
                {"id": 3, "op": "store", "buffer": "y", "index": element, "value": 2}
            ]),
        );
        let found = floats(&kernel(rows, columns, rows * columns, "float64", json!([max, exp, sum, divide])), &x);
        let expected: Vec<f64> = x
            .chunks(columns)
            .flat_map(|row| {
                let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
                row.iter().map(move |x| (x - max).exp() / sum)
            })
            .collect();
        close(&found, &expected);
    }
}

#[test]
fn transposed_and_strided_stores() {
    for (rows, columns) in SHAPES {
        let x = data(rows * columns);
        let transpose = |index: &str, to: &str| {
            json!([node(
                &[("k", rows * columns)],
                &[],
                json!([
                    {"id": 0, "op": "load", "buffer": "x", "index": index},
                    {"id": 1, "op": "store", "buffer": "y", "index": to, "value": 0}
                ])
            )])
        };
        let by_store = transpose("k", &format!("{rows}*ModularIndexing(k, 1, {columns}) + FloorDiv(k, {columns})"));
        let by_load = transpose(&format!("{columns}*ModularIndexing(k, 1, {rows}) + FloorDiv(k, {rows})"), "k");
        let expected: Vec<f64> = (0..columns).flat_map(|j| x.iter().copied().skip(j).step_by(columns)).collect();
        for nodes in [by_store, by_load] {
            close(&floats(&kernel(rows, columns, rows * columns, "float64", nodes), &x), &expected);
        }
    }
}

#[test]
fn only_what_is_stored_is_marked() {
    let every_other = node(
        &[("i", 700)],
        &[],
        json!([
            {"id": 0, "op": "load", "buffer": "x", "index": "i"},
            {"id": 1, "op": "store", "buffer": "y", "index": "2*i", "value": 0}
        ]),
    );
    let (_, written) = run(&kernel(1, 1400, 1400, "float64", json!([every_other])), &data(1400)).unwrap();
    assert!(written.iter().enumerate().all(|(at, written)| *written == (at % 2 == 0)));
}

#[test]
fn many_add_to_one_element() {
    for count in [1, 63, 1024, 5000] {
        let add = node(
            &[("i", count)],
            &[],
            json!([
                {"id": 0, "op": "constant", "value": 1, "dtype": "int64"},
                {"id": 1, "op": "store", "buffer": "y", "index": "0", "value": 0, "mode": "atomic_add"}
            ]),
        );
        let clear = node(
            &[],
            &[],
            json!([
                {"id": 0, "op": "constant", "value": 7, "dtype": "int64"},
                {"id": 1, "op": "store", "buffer": "y", "index": "0", "value": 0}
            ]),
        );
        assert_eq!(floats(&kernel(1, 1, 1, "int64", json!([clear, add])), &[0.0]), [7.0 + count as f64]);
    }
}

/// `y[i] = x[index x[i]]`, the index read from memory, perhaps under the mask `x[i] < 5`.
fn indirect(check: bool, masked: bool) -> Meaning {
    let read = json!([
        {"id": 10, "op": "indirect", "value": 1, "variable": "t0", "size": "8", "check": check, "wrap_negative": true},
        {"id": 11, "op": "load", "buffer": "x", "index": "t0"}
    ]);
    let mut body = vec![
        json!({"id": 0, "op": "load", "buffer": "x", "index": "i"}),
        json!({"id": 1, "op": "cast", "value": 0, "dtype": "int64"}),
        json!({"id": 2, "op": "constant", "value": 5, "dtype": "int64"}),
        json!({"id": 3, "op": "pointwise", "function": "lt", "args": [1, 2]}),
    ];
    if masked {
        body.push(json!({"id": 4, "op": "masked", "mask": 3, "other": -1.0, "body": read, "result": 11}));
    } else {
        body.extend(read.as_array().unwrap().clone());
    }
    body.push(json!({"id": 5, "op": "store", "buffer": "y", "index": "i", "value": if masked { 4 } else { 11 }}));
    kernel(1, 8, 8, "float64", json!([node(&[("i", 8)], &[], json!(body))]))
}

#[test]
fn indices_from_memory_wrap_and_are_checked() {
    let x = [7.0, -1.0, 0.0, 1.0, -8.0, 2.0, 3.0, 4.0];
    assert_eq!(floats(&indirect(true, false), &x), [4.0, 4.0, 7.0, -1.0, 7.0, 0.0, 1.0, -8.0]);
    let far = [0.0, 1.0, 2.0, 99.0, 0.0, 0.0, 0.0, 0.0];
    for check in [true, false] {
        let error = run(&indirect(check, false), &far).unwrap_err();
        let named = if check { "t0" } else { "x" };
        assert!(matches!(&error, TruthError::OutOfRange { what, index: 99, size: 8, .. } if what == named), "{error}");
        assert!(error.to_string().contains("index 99 is outside"), "{error}");
    }
    assert_eq!(floats(&indirect(true, true), &far), [0.0, 1.0, 2.0, -1.0, 0.0, 0.0, 0.0, 0.0], "a masked lane reads nothing");
}

#[test]
fn loads_outside_are_refused_unless_masked() {
    let load = |masked: bool| {
        let read = json!([{"id": 10, "op": "load", "buffer": "x", "index": "i + 3"}]);
        let mut body = vec![
            json!({"id": 0, "op": "index", "index": "i", "dtype": "int64"}),
            json!({"id": 1, "op": "constant", "value": 5, "dtype": "int64"}),
            json!({"id": 2, "op": "pointwise", "function": "lt", "args": [0, 1]}),
        ];
        if masked {
            body.push(json!({"id": 3, "op": "masked", "mask": 2, "other": 0.5, "body": read, "result": 10}));
        } else {
            body.extend(read.as_array().unwrap().clone());
        }
        body.push(json!({"id": 4, "op": "store", "buffer": "y", "index": "i", "value": if masked { 3 } else { 10 }}));
        kernel(1, 8, 8, "float64", json!([node(&[("i", 8)], &[], json!(body))]))
    };
    assert!(matches!(Truth::compile(&load(false)), Err(Unsupported::OutOfRange { elements: 8, .. })));
    let x = data(8);
    close(&floats(&load(true), &x), &[x[3], x[4], x[5], x[6], x[7], 0.5, 0.5, 0.5]);
}

#[test]
fn inputs_of_the_wrong_size_and_meanings_too_large() {
    let sum = reduction("sum", "float64", ("i", 2), ("r", 2), "2*i + r");
    let truth = Truth::compile(&kernel(2, 2, 2, "float64", json!([sum]))).unwrap();
    assert!(matches!(truth.run(&[&[0; 32]], Rounding::None), Err(TruthError::Inputs { found: 1, expected: 2, .. })));
    assert!(matches!(
        truth.run(&[&[0; 31], &[0; 16]], Rounding::None),
        Err(TruthError::InputSize { storage: 0, found: 31, expected: 32, .. })
    ));
    let wide = reduction("sum", "float64", ("i", 1), ("r", 1), "i + r");
    assert!(matches!(Truth::compile(&kernel(1, 1, 1 << 29, "float64", json!([wide]))), Err(Unsupported::TooLarge { .. })));
    let long = reduction("sum", "float64", ("i", 1 << 20), ("r", 1 << 20), "0");
    assert!(matches!(Truth::compile(&kernel(1, 1, 1 << 20, "float64", json!([long]))), Err(Unsupported::TooLong { .. })));
}

#[test]
fn empty_loops_store_nothing_and_empty_reductions_their_start() {
    let sum = reduction("sum", "float64", ("i", 3), ("r", 0), "i + r");
    assert_eq!(floats(&kernel(3, 1, 3, "float64", json!([sum])), &data(3)), [0.0; 3]);
    let nothing = reduction("sum", "float64", ("i", 0), ("r", 3), "i + r");
    let (_, written) = run(&kernel(3, 1, 3, "float64", json!([nothing])), &data(3)).unwrap();
    assert_eq!(written, [false; 3]);
}

/// A sum that loses everything when added in order.
#[test]
fn sums_are_compensated() {
    let mut x = vec![1.0; 3000];
    (x[0], x[2999]) = (1e17, -1e17);
    let sum = reduction("sum", "float64", ("i", 1), ("r", 3000), "r");
    assert_eq!(floats(&kernel(1, 3000, 1, "float64", json!([sum])), &x), [2998.0]);
}

fn row(kind: &str, position: usize, x: &[f64]) -> f64 {
    let node = node(
        &[],
        &[("r", x.len())],
        json!([
            {"id": 0, "op": "load", "buffer": "x", "index": "r"},
            {"id": 1, "op": "reduction", "kind": kind, "dtype": if kind.starts_with("arg") { "int64" } else { "float64" }, "values": [0]},
            {"id": 2, "op": "item", "value": 1, "position": position},
            {"id": 3, "op": "store", "buffer": "y", "index": "0", "value": 2}
        ]),
    );
    let dtype = if kind.starts_with("arg") { "int64" } else { "float64" };
    floats(&kernel(1, x.len(), 1, dtype, json!([node])), x)[0]
}

#[test]
fn reductions_of_special_values() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    assert!(row("max", 0, &[1.0, nan, 3.0]).is_nan() && row("min", 0, &[1.0, nan, 3.0]).is_nan());
    assert_eq!(row("argmax", 0, &[1.0, nan, 3.0, nan]), 1.0);
    assert_eq!(row("argmin", 0, &[1.0, -inf, -inf, 3.0]), 1.0);
    assert_eq!(row("argmax", 0, &[-inf; 4]), 0.0);
    assert_eq!(row("sum", 0, &[inf, 1.0, 2.0]), inf);
    assert!(row("sum", 0, &[inf, -inf]).is_nan());
    assert_eq!(row("welford_reduce", 0, &[1.0, inf, 2.0]), inf, "whatever Welford's update leaves");
    assert!(row("welford_reduce", 0, &[1.0, inf, -inf]).is_nan() && row("welford_reduce", 1, &[1.0, inf, 2.0]).is_nan());
    assert_eq!(row("online_softmax_reduce", 0, &[-inf, 2.0, 1.0]), 2.0);
    assert!((row("online_softmax_reduce", 1, &[-inf, 2.0, 1.0]) - (1.0 + (-1.0f64).exp())).abs() < 1e-15);
    assert_eq!(row("online_softmax_reduce", 0, &[-inf; 3]), -inf);
    assert!(row("online_softmax_reduce", 1, &[-inf; 3]).is_nan(), "the sum of exp(-inf + inf)");
    assert!(row("online_softmax_reduce", 1, &[nan, 1.0]).is_nan());
    assert!(row("online_softmax_reduce", 1, &[inf, 1.0]).is_nan());
}

proptest! {
    #[test]
    fn moments_of_parts_are_moments_of_the_whole(x in prop::collection::vec(-1e3f64..1e3, 1..300), cut in 1usize..40) {
        let parts: Vec<f64> = x.chunks(cut).flat_map(|part| {
            let mean = part.iter().sum::<f64>() / part.len() as f64;
            [mean, part.iter().map(|x| (x - mean).powi(2)).sum(), part.len() as f64]
        }).collect();
        let count = parts.len() / 3;
        for position in 0..3 {
            let combine = node(&[], &[("r", count)], json!([
                {"id": 0, "op": "load", "buffer": "x", "index": "3*r"},
                {"id": 1, "op": "load", "buffer": "x", "index": "3*r + 1"},
                {"id": 2, "op": "load", "buffer": "x", "index": "3*r + 2"},
                {"id": 3, "op": "reduction", "kind": "welford_combine", "dtype": "float64", "values": [0, 1, 2]},
                {"id": 4, "op": "item", "value": 3, "position": position},
                {"id": 5, "op": "store", "buffer": "y", "index": "0", "value": 4}
            ]));
            let found = floats(&kernel(count, 3, 1, "float64", json!([combine])), &parts)[0];
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            let expected = [mean, x.iter().map(|x| (x - mean).powi(2)).sum::<f64>(), x.len() as f64][position];
            prop_assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{} {}", found, expected);
        }
    }
}
