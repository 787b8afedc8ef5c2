//! System, processor, memory, and what makes measurements noisy.

use std::fs::read_to_string;

use super::check::Check;

const GIB: f64 = (1u64 << 30) as f64;
/// Memory below which a small model's search may fail, in GiB.
const LITTLE_MEMORY_GIB: f64 = 3.0;
/// Load per core above which measurements share the processor.
const BUSY: f64 = 0.25;
/// Share of time that the hypervisor gave to others, above which it shows in measurements.
const MUCH_STOLEN: f64 = 0.01;

/// Operating system and architecture.
pub(super) fn system() -> Check {
    let release = read_to_string("/etc/os-release").unwrap_or_default();
    let name = quoted_field(&release, "PRETTY_NAME").unwrap_or_else(|| std::env::consts::OS.to_owned());
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let detail = format!("{name}, kernel {}, {}", kernel.trim(), std::env::consts::ARCH);
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Check::ok("system", detail),
        ("linux", _) => Check::warn("system", detail, "Only x86_64 has been tried; please tell us how this one went."),
        _ => Check::missing("system", detail, "Use Linux: the sandbox for candidates is made of its kernel's parts."),
    }
}

fn quoted_field(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// Name, cores that this process may use, vector width.
pub(super) fn processor() -> Check {
    let cores = cores();
    let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split(':').nth(1))
        .map_or("unknown processor", str::trim);
    let detail = format!("{name}, {cores} {}, {}", if cores == 1 { "core" } else { "cores" }, vectors());
    if cores < 2 {
        return Check::warn(
            "processor",
            detail,
            "Use two cores or more: the referee's own work shares the only one with what it measures.",
        );
    }
    Check::ok("processor", detail)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(target_arch = "x86_64")]
fn vectors() -> &'static str {
    match () {
        () if is_x86_feature_detected!("avx512f") => "AVX-512",
        () if is_x86_feature_detected!("avx2") => "AVX2",
        () => "SSE only",
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn vectors() -> &'static str {
    std::env::consts::ARCH
}

/// Memory that is free for use.
pub(super) fn memory() -> Check {
    memory_of(&read_to_string("/proc/meminfo").unwrap_or_default())
}

fn memory_of(meminfo: &str) -> Check {
    let gib = |name: &str| -> Option<f64> {
        let value = meminfo.lines().find_map(|line| line.strip_prefix(name))?.trim().strip_suffix("kB")?;
        Some(value.trim().parse::<f64>().ok()? * 1024.0 / GIB)
    };
    let (Some(total), Some(available)) = (gib("MemTotal:"), gib("MemAvailable:")) else {
        return Check::warn("memory", "/proc/meminfo cannot be read", "Mount /proc.");
    };
    let detail = format!("{available:.1} of {total:.1} GiB available");
    if available < LITTLE_MEMORY_GIB {
        return Check::warn("memory", detail, format!("Free some: compiling a model with torch takes about {LITTLE_MEMORY_GIB} GiB."));
    }
    Check::ok("memory", detail)
}

/// Does this process keep denormals? A parent or a library may have changed the mode.
pub(super) fn denormals() -> Check {
    let half = std::hint::black_box(f32::MIN_POSITIVE) / std::hint::black_box(2.0);
    if half > 0.0 {
        return Check::ok("denormals", "kept, as torch does unless told otherwise");
    }
    Check::warn("denormals", "flushed to zero in this process", "Find what sets it: a preloaded library that was built with -ffast-math.")
}

/// Frequency governor and turbo of the first core.
pub(super) fn frequency() -> Check {
    let cpu = "/sys/devices/system/cpu";
    let governor = read_to_string(format!("{cpu}/cpu0/cpufreq/scaling_governor")).ok();
    let no_turbo = read_to_string(format!("{cpu}/intel_pstate/no_turbo")).ok().map(|text| text.trim() == "1");
    let boost = read_to_string(format!("{cpu}/cpufreq/boost")).ok().map(|text| text.trim() == "0");
    frequency_of(governor.as_deref().map(str::trim), no_turbo.or(boost))
}

