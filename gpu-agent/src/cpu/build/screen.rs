//! A first look at a candidate's source, before any compiler reads it.
//!
//! Defence in depth: the wall is the sandbox. This look keeps out what no kernel needs and what would make a verdict mean something
//! else than it says: files read at compile time, inline assembly (system calls without a library, timers), fast-math behind a
//! string, our own names. It works on preprocessing tokens (C++17, [lex.phases]), so that line splices, comments and digraphs hide nothing;
//! trigraphs, raw strings and token pasting are refused outright.

use super::lexer::{Kind, Lexer, Token};

/// Largest source, in bytes.
pub const MAX_SOURCE_BYTES: usize = 512 << 10;

/// Why a source is not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {rule}")]
pub struct Refusal {
    /// Line of the source, from one.
    pub line: u32,
    /// What is not allowed there.
    pub rule: String,
}

/// Looks at a whole source; the first thing that is not allowed is the error.
pub fn screen(source: &str) -> Result<(), Refusal> {
    if source.len() > MAX_SOURCE_BYTES {
        let rule = format!("{} bytes of source; at most {MAX_SOURCE_BYTES} are compiled", source.len());
        return Err(Refusal { line: 1, rule });
    }
    let tokens = Lexer::new(source).tokens()?;
    let mut lines = tokens.split(|token| token.kind == Kind::Newline);
    lines.try_for_each(|line| match line.split_first() {
        Some((hash, rest)) if hash.kind == Kind::Hash => directive(hash, rest),
        _ => line.iter().try_for_each(plain),
    })
}

fn refuse(token: &Token<'_>, rule: impl Into<String>) -> Result<(), Refusal> {
    Err(Refusal { line: token.line, rule: rule.into() })
}

/// A token outside of `#include` and `#pragma` lines.
fn plain(token: &Token<'_>) -> Result<(), Refusal> {
    let text = token.text.as_ref();
    match token.kind {
        Kind::Name if INLINE_ASSEMBLY.contains(&text) => refuse(token, format!("inline assembly ({text})")),
        Kind::Name if text == "_Pragma" || text == "__pragma" => refuse(token, format!("{text}: write a #pragma line")),
        Kind::Name if text.starts_with("__has_include") || text.starts_with("__has_embed") => {
            refuse(token, format!("{text} looks at files"))
        }
        Kind::Name if text.starts_with("kernelopt_") => refuse(token, format!("{text}: names that start with kernelopt_ are taken")),
        Kind::Paste => refuse(token, "token pasting (##)"),
        Kind::Text => float_contract(token),
        _ => Ok(()),
    }
}

/// A line that starts with `#`.
fn directive(hash: &Token<'_>, rest: &[Token<'_>]) -> Result<(), Refusal> {
    let Some((name, rest)) = rest.split_first() else { return Ok(()) };
    match name.text.as_ref() {
        "include" => include(name, rest),
        "pragma" => pragma(name, rest),
        "define" | "undef" => macro_name(rest).and_then(|()| rest.iter().try_for_each(plain)),
        "if" | "ifdef" | "ifndef" | "elif" | "else" | "endif" | "error" => rest.iter().try_for_each(plain),
        other => refuse(hash, format!("#{other} is not allowed")),
    }
}

fn include(name: &Token<'_>, rest: &[Token<'_>]) -> Result<(), Refusal> {
    match rest {
        [header] if header.kind == Kind::Header => {
            let path = header.text.trim_matches(['<', '>', '"']);
            if header_allowed(path) {
                Ok(())
            } else {
                refuse(header, format!("#include {}: not one of the headers that a kernel needs", header.text))
            }
        }
        _ => refuse(name, "#include needs a header's name in <> or \"\""),
    }
}

