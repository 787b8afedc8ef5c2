//! The builder: what it accepts, what it refuses, and that it is bounded.

mod cpu_bench;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cpu_bench::{argument, builder, reexec, softmax_signature};
use kernelopt_gpu_agent::cpu::build::{BuildError, BuildLimits, Builder, BuilderOptions, Toolchain, screen};
use kernelopt_shared::meaning::Role;

fn fresh(limits: BuildLimits) -> (tempfile::TempDir, Builder) {
    let folder = tempfile::tempdir().expect("a folder");
    let toolchain = Toolchain::plain().expect("a compiler");
    let options = BuilderOptions { reexec: reexec(), toolchain, cache: folder.path().join("cache"), limits, permit_weak_sandbox: false };
    let builder = Builder::new(options).expect("a builder");
    (folder, builder)
}

fn refused(source: &str) -> String {
    builder().build(source, &[]).expect_err("it must not build").to_string()
}

#[test]
fn one_source_is_compiled_once() {
    let (_folder, builder) = fresh(BuildLimits::default());
    let source = "extern \"C\" void kernel() {}";
    let first = builder.build(source, &[]).expect("it builds");
    let again = builder.build(source, &[]).expect("it is there");
    assert!(!first.cached && again.cached && first.library == again.library);
    let entries = fs::read_dir(&builder.options().cache).expect("the cache").count();
    assert_eq!(entries, 1, "no work folder is left over");
    let other = builder.build("extern \"C\" void kernel() { }", &[]).expect("it builds");
    assert_ne!(first.library, other.library);
}

#[test]
fn threads_may_build_the_same_source_at_once() {
    let (_folder, builder) = fresh(BuildLimits::default());
    let source = "extern \"C\" void kernel() {}";
    let libraries: Vec<_> = std::thread::scope(|scope| {
        let builds: Vec<_> = (0..3).map(|_| scope.spawn(|| builder.build(source, &[]).expect("it builds").library)).collect();
        builds.into_iter().map(|build| build.join().expect("no panic")).collect()
    });
    assert!(libraries.iter().all(|library| library == &libraries[0] && library.is_file()));
}

#[test]
fn a_signature_that_does_not_fit_is_a_compile_error() {
    let signature = softmax_signature();
    for (wrong, why) in [
        ("extern \"C\" void kernel(const float* a, float* b, float* c) {}", "fewer arguments"),
        ("extern \"C\" void kernel(const float* a, float* b, float* c, double* d) {}", "another type"),
        ("extern \"C\" void kernel(float* a, float* b, float* c, float* d) {}", "const lost"),
        ("extern \"C\" int kernel(const float* a, float* b, float* c, float* d) { return 0; }", "a result"),
        ("void kernel(const float* a, float* b, float* c, float* d) {}", "C++ linkage"),
        ("static void kernel(const float* a, float* b, float* c, float* d) {}", "not visible"),
    ] {
        match builder().build(wrong, &signature) {
            Err(error @ BuildError::Compiler(_)) => {
                assert_eq!(error.verdict().expect("its own fault").kind(), "build_failed");
            }
            other => panic!("{why}: {other:?}"),
        }
    }
    let odd = [argument("a", "float*) {} int f(int*", Role::In)];
    let error = builder().build("extern \"C\" void kernel(float*) {}", &odd).expect_err("not a type");
    assert!(matches!(error, BuildError::Signature(_)) && error.verdict().is_none());
}

#[test]
fn sizes_are_passed_by_value() {
    let signature = [argument("in_ptr0", "const float*", Role::In), argument("ks0", "const int64_t", Role::Size)];
    builder().build("#include <cstdint>\nextern \"C\" void kernel(const float* a, const int64_t n) {}", &signature).expect("it builds");
}

#[test]
fn errors_are_quoted_with_their_line_and_without_our_paths() {
    let text = refused("\n\nextern \"C\" void kernel() { undeclared = 1; }");
    assert!(text.contains("candidate.cpp:3:") && text.contains("undeclared"), "{text}");
    assert!(!text.contains("work-"), "{text}");
    let many = refused(&format!("extern \"C\" void kernel() {{ {} }}", "undeclared = 1;\n".repeat(3000)));
    assert!(many.len() < 5000 && many.contains("error"), "{} bytes", many.len());
}

