//! Calls in flight.

/// How many there are. Counted also where there is no limit: at the end of everything it is zero, and tests look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots(u64);

impl Slots {
    /// Whether one more fits under `limit`.
    pub const fn fit(&self, limit: u64) -> bool {
        self.0 < limit
    }

    /// Takes one.
    pub const fn take(&mut self) {
        self.0 += 1;
    }

    /// Gives one back. The ledger gives each reservation back once.
    pub const fn give(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }

    /// Taken now.
    pub const fn taken(&self) -> u64 {
        self.0
    }
}