fn header_allowed(path: &str) -> bool {
    const TORCH: [&str; 4] = ["ATen/", "c10/", "torch/csrc/inductor/", "torch/headeronly/"];
    let plain = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_.-+".contains(&b)) && !path.contains("..") && !path.contains("//");
    plain && (HEADERS.contains(&path) || TORCH.iter().any(|folder| path.starts_with(folder)))
}

fn pragma(name: &Token<'_>, rest: &[Token<'_>]) -> Result<(), Refusal> {
    let words: Vec<&str> = rest.iter().take(2).map(|token| token.text.as_ref()).collect();
    let known = match words.as_slice() {
        ["omp", ..] | ["once"] | ["unroll", ..] => true,
        ["GCC", what] => ["optimize", "target", "ivdep", "unroll", "push_options", "pop_options"].contains(what),
        _ => false,
    };
    if !known {
        return refuse(name, format!("#pragma {} is not allowed", words.join(" ")));
    }
    rest.iter().try_for_each(plain)
}

fn macro_name(rest: &[Token<'_>]) -> Result<(), Refusal> {
    match rest.first() {
        Some(name) if name.text == "kernel" => refuse(name, "a macro must not be named kernel"),
        _ => Ok(()),
    }
}

/// Option strings of `optimize` attributes and pragmas that give up the precision of the baseline.
fn float_contract(token: &Token<'_>) -> Result<(), Refusal> {
    const BROKEN_BY: [&str; 6] = ["fast-math", "Ofast", "unsafe-math", "finite-math", "associative-math", "reciprocal-math"];
    match BROKEN_BY.iter().find(|option| token.text.contains(**option) && !token.text.contains(&format!("no-{option}"))) {
        Some(option) => refuse(token, format!("{option} is outside the precision contract")),
        None => Ok(()),
    }
}

const INLINE_ASSEMBLY: [&str; 3] = ["asm", "__asm", "__asm__"];

/// Headers by name; torch's are allowed by folder.
const HEADERS: &[&str] = &[
    "algorithm",
    "any",
    "array",
    "atomic",
    "bit",
    "bitset",
    "cassert",
    "cctype",
    "cerrno",
    "cfenv",
    "cfloat",
    "charconv",
    "chrono",
    "cinttypes",
    "climits",
    "cmath",
    "complex",
    "cstdarg",
    "cstddef",
    "cstdint",
    "cstdio",
    "cstdlib",
    "cstring",
    "deque",
    "exception",
    "functional",
    "initializer_list",
    "iomanip",
    "ios",
    "iosfwd",
    "iostream",
    "iterator",
    "limits",
    "list",
    "map",
    "memory",
    "mutex",
    "new",
    "numeric",
    "optional",
    "ostream",
    "queue",
    "random",
    "ratio",
    "set",
    "sstream",
    "stack",
    "stdexcept",
    "string",
    "string_view",
    "tuple",
    "type_traits",
    "typeindex",
    "typeinfo",
    "unordered_map",
    "unordered_set",
    "utility",
    "valarray",
    "variant",
    "vector",
    "assert.h",
    "complex.h",
    "ctype.h",
    "errno.h",
    "fenv.h",
    "float.h",
    "inttypes.h",
    "limits.h",
    "math.h",
    "stdalign.h",
    "stdarg.h",
    "stdbool.h",
    "stddef.h",
    "stdint.h",
    "stdio.h",
    "stdlib.h",
    "string.h",
    "tgmath.h",
    "omp.h",
    "immintrin.h",
    "arm_neon.h",
    "arm_sve.h",
    "sleef.h",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(source: &str) -> String {
        screen(source).unwrap_err().to_string()
    }

    #[test]
    fn a_plain_kernel_passes() {
        let source = r#"
#include <cmath>
#include <omp.h> // comment
#  include "immintrin.h"
#include <torch/csrc/inductor/cpp_prefix.h>
#pragma GCC optimize("unroll-loops,no-fast-math")
#pragma GCC target ("avx2")
#define LANES 8
#ifdef __AVX512F__
#endif
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) {
    const char* text = "asm fork // not a comment";
    int big = 1'000'000; char quote = '"', escaped = '\'';
    #pragma omp parallel for num_threads(2)
    for (int i = 0; i < LANES; ++i) out_ptr0[i] = in_ptr0[i] * .5e-3f; /* asm */
}
"#;
        assert_eq!(screen(source), Ok(()));
    }

    #[test]
    fn forbidden_things_are_named_with_their_line() {
        assert_eq!(rule("\n\n  asm(\"nop\");"), "line 3: inline assembly (asm)");
        assert!(rule("int x; __asm__ volatile (\"\");").contains("__asm__"));
        assert!(rule("#include <unistd.h>").contains("<unistd.h>"));
        assert!(rule("#include \"/etc/passwd\"").contains("/etc/passwd"));
        assert!(rule("#include <ATen/../../../etc/passwd>").contains("not one of"));
        assert!(rule("#include_next <cmath>").contains("#include_next"));
        assert!(rule("#define H <cmath>\n#include H").starts_with("line 2"));
        assert!(rule("#pragma GCC poison x").contains("GCC poison"));
        assert!(rule("#pragma GCC optimize(\"Ofast\")").contains("Ofast"));
        assert!(rule("__attribute__((optimize(\"fast-math\"))) void f();").contains("precision contract"));
        assert!(rule("_Pragma(\"GCC poison x\")").contains("_Pragma"));
        assert!(rule("#define P(a, b) a##b").contains("##"));
        assert!(rule("#define kernel other").contains("kernel"));
        assert!(rule("void kernelopt_entry();").contains("are taken"));
        assert!(rule("#if __has_include(</etc/shadow>)").contains("__has_include"));
        assert!(rule("#line 7 \"x\"").contains("#line"));
    }

    #[test]
    fn tricks_of_the_preprocessor_hide_nothing() {
        assert_eq!(rule("as\\\nm(\"\");"), "line 1: inline assembly (asm)");
        assert_eq!(rule("\\\n\\ \t\nas\\  \nm(\"\");"), "line 3: inline assembly (asm)");
        assert!(rule("%: include <unistd.h>").contains("unistd"));
        assert!(rule("#/**/include/**/<unistd.h>").contains("unistd"));
        assert!(rule("/* \n */ # /* */ pragma GCC /* */ poison x").contains("GCC poison"));
        assert!(rule("#def\\\nine kernel x").contains("kernel"));
        assert!(rule("#define P(a, b) a%:%:b").contains("##"));
        assert!(rule("??=include <unistd.h>").contains("trigraph"));
        assert!(rule("// ??/\nasm(\"\");").contains("trigraph"));
        assert!(rule("auto s = R\"x(\")x\"; asm(\"\");").contains("raw string"));
        assert!(rule("auto s = u8R\"(\")\"; asm(\"\");").contains("raw string"));
        assert!(rule("int x = 1'0'asm;asm(\"\");").contains("asm"));
        assert!(rule("void kernel() {} /* the rest is gone").contains("comment"));
        assert!(rule("const char* s = \"abc\n;").contains("string"));
        assert!(rule("char c = 'a;\n").contains("character"));
        assert!(rule("a\0b").contains("zero byte"));
        assert!(rule("\\u0061sm(\"\");").contains("backslash"));
        assert_eq!(screen("// asm \\\n asm in a spliced comment\nint x;"), Ok(()));
    }

    #[test]
    fn size_is_bounded() {
        assert!(rule(&"x ".repeat(MAX_SOURCE_BYTES)).contains("at most"));
    }

    proptest! {
        #[test]
        fn any_text_is_judged(text in "[#%:?/\\\\*\"'a-zR8 \n(),<>.0]{0,60}") {
            let _ = screen(&text);
        }

        #[test]
        fn any_unicode_is_judged(text in "\\PC{0,40}") {
            let _ = screen(&text);
        }
    }
}
