//! The head of a source: compiler flags, includes and the functions of ours that the body calls.

use std::fmt::Write as _;

use kernelopt_shared::meaning::Argument;

use super::super::space::Schedule;

/// Pieces of C++, each after those that it calls: a piece is taken if something taken already calls one of its functions.
const PIECES: [(&[&str], &str); 13] = [
    (&["bits_as"], include_str!("runtime/bits.hpp")),
    (&["select"], include_str!("runtime/select.hpp")),
    (&["max_nan", "min_nan"], include_str!("runtime/extremes.hpp")),
    (&["exp_f32", "exp_low_f32", "exp_reduced"], include_str!("runtime/exp.hpp")),
    (&["log_f32"], include_str!("runtime/log.hpp")),
    (&["sigmoid_f32"], include_str!("runtime/sigmoid.hpp")),
    (&["expm1_f32", "log1p_f32"], include_str!("runtime/near_one.hpp")),
    (&["tanh_f32"], include_str!("runtime/tanh.hpp")),
    (&["erf_f32"], include_str!("runtime/erf.hpp")),
    (
        &["floor_div", "floor_mod", "trunc_div", "trunc_mod", "floor_fmod", "wrap_index", "checked_index"],
        include_str!("runtime/integers.hpp"),
    ),
    (&["fill<", "fold_sum", "fold_prod", "fold_max", "fold_min", "fold_any"], include_str!("runtime/folds.hpp")),
    (&["stage_in", "stage_out"], include_str!("runtime/stage.hpp")),
    (&["from_bf16", "to_bf16"], include_str!("runtime/bfloat16.hpp")),
];

/// Everything before the kernel.
pub fn prelude(schedule: &Schedule, body: &str, arguments: &[Argument]) -> String {
    let mut text = String::new();
    let mut flags = vec!["tree-loop-vectorize"];
    if schedule.contract {
        flags.push("fp-contract=fast");
    }
    if schedule.flags.unroll_loops {
        flags.push("unroll-loops");
    }
    let _ = writeln!(text, "#pragma GCC optimize(\"{}\")", flags.join(","));
    if schedule.flags.wide_vectors {
        text.push_str("#if defined(__AVX512F__)\n#pragma GCC target(\"prefer-vector-width=512\")\n#endif\n");
    }
    for header in ["algorithm", "cmath", "cstdint", "cstdio", "cstdlib", "cstring", "limits"] {
        let _ = writeln!(text, "#include <{header}>");
    }
    text.push_str("#include <omp.h>\n");
    if arguments.iter().any(|argument| argument.c_type.contains("BFloat16")) {
        text.push_str("#include <c10/util/BFloat16.h>\n");
    }
    text.push_str("\nnamespace {\n");
    for piece in pieces(body) {
        text.push('\n');
        text.push_str(piece);
    }
    text.push_str("\n}  // namespace\n\n");
    text
}

fn pieces(body: &str) -> Vec<&'static str> {
    let mut taken: Vec<&'static str> = Vec::new();
    for (functions, piece) in PIECES.iter().rev() {
        let calls = |text: &str| functions.iter().any(|function| text.contains(function));
        if calls(body) || taken.iter().any(|text| calls(text)) {
            taken.push(piece);
        }
    }
    taken.reverse();
    taken
}
