//! Names on the broker. They hold a version: arguments of a queue cannot be changed, so another set of arguments is another name.

use lapin::types::ShortString;
use rand::RngExt;

use crate::broker::Address;

const VERSION: &str = "v1";

/// Names of one cluster. All are shorter than the 255 bytes that AMQP allows: prefix 40, class 100, agent 80.
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}.{VERSION}") }
    }

    fn name(&self, rest: &str) -> ShortString {
        short(&format!("{}.{rest}", self.prefix))
    }

    /// The durable queue of an address; `None` where it is not durable.
    pub(super) fn durable(&self, address: &Address) -> Option<ShortString> {
        match address {
            Address::Lane(class) => Some(self.name(&format!("lane.{class}"))),
            Address::Reports => Some(self.name("reports")),
            Address::Dead => Some(self.dead()),
            Address::Pulses | Address::Agent(_) | Address::Everyone => None,
        }
    }

    pub(super) fn dead(&self) -> ShortString {
        self.name("dead")
    }

    pub(super) fn leader(&self) -> ShortString {
        self.name("leader")
    }

    /// The exchange that takes a frame to one address.
    pub(super) fn direct(&self) -> ShortString {
        self.name("direct")
    }

    /// The exchange that takes a frame to all agents.
    pub(super) fn everyone(&self) -> ShortString {
        self.name("everyone")
    }

    /// A name for a subscriber's own queue, never used before.
    pub(super) fn own(&self, address: &Address) -> ShortString {
        self.name(&format!("{}.{:016x}", key(address), rand::rng().random::<u64>()))
    }
}

/// The routing key of an address that is not durable.
pub(super) fn key(address: &Address) -> ShortString {
    match address {
        Address::Agent(agent) => short(&format!("agent.{agent}")),
        other => short(other.kind()),
    }
}

/// A string that fits; longer ones would be a panic of the client.
pub(super) fn short(text: &str) -> ShortString {
    let end = text.floor_char_boundary(255);
    ShortString::try_new(&text[..end]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AgentId, DeviceClass};

    #[test]
    fn the_longest_names_fit_and_stay_apart() {
        let names = Names::new(&"p".repeat(40));
        let class = |last: &str| Address::Lane(DeviceClass::parse(&format!("{}{last}", "c".repeat(99))).unwrap());
        assert_ne!(names.durable(&class("a")), names.durable(&class("b")));
        let agent = Address::Agent(AgentId::parse(&"a".repeat(80)).unwrap());
        assert!(names.own(&agent).as_str().len() < 255);
        assert_ne!(names.own(&agent), names.own(&agent));
        assert_eq!(short(&"ü".repeat(200)).as_str().len(), 254);
    }
}
