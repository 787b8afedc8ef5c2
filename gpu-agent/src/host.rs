//! What this host is.

use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

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

/// Logical processors for `threads` threads, one each, out of those that this process may use: first one of every physical
/// core, then the siblings. Empty where there are fewer.
pub fn processors_for(threads: usize) -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) else { return Vec::new() };
    let allowed: Vec<usize> = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).collect();
    let first_of_core =
        |cpu: &usize| siblings(*cpu).into_iter().find(|sibling| allowed.contains(sibling)).is_none_or(|first| first == *cpu);
    let (firsts, others): (Vec<usize>, Vec<usize>) = allowed.iter().partition(|cpu| first_of_core(cpu));
    let chosen: Vec<usize> = firsts.into_iter().chain(others).take(threads).collect();
    if chosen.len() == threads { chosen } else { Vec::new() }
}

/// Logical processors of the physical core of `cpu`, in order; `thread_siblings_list` is like `0,64` or `0-1`.
fn siblings(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().split(',').flat_map(range).collect()
}

fn range(text: &str) -> Vec<usize> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) => (first..=last).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_gets_a_processor_of_its_own() {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        for threads in 1..=all {
            let mut chosen = processors_for(threads);
            chosen.sort_unstable();
            chosen.dedup();
            assert_eq!(chosen.len(), threads);
        }
        assert!(processors_for(all + 1).is_empty());
    }

    #[test]
    fn sibling_lists_are_read() {
        assert_eq!(range("0-3"), [0, 1, 2, 3]);
        assert_eq!(range("7"), [7]);
        assert!(range("").is_empty());
    }
}
