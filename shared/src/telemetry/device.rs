//! What the GPUs of a host are doing, as NVML says it.

use std::sync::Arc;

use super::labels::{Capped, OTHER};
use super::metric::{Counter, Gauge, Spec, Unit};
use super::registry::{Registry, TelemetryError};
use crate::message::AgentId;
use crate::verdict::Conditions;

const CLOCK: Spec<1> =
    Spec::new("kernelopt_device_sm_clock_hertz", Unit::Hertz, ["device"], "Clock of the multiprocessors; the least of a measurement.");
const TEMPERATURE: Spec<1> =
    Spec::new("kernelopt_device_temperature_celsius", Unit::Celsius, ["device"], "Temperature of the GPU; the greatest of a measurement.");
const POWER: Spec<1> =
    Spec::new("kernelopt_device_power_watts", Unit::Watts, ["device"], "Power of the board; the greatest of a measurement.");
const MEASURED: Spec<1> =
    Spec::new("kernelopt_device_measurements_total", Unit::Events, ["device"], "Evaluations during which the GPU was watched.");
const THROTTLED: Spec<1> = Spec::new(
    "kernelopt_device_measurements_throttled_total",
    Unit::Events,
    ["device"],
    "Evaluations during which the GPU slowed down for power, temperature or a hardware reason.",
);
const THROTTLE: Spec<2> = Spec::new(
    "kernelopt_device_throttle_reasons_total",
    Unit::Events,
    ["device", "reason"],
    "Evaluations during which NVML gave this reason for a lower clock.",
);
const XIDS: Spec<3> = Spec::new(
    "kernelopt_device_xids_total",
    Unit::Events,
    ["device", "fault", "xid"],
    "XID events of the driver. fault: application, a candidate's own doing; hardware, the GPU must be looked at; other.",
);

/// NVML's clocks-event reasons (nvml.h, nvmlClocksEventReason*) but for idleness, and whether they slow a kernel down beyond what is set.
const REASONS: [(u64, &str, bool); 8] = [
    (0x002, "applications_clocks_setting", false),
    (0x004, "sw_power_cap", true),
    (0x008, "hw_slowdown", true),
    (0x010, "sync_boost", false),
    (0x020, "sw_thermal_slowdown", true),
    (0x040, "hw_thermal_slowdown", true),
    (0x080, "hw_power_brake_slowdown", true),
    (0x100, "display_clock_setting", false),
];

/// XIDs with a name of their own and whose fault they are ("XID Errors", NVIDIA GPU deployment and management documentation).
const KNOWN_XIDS: [(u64, &str, &str); 20] = [
    (13, "13", "application"),
    (31, "31", "application"),
    (43, "43", "application"),
    (45, "45", "application"),
    (48, "48", "hardware"),
    (61, "61", "hardware"),
    (62, "62", "hardware"),
    (63, "63", "hardware"),
    (64, "64", "hardware"),
    (69, "69", "application"),
    (74, "74", "hardware"),
    (79, "79", "hardware"),
    (92, "92", "hardware"),
    (94, "94", "hardware"),
    (95, "95", "hardware"),
    (109, "109", "application"),
    (119, "119", "hardware"),
    (120, "120", "hardware"),
    (140, "140", "hardware"),
    (143, "143", "hardware"),
];

/// A GPU at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNow {
    /// Clock of the multiprocessors.
    pub sm_mhz: u32,
    /// Temperature.
    pub celsius: u32,
    /// Board power.
    pub power_mw: u32,
}

/// The GPUs of an agent's process.
pub struct DeviceMetrics {
    names: Arc<Capped>,
    clock: Gauge<1>,
    temperature: Gauge<1>,
    power: Gauge<1>,
    measured: Counter<1>,
    throttled: Counter<1>,
    throttle: Counter<2>,
    xids: Counter<3>,
}

impl DeviceMetrics {
    pub(super) fn new(registry: &Registry, names: Arc<Capped>) -> Result<Self, TelemetryError> {
        Ok(Self {
            names,
            clock: registry.gauge(&CLOCK)?,
            temperature: registry.gauge(&TEMPERATURE)?,
            power: registry.gauge(&POWER)?,
            measured: registry.counter(&MEASURED)?,
            throttled: registry.counter(&THROTTLED)?,
            throttle: registry.counter(&THROTTLE)?,
            xids: registry.counter(&XIDS)?,
        })
    }

    /// Makes the series of a device appear.
    pub(super) fn expect(&self, device: &str) {
        self.measured.add([device], 0);
        self.throttled.add([device], 0);
        REASONS.iter().for_each(|(_, reason, _)| self.throttle.add([device, reason], 0));
        KNOWN_XIDS.iter().for_each(|(_, xid, fault)| self.xids.add([device, fault, xid], 0));
    }

    /// What a GPU is doing, measured or not.
    pub fn sampled(&self, agent: &AgentId, now: DeviceNow) {
        let device = self.names.label(agent.device());
        self.clock.set([device], f64::from(now.sm_mhz) * 1e6);
        self.temperature.set([device], f64::from(now.celsius));
        self.power.set([device], f64::from(now.power_mw) / 1e3);
    }

    /// What a GPU was doing during an evaluation.
    pub(super) fn measured(&self, agent: &AgentId, seen: &Conditions) {
        let device = self.names.label(agent.device());
        self.sampled(agent, DeviceNow { sm_mhz: seen.sm_mhz[0], celsius: seen.celsius, power_mw: seen.power_mw });
        self.measured.add_one([device]);
        let reasons = REASONS.iter().filter(|(bit, _, _)| seen.throttle & bit != 0);
        self.throttled.add([device], u64::from(reasons.clone().any(|(_, _, slows)| *slows)));
        reasons.for_each(|(_, reason, _)| self.throttle.add_one([device, reason]));
    }

    /// The driver reported an XID.
    pub fn xid(&self, agent: &AgentId, xid: u64) {
        let (_, name, fault) = KNOWN_XIDS.iter().find(|(known, _, _)| *known == xid).unwrap_or(&(0, OTHER, OTHER));
        self.xids.add_one([self.names.label(agent.device()), fault, name]);
    }
}