#[test]
fn rules_come_before_the_compiler() {
    let error = builder().build("#include <unistd.h>\nextern \"C\" void kernel() {}", &[]).expect_err("refused");
    assert!(matches!(error, BuildError::Refused(_)));
    assert_eq!(error.verdict().expect("its own fault").kind(), "rejected");
    // A comment that swallows the trampoline, and a conditional that does.
    assert!(refused("extern \"C\" void kernel() {} /*").contains("comment"));
    assert!(refused("extern \"C\" void kernel() {}\n#if 0\n").contains("unterminated"));
}

#[test]
fn a_compiler_that_takes_too_long_is_stopped() {
    // Doubles its instantiations with each level; the compiler would need days.
    let source = "template <int N, int M> struct S { static constexpr int v = S<N - 1, 2 * M>::v + S<N - 1, 2 * M + 1>::v; };\n\
                  template <int M> struct S<0, M> { static constexpr int v = 1; };\n\
                  extern \"C\" void kernel() { static_assert(S<40, 0>::v > 0, \"\"); }";
    let (_folder, builder) = fresh(BuildLimits { wall: Duration::from_secs(2), memory_bytes: 2 << 30, ..BuildLimits::default() });
    let error = builder.build(source, &[]).expect_err("it must not build");
    assert!(matches!(&error, BuildError::Stopped(detail) if detail.contains("longer than 2 s")), "{error}");
    assert_eq!(error.verdict().expect("its own fault").kind(), "build_failed");
    let (_folder, builder) = fresh(BuildLimits { memory_bytes: 200 << 20, ..BuildLimits::default() });
    let error = builder.build(source, &[]).expect_err("it must not build");
    assert!(matches!(&error, BuildError::Stopped(_) | BuildError::Compiler(_)), "{error}");
}

#[test]
fn the_compiler_writes_only_into_its_own_folder() {
    let (folder, _) = fresh(BuildLimits::default());
    let outside = folder.path().join("outside.d");
    let mut template: Vec<String> = ["g++", "{source}", "-shared", "-fPIC", "-o", "{output}", "-MD", "-MF"].map(String::from).to_vec();
    template.push(outside.display().to_string());
    let toolchain = Toolchain::from_template(&template).expect("a compiler");
    let options = BuilderOptions {
        reexec: reexec(),
        toolchain,
        cache: folder.path().join("other"),
        limits: BuildLimits::default(),
        permit_weak_sandbox: false,
    };
    let error = Builder::new(options).expect("a builder").build("extern \"C\" void kernel() {}", &[]).expect_err("refused");
    assert!(error.to_string().contains("Permission denied"), "{error}");
    assert!(!outside.exists());
}

#[test]
fn every_planted_candidate_is_listed_and_passes_the_rules() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/candidates");
    let manifest = fs::read_to_string(folder.join("manifest.json")).expect("the manifest");
    let entries: Vec<serde_json::Value> = serde_json::from_str(&manifest).expect("a list");
    let listed: BTreeSet<PathBuf> = entries.iter().filter_map(|entry| Some(folder.join(entry["file"].as_str()?))).collect();
    let there: BTreeSet<PathBuf> = ["softmax", "layer_norm"]
        .iter()
        .flat_map(|target| fs::read_dir(folder.join(target)).expect("a folder"))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(listed, there);
    // Each must be judged by what it does: a rule of ours must not stop it before.
    for path in listed {
        assert_eq!(screen(&fs::read_to_string(&path).expect("a source")), Ok(()), "{}", path.display());
    }
}

#[test]
fn inductors_own_code_passes_the_rules() {
    for target in ["softmax", "layer_norm"] {
        for name in ["baseline.cpp", "baseline_plain.cpp"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/targets").join(target).join(name);
            assert_eq!(screen(&fs::read_to_string(&path).expect("a source")), Ok(()), "{}", path.display());
        }
    }
}

#[test]
fn a_cache_that_cannot_be_made_is_our_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    let toolchain = Toolchain::plain().expect("a compiler");
    let options = BuilderOptions {
        reexec: reexec(),
        toolchain,
        cache: file.join("cache"),
        limits: BuildLimits::default(),
        permit_weak_sandbox: false,
    };
    let error = Builder::new(options).expect_err("no folder");
    assert!(matches!(error, BuildError::Io { .. }) && error.verdict().is_none());
}