fn frequency_of(governor: Option<&str>, turbo_is_off: Option<bool>) -> Check {
    let turbo = match turbo_is_off {
        Some(true) => ", turbo off",
        Some(false) => ", turbo on",
        None => "",
    };
    match governor {
        None => Check::ok("frequency", format!("not visible from here, as in most virtual machines{turbo}")),
        Some("performance") => Check::ok("frequency", format!("governor performance{turbo}")),
        Some(other) => Check::warn(
            "frequency",
            format!("governor {other}{turbo}: the clock follows the load"),
            "For tighter intervals: cpupower frequency-set -g performance (as root).",
        ),
    }
}

/// Is something else running?
pub(super) fn load() -> Check {
    load_of(&read_to_string("/proc/loadavg").unwrap_or_default(), cores())
}

fn load_of(loadavg: &str, cores: usize) -> Check {
    let Some(load) = loadavg.split_whitespace().next().and_then(|word| word.parse::<f64>().ok()) else {
        return Check::warn("load", "/proc/loadavg cannot be read", "Mount /proc.");
    };
    let detail = format!("{load:.2} over the last minute, on {cores} cores");
    if load > BUSY * cores as f64 {
        return Check::warn("load", detail, "Let other work end first: measurements get wider intervals and need more time beside it.");
    }
    Check::ok("load", detail)
}

/// Does the hypervisor give this machine's time to others?
pub(super) fn neighbours() -> Check {
    neighbours_of(&read_to_string("/proc/stat").unwrap_or_default())
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, ... in ticks since the start.
fn neighbours_of(stat: &str) -> Check {
    let ticks: Vec<f64> =
        stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
    let [user, nice, system, _, _, irq, softirq, stolen] = ticks[..] else {
        return Check::warn("neighbours", "/proc/stat cannot be read", "Mount /proc.");
    };
    let wanted = user + nice + system + irq + softirq + stolen;
    let share = if wanted > 0.0 { stolen / wanted } else { 0.0 };
    let detail = format!("{:.1} % of the time wanted since the start went to other machines of this host", 100.0 * share);
    if share > MUCH_STOLEN {
        return Check::warn("neighbours", detail, "Use a machine with cores of its own where figures matter.");
    }
    Check::ok("neighbours", detail)
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn little_memory_is_warned_of() {
        let text = |available: u64| format!("MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:   {available} kB\n");
        assert_eq!(memory_of(&text(12_000_000)).status, Status::Ok);
        assert_eq!(memory_of(&text(12_000_000)).detail, "11.4 of 15.3 GiB available");
        assert_eq!(memory_of(&text(1_000_000)).status, Status::Warn);
        assert_eq!(memory_of("nonsense").status, Status::Warn);
    }

    #[test]
    fn governors() {
        assert_eq!(frequency_of(Some("performance"), Some(true)).detail, "governor performance, turbo off");
        assert_eq!(frequency_of(Some("powersave"), None).status, Status::Warn);
        assert_eq!(frequency_of(None, None).status, Status::Ok);
    }

    #[test]
    fn load_counts_by_core() {
        assert_eq!(load_of("0.40 0.50 0.60 1/200 300", 2).status, Status::Ok);
        assert_eq!(load_of("1.90 0.50 0.60 1/200 300", 2).status, Status::Warn);
        assert_eq!(load_of("1.90 0.50 0.60 1/200 300", 16).status, Status::Ok);
        assert_eq!(load_of("", 2).status, Status::Warn);
    }

    #[test]
    fn stolen_time_is_a_share_of_the_time_wanted_not_of_idle_time() {
        assert_eq!(neighbours_of("cpu  900 0 50 999999 0 0 0 50 0 0\n").status, Status::Warn);
        assert!(neighbours_of("cpu  900 0 50 999999 0 0 0 50 0 0\n").detail.starts_with("5.0 %"));
        assert_eq!(neighbours_of("cpu  900 0 100 999999 0 0 0 0 0 0\n").status, Status::Ok);
        assert_eq!(neighbours_of("cpu 1 2").status, Status::Warn);
    }

    #[test]
    fn names_from_os_release() {
        assert_eq!(quoted_field("A=1\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n", "PRETTY_NAME").as_deref(), Some("Debian GNU/Linux 12"));
        assert_eq!(quoted_field("NAME=x", "PRETTY_NAME"), None);
    }
}
