//! What this host is.

use std::path::{Path, PathBuf};

/// The processor's own name, `AMD EPYC 9654`.
pub fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| text.lines().find(|line| line.starts_with(name)).and_then(|line| line.split(':').nth(1)).map(str::trim);
    field("model name").or(field("CPU implementer")).unwrap_or("unknown processor").to_owned()
}

/// Libraries of the torch whose headers `compile_command` includes, that its kernels find loaded in a model: its OpenMP run
/// time, then its vector functions (`Sleef_*`). None where the command knows no torch.
pub fn torch_libraries(compile_command: &[String]) -> Vec<PathBuf> {
    let headers = compile_command.iter().filter_map(|word| word.strip_prefix("-I"));
    let Some(folder) = headers.map(Path::new).find(|path| path.ends_with("torch/include")).and_then(Path::parent) else {
        return Vec::new();
    };
    let names: Vec<PathBuf> = std::fs::read_dir(folder.join("lib")).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect();
    let find = |prefix: &str| names.iter().find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix))).cloned();
    ["libgomp", "libtorch_cpu.so"].into_iter().filter_map(find).collect()
}
