//! Names of jobs, agents and kinds of device.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no {what}: write 1 to {longest} of a-z, A-Z, 0-9, '-', '_', '.' and '/'")]
pub struct NameError {
    what: &'static str,
    name: String,
    longest: usize,
}

/// A short name that is safe in a queue's name, a path, a metric's label and a URL.
macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $longest:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type(String);

        impl $type {
            /// Checks a name.
            ///
            /// # Errors
            /// It is empty, too long, or has other characters.
            pub fn parse(name: &str) -> Result<Self, NameError> {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
                if (1..=$longest).contains(&name.len()) && name.bytes().all(plain) && !name.contains("..") {
                    Ok(Self(name.to_owned()))
                } else {
                    Err(NameError { what: $what, name: name.chars().take(2 * $longest).collect(), longest: $longest })
                }
            }

            /// The name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl utoipa::PartialSchema for $type {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                crate::api::text_schema($what, 1, $longest, "^(\\.?[A-Za-z0-9_/-])*\\.?$")
            }
        }

        impl utoipa::ToSchema for $type {}

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

name! {
    /// A job, `7f3a9c2e41`.
    JobId, "job", 40
}

name! {
    /// One device of one agent process, `HOST/cuda0`: what takes tasks one at a time.
    AgentId, "agent", 80
}

name! {
    /// An agent process with all its devices, the part of an [`AgentId`] before the last slash.
    HostName, "host", 70
}

name! {
    /// Devices whose figures may be compared: one product, one memory size, one architecture, `nvidia-h200-140g-sm90`.
    DeviceClass, "device class", 100
}

impl AgentId {
    /// The process's name, the part before the last slash.
    pub fn host(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(host, _)| host)
    }

    /// The device's name within the process, the part after the last slash.
    pub fn device(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, device)| device)
    }
}

/// What executes kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A processor.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
}

/// Which device exactly: goes with every report, so that a figure is never filed under another device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DeviceIdentity {
    /// Processor or GPU.
    pub kind: DeviceKind,
    /// UUID of a GPU, machine id and processor of a host: the same after a restart.
    pub uuid: String,
    /// As it names itself, `NVIDIA H200`.
    pub product: String,
    /// Memory of a GPU, zero of a processor.
    pub memory_bytes: u64,
    /// `sm_90`; of a processor the widest vector extension, `x86_64-avx2`.
    pub architecture: String,
    /// MIG profile, `1g.18gb`, where it is a part of a GPU.
    #[serde(default)]
    pub partition: Option<String>,
    /// Release of the driver; empty of a processor.
    #[serde(default)]
    pub driver: String,
    /// Threads that kernels of a processor use; zero of a GPU.
    #[serde(default)]
    pub threads: u32,
}

impl DeviceClass {
    /// The class that a name makes by itself, in lower case.
    pub fn named(name: &str) -> Self {
        Self(slug(name, 100))
    }
}

impl DeviceIdentity {
    /// The class: product, memory or threads, architecture and partition, in lower case.
    pub fn class(&self) -> DeviceClass {
        let size = match self.kind {
            DeviceKind::Cpu => format!("{}t", self.threads),
            DeviceKind::Cuda => format!("{}g", self.memory_bytes.div_ceil(1 << 30)),
        };
        let architecture = self.architecture.replace('_', "");
        let partition = self.partition.as_deref().unwrap_or_default();
        let words = [self.product.as_str(), &size, &architecture, partition];
        DeviceClass(slug(&words.join(" "), 100))
    }
}

/// Words in lower case with hyphens between them.
fn slug(text: &str, longest: usize) -> String {
    let mut slug = String::new();
    for c in text.chars() {
        match c {
            c if c.is_ascii_alphanumeric() => slug.push(c.to_ascii_lowercase()),
            _ if slug.ends_with('-') || slug.is_empty() => {}
            _ => slug.push('-'),
        }
    }
    slug.truncate(longest);
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "device".into() } else { slug.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> DeviceIdentity {
        DeviceIdentity {
            kind: DeviceKind::Cuda,
            uuid: "GPU-210d51c9".into(),
            product: "NVIDIA H200".into(),
            memory_bytes: 139 << 30,
            architecture: "sm_90".into(),
            partition: None,
            driver: "580.159".into(),
            threads: 0,
        }
    }

    #[test]
    fn a_class_is_what_can_be_compared() {
        assert_eq!(h200().class().as_str(), "nvidia-h200-139g-sm90");
        let slice = DeviceIdentity { partition: Some("1g.18gb".into()), ..h200() };
        assert_eq!(slice.class().as_str(), "nvidia-h200-139g-sm90-1g-18gb");
        let elsewhere = DeviceIdentity { uuid: "GPU-2".into(), driver: "590".into(), ..h200() };
        assert_eq!(elsewhere.class(), h200().class());
        let nameless = DeviceIdentity { product: "???".into(), ..h200() };
        assert!(DeviceClass::parse(nameless.class().as_str()).is_ok());
    }

    #[test]
    fn names_stay_inside_queues_and_paths() {
        let agent = AgentId::parse("gpu7/cuda0").unwrap();
        assert_eq!((agent.host(), agent.device()), ("gpu7", "cuda0"));
        for bad in ["", "a b", "a\n", "../x", "ü", &"x".repeat(81)] {
            assert!(AgentId::parse(bad).is_err(), "{bad:?}");
        }
    }
}
