//! Which device this is, the same after a restart.

use std::fs::read_to_string;

use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{DeviceIdentity, DeviceKind};

use crate::cuda::device::DeviceFacts;
use crate::host;

/// Where a host's identity is kept (machine-id(5)).
const MACHINE_IDS: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
/// What stands between a GPU's product and the profile of an instance of it in the name of the instance.
const PARTITION: &str = " MIG ";

/// The host's name as it may stand in an agent's: letters, digits, `-`, `_` and `.`.
pub fn host_name() -> String {
    let name = read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = name.trim().chars().take(60).map(plain).collect();
    if name.is_empty() || name.contains("..") { "host".into() } else { name }
}

/// This host's processor.
pub fn processor() -> DeviceIdentity {
    let product = host::processor();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    DeviceIdentity {
        kind: DeviceKind::Cpu,
        uuid: processor_uuid(&machine(), &product),
        product,
        memory_bytes: 0,
        architecture: format!("{}-{}", std::env::consts::ARCH, widest_vectors()),
        partition: None,
        driver: String::new(),
        threads: u32::try_from(threads).unwrap_or(u32::MAX),
    }
}

/// `CPU-` and a hash: of the machine's identity, which is nobody else's business (machine-id(5)), and its processor.
fn processor_uuid(machine: &str, product: &str) -> String {
    format!("CPU-{}", Digest::of([machine.as_bytes(), product.as_bytes()]))
}

/// The machine's identity; its name where it has none, as in some containers.
fn machine() -> String {
    let read = |path: &&str| read_to_string(path).ok().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
    MACHINE_IDS.iter().find_map(read).unwrap_or_else(host_name)
}

/// The widest vector extension that compilers use here.
fn widest_vectors() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            return "avx512";
        }
        if is_x86_feature_detected!("avx2") {
            return "avx2";
        }
        "sse2"
    }
    #[cfg(target_arch = "aarch64")]
    {
        if std::arch::is_aarch64_feature_detected!("sve") { "sve" } else { "neon" }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        "scalar"
    }
}

/// A GPU, or the instance of one: that is named `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
pub fn gpu(facts: &DeviceFacts) -> DeviceIdentity {
    let (product, partition) = match facts.name.split_once(PARTITION) {
        Some((product, profile)) => (product, Some(profile.trim().to_owned())),
        None => (facts.name.as_str(), None),
    };
    DeviceIdentity {
        kind: DeviceKind::Cuda,
        uuid: facts.uuid.clone(),
        product: product.to_owned(),
        memory_bytes: facts.memory_bytes,
        architecture: format!("sm_{}", facts.architecture),
        partition,
        driver: facts.driver.clone(),
        threads: 0,
    }
}

#[cfg(test)]
mod tests {
    use kernelopt_shared::message::AgentId;

    use super::*;

    #[test]
    fn a_host_can_be_named_and_its_processor_told_from_others() {
        assert!(AgentId::parse(&format!("{}/cpu", host_name())).is_ok());
        let found = processor();
        assert_eq!(found, processor());
        assert!(found.threads > 0 && found.architecture.starts_with(std::env::consts::ARCH), "{found:?}");
        assert_ne!(processor_uuid("a", "AMD EPYC"), processor_uuid("b", "AMD EPYC"));
        assert_ne!(processor_uuid("a", "AMD EPYC"), processor_uuid("a", "Intel Xeon"));
        assert!(!found.uuid.contains(&machine()), "the machine's identity is confidential");
    }

    #[test]
    fn a_part_of_a_gpu_is_no_whole_one() {
        let whole = DeviceFacts {
            name: "NVIDIA A100-SXM4-40GB".into(),
            uuid: "GPU-1".into(),
            architecture: 80,
            multiprocessors: 108,
            l2_bytes: 40 << 20,
            memory_bytes: 40 << 30,
            shared_bytes: 163 << 10,
            driver: "580.159.04".into(),
        };
        let part = DeviceFacts { name: format!("{} MIG 1g.5gb", whole.name), memory_bytes: 5 << 30, ..whole.clone() };
        let (whole, part) = (gpu(&whole), gpu(&part));
        assert_eq!((whole.architecture.as_str(), whole.partition.clone()), ("sm_80", None));
        assert_eq!((part.product.as_str(), part.partition.as_deref()), ("NVIDIA A100-SXM4-40GB", Some("1g.5gb")));
        assert_ne!(part.class(), whole.class());
    }
}
