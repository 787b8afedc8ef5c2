//! Whether a deployment takes calls at all.
//!
//! A provider that says "not before" closes the gate of the whole deployment. When that time is over the gate opens by a crack: one call, two
//! when it went well, four; a queue that is let loose at once would be the next storm.

use super::Millis;

/// Probes at once that went well before the gate is open.
const WIDEST: u64 = 8;

/// The state of one gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    closed_until: Millis,
    /// None where it is open.
    crack: Option<Crack>,
    /// Counts closings, so that the end of a call from before one says nothing about after.
    closings: u64,
    flying: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Crack {
    width: u64,
    flying: u64,
}

/// How a call got through; to be given back when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    probe: bool,
    closings: u64,
}

/// Why a call does not get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shut {
    /// Not before then.
    Until(Millis),
    /// Not before probes have ended.
    Probing,
}

/// What the end of a call says about the deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answered.
    Good,
    /// It failed.
    Bad,
    /// Nothing: the call was not sent, or its caller left.
    Unknown,
}

impl Gate {
    /// Whether a call would get through.
    ///
    /// # Errors
    /// Why it would not.
    pub const fn look(&self, now: Millis) -> Result<(), Shut> {
        match self.crack {
            _ if now < self.closed_until => Err(Shut::Until(self.closed_until)),
            Some(crack) if crack.flying >= crack.width => Err(Shut::Probing),
            _ => Ok(()),
        }
    }

    /// Lets a call through that was found to get through.
    pub const fn enter(&mut self) -> Pass {
        self.flying += 1;
        if let Some(crack) = &mut self.crack {
            crack.flying += 1;
        }
        Pass { probe: self.crack.is_some(), closings: self.closings }
    }

    /// A call has ended.
    pub fn leave(&mut self, pass: Pass, health: Health) {
        self.flying = self.flying.saturating_sub(1);
        let Some(crack) = self.crack.as_mut().filter(|_| pass.probe && pass.closings == self.closings) else { return };
        crack.flying = crack.flying.saturating_sub(1);
        match health {
            Health::Good => crack.width *= 2,
            Health::Bad => crack.width = 1,
            Health::Unknown => {}
        }
        if crack.width > WIDEST {
            self.crack = None;
        }
    }

    /// Closes it until then, or as long as it is closed already where that is longer. True where it was not closed before.
    pub fn close(&mut self, until: Millis, now: Millis) -> bool {
        let was_open = self.closed_until <= now;
        self.closed_until = self.closed_until.max(until);
        if self.closed_until > now {
            self.closings += 1;
            self.crack = Some(Crack { width: 1, flying: 0 });
        }
        was_open && self.closed_until > now
    }

    /// Calls that are through and have not ended.
    pub const fn flying(&self) -> u64 {
        self.flying
    }

    /// True where it takes calls without reserve.
    pub const fn is_open(&self, now: Millis) -> bool {
        now >= self.closed_until && self.crack.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_end_holds() {
        let mut gate = Gate::default();
        assert!(gate.close(100, 0));
        assert!(!gate.close(50, 10));
        assert_eq!(gate.look(99), Err(Shut::Until(100)));
        assert_eq!(gate.look(100), Ok(()));
        // A time that is over closes nothing.
        let mut gate = Gate::default();
        assert!(!gate.close(10, 10));
        assert!(gate.is_open(10));
    }

    #[test]
    fn it_opens_by_a_crack() {
        let mut gate = Gate::default();
        let early = gate.enter();
        gate.close(100, 0);
        let probe = gate.enter();
        assert_eq!(gate.look(100), Err(Shut::Probing));
        // The end of a call from before says nothing.
        gate.leave(early, Health::Good);
        assert_eq!(gate.look(100), Err(Shut::Probing));
        gate.leave(probe, Health::Good);
        let probes = [gate.enter(), gate.enter()];
        assert_eq!(gate.look(100), Err(Shut::Probing));
        gate.leave(probes[0], Health::Bad);
        assert_eq!(gate.look(100), Err(Shut::Probing));
        gate.leave(probes[1], Health::Unknown);
        for _ in 0..4 {
            let probe = gate.enter();
            gate.leave(probe, Health::Good);
        }
        assert!(gate.is_open(100));
        assert_eq!(gate.flying(), 0);
    }

    #[test]
    fn closed_again_it_waits_for_nobody_from_before() {
        let mut gate = Gate::default();
        gate.close(100, 0);
        let probe = gate.enter();
        gate.close(200, 150);
        gate.leave(probe, Health::Good);
        assert_eq!(gate.look(200), Ok(()));
        let _probe = gate.enter();
        assert_eq!(gate.look(200), Err(Shut::Probing));
    }
}
