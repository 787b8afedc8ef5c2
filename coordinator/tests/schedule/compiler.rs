//! The compiler, as the optimised model's own command calls it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The flags of the compiler's own command, in its order.
pub const FLAGS: &str = "-O3 -DNDEBUG -fno-trapping-math -funsafe-math-optimizations -ffinite-math-only -fno-signed-zeros -fno-math-errno \
    -fno-finite-math-only -fno-unsafe-math-optimizations -ffp-contract=off -fexcess-precision=fast -fno-tree-loop-vectorize -march=native \
    -fPIC -shared -std=c++17 -fopenmp -Wno-unknown-pragmas";

/// Runs the compiler.
pub fn compile(directory: &Path, name: &str, source: &str, flags: &str) -> PathBuf {
    let (text, binary) = (directory.join(format!("{name}.cpp")), directory.join(name));
    std::fs::write(&text, source).unwrap();
    let mut command = Command::new("g++");
    command.args(flags.split_whitespace()).arg("-I").arg(directory).arg(&text).arg("-o").arg(&binary).arg("-ldl");
    let output = command.output().expect("g++ runs");
    assert!(output.status.success(), "{name}: {}\n{source}", String::from_utf8_lossy(&output.stderr));
    binary
}
