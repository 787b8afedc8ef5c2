//! Money, or tokens, that are spent once and never come back. A rate refills, a budget does not: they are two types.

/// The state of one budget. The limit is given with each call, so that it may be raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Gone.
    pub spent: u64,
    /// What calls in flight may take yet.
    pub reserved: u64,
}

/// Whether a reservation fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It does.
    Now,
    /// It does if calls in flight take less than they may.
    IfLess,
    /// It does not and never will.
    Never,
}

impl Budget {
    /// Whether `amount` can be reserved without what is spent and reserved passing `limit`.
    pub fn fit(&self, limit: u64, amount: u64) -> Fit {
        let with = |taken: u64| taken.saturating_add(amount);
        if with(self.spent.saturating_add(self.reserved)) <= limit {
            Fit::Now
        } else if with(self.spent) <= limit {
            Fit::IfLess
        } else {
            Fit::Never
        }
    }

    /// Reserves.
    pub const fn reserve(&mut self, amount: u64) {
        self.reserved = self.reserved.saturating_add(amount);
    }

    /// Gives a reservation up and spends `used`, which is more only where the reservation was no bound.
    pub const fn settle(&mut self, reserved: u64, used: u64) {
        self.reserved = self.reserved.saturating_sub(reserved);
        self.spent = self.spent.saturating_add(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_may_come_back_and_what_is_spent_does_not() {
        let mut budget = Budget::default();
        budget.reserve(60);
        assert_eq!((budget.fit(100, 40), budget.fit(100, 41), budget.fit(100, 101)), (Fit::Now, Fit::IfLess, Fit::Never));
        budget.settle(60, 10);
        assert_eq!((budget.fit(100, 90), budget.fit(100, 91)), (Fit::Now, Fit::Never));
        assert_eq!(budget, Budget { spent: 10, reserved: 0 });
    }

    #[test]
    fn nothing_overflows() {
        let mut budget = Budget { spent: u64::MAX - 1, reserved: 5 };
        assert_eq!(budget.fit(u64::MAX - 1, u64::MAX), Fit::Never);
        budget.reserve(u64::MAX);
        budget.settle(u64::MAX, u64::MAX);
        assert_eq!(budget.spent, u64::MAX);
    }
}
