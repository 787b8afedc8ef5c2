//! What spoils measurements on a GPU, and what may be seen of it: others that use it, the lock, clocks, counters.

use std::fs::read_to_string;

use kernelopt_gpu_agent::cuda::device::DeviceFacts;
use kernelopt_gpu_agent::cuda::nvml::{Neighbour, Settings};
use kernelopt_gpu_agent::cuda::survey::{Survey, Surveyed};
use kernelopt_gpu_agent::lock;

use super::Check;

const GIB: f64 = (1u64 << 30) as f64;
/// What the kernel module was loaded with.
const PARAMETERS: &str = "/proc/driver/nvidia/params";
/// Other processes that are named; the rest are counted.
const NAMED: usize = 3;

/// NVML, and for each GPU what it knows and who holds our lock.
pub(super) fn checks(gpus: &[DeviceFacts], survey: &Survey) -> Vec<Check> {
    let mut checks = match survey {
        Ok(_) => vec![Check::ok("nvml", "tells clocks, power and other processes")],
        Err(reason) => {
            let remedy = "Install the whole driver; in a container, ask for its utility part (NVIDIA_DRIVER_CAPABILITIES=compute,utility).";
            vec![Check::warn("nvml", format!("{reason}; results will not tell clocks and other processes"), remedy)]
        }
    };
    for (ordinal, gpu) in gpus.iter().enumerate() {
        if let Some(known) = survey.iter().flatten().find(|known| known.is(&gpu.uuid)) {
            checks.push(sharing(ordinal, known));
            checks.push(clocks(ordinal, known.settings));
        }
        checks.extend(lock::holder_of(&gpu.uuid).map(|holder| {
            let remedy = "Searches take turns on a GPU: wait, or use another with --device cuda:N.";
            Check::warn("lock", format!("cuda:{ordinal} is measured on by {holder}"), remedy)
        }));
    }
    checks.push(counters(&read_to_string(PARAMETERS).unwrap_or_default()));
    checks
}

fn sharing(ordinal: usize, known: &Surveyed) -> Check {
    let mut found = Vec::new();
    if known.gpu.sharing.mig {
        found.push("is an instance of a GPU that others may use (MIG)".to_owned());
    }
    if known.gpu.sharing.mps {
        found.push("is reached through a server that others share (MPS)".to_owned());
    }
    if !known.neighbours.is_empty() {
        let named: Vec<String> = known.neighbours.iter().take(NAMED).map(neighbour).collect();
        let more = known.neighbours.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        found.push(format!("is used by {}{more}", named.join(", ")));
    }
    if found.is_empty() {
        return Check::ok("sharing", format!("cuda:{ordinal} is used by nobody else"));
    }
    let remedy = "Where figures matter, use a GPU that nobody else works on: others' work widens every interval, and memory that they hold is missing.";
    Check::warn("sharing", format!("cuda:{ordinal} {}", found.join(", ")), remedy)
}

/// `python (process 123, 2.1 GiB)`.
fn neighbour(process: &Neighbour) -> String {
    let name = process.name.as_deref().and_then(|name| name.rsplit('/').next()).unwrap_or("a process");
    let memory = process.memory_bytes.map_or_else(String::new, |bytes| format!(", {:.1} GiB", bytes as f64 / GIB));
    format!("{name} (process {}{memory})", process.pid)
}

/// For information: measurements alternate and are ratios, so neither must be set.
fn clocks(ordinal: usize, settings: Settings) -> Check {
    let clock = match (settings.application_mhz, settings.highest_mhz) {
        (Some(set), Some(highest)) => format!("application clock {set} of {highest} MHz"),
        (None, Some(highest)) => format!("clock up to {highest} MHz"),
        _ => "clock not visible from here".into(),
    };
    let persistence = match settings.persistent {
        Some(true) => "persistence mode on",
        Some(false) => "persistence mode off: each start of the driver takes a second more",
        None => "persistence mode not visible from here",
    };
    Check::ok("clocks", format!("cuda:{ordinal} {clock}; {persistence}"))
}

/// For information: without them a profile is made of times.
fn counters(parameters: &str) -> Check {
    let detail = match parameters.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:")).map(str::trim) {
        Some("0") => "performance counters are for everybody",
        Some(_) => {
            "performance counters are for the administrator alone (RmProfilingAdminOnly): profilers such as Nsight Compute need root"
        }
        None => "whether performance counters may be read is not visible from here",
    };
    Check::ok("counters", detail)
}

#[cfg(test)]
mod tests {
    use kernelopt_gpu_agent::cuda::nvml::{GpuInfo, Sharing, Unavailable};

    use super::super::check::Status;
    use super::*;

    fn known(sharing: Sharing, neighbours: Vec<Neighbour>) -> Surveyed {
        let gpu = GpuInfo { uuid: "GPU-1-a".into(), name: "NVIDIA H200".into(), memory_bytes: 0, sharing };
        Surveyed { gpu, neighbours, settings: Settings { persistent: Some(true), application_mhz: Some(1830), highest_mhz: Some(1980) } }
    }

    fn process(pid: u32) -> Neighbour {
        Neighbour { pid, name: Some("/usr/bin/python3".into()), memory_bytes: Some(2 << 30) }
    }

    #[test]
    fn whoever_shares_a_gpu_is_named() {
        let alone = sharing(0, &known(Sharing::default(), Vec::new()));
        assert_eq!((alone.status, alone.detail.as_str()), (Status::Ok, "cuda:0 is used by nobody else"));
        let used = sharing(0, &known(Sharing::default(), (1..=4).map(process).collect()));
        assert_eq!(used.status, Status::Warn);
        assert!(used.detail.starts_with("cuda:0 is used by python3 (process 1, 2.0 GiB), python3"), "{}", used.detail);
        assert!(used.detail.ends_with("(process 3, 2.0 GiB) and 1 more"), "{}", used.detail);
        let both = sharing(2, &known(Sharing { mig: true, mps: true }, Vec::new()));
        assert!(both.detail.contains("MIG") && both.detail.contains("MPS"));
        assert_eq!(neighbour(&Neighbour { pid: 7, name: None, memory_bytes: None }), "a process (process 7)");
    }

    #[test]
    fn without_nvml_there_is_a_warning_and_nothing_is_made_up() {
        let checks = checks(&[], &Err(Unavailable("libnvidia-ml.so.1 is not there".into())));
        assert_eq!(checks.iter().map(|check| check.name).collect::<Vec<_>>(), ["nvml", "counters"]);
        assert_eq!(checks[0].status, Status::Warn);
    }

    #[test]
    fn clocks_and_counters_are_information() {
        let settings = known(Sharing::default(), Vec::new()).settings;
        assert_eq!(clocks(0, settings).detail, "cuda:0 application clock 1830 of 1980 MHz; persistence mode on");
        assert_eq!(clocks(0, Settings::default()).status, Status::Ok);
        assert!(counters("ResmanDebugLevel: 1\nRmProfilingAdminOnly: 1\n").detail.contains("administrator"));
        assert!(counters("RmProfilingAdminOnly: 0\n").detail.contains("everybody"));
        assert!(counters("").detail.contains("not visible"));
    }
}
