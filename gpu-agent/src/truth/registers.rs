//! The vectors that steps work on.

use super::program::{Constant, NodePlan, Slot};
use super::types::Kind;

/// An operand: a value for each lane, or one for all.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arg<'a, T> {
    Wide(&'a [T]),
    Single(T),
}

impl<T: Copy> Arg<'_, T> {
    /// The value of one lane.
    pub(super) fn lane(&self, lane: usize) -> T {
        match self {
            Self::Wide(values) => values[lane],
            Self::Single(value) => *value,
        }
    }
}

/// Registers of one kind.
#[derive(Debug)]
pub(super) struct Bank<T> {
    single: Vec<T>,
    /// Empty until first written: after reuse many are never needed.
    wide: Vec<Vec<T>>,
    width: usize,
}

impl<T: Copy + Default> Bank<T> {
    fn new((single, wide): (usize, usize), width: usize) -> Self {
        Self { single: vec![T::default(); single], wide: vec![Vec::new(); wide], width }
    }
}

/// Registers of all kinds.
#[derive(Debug)]
pub(super) struct Registers {
    float: Bank<f64>,
    int: Bank<i64>,
    bool: Bank<bool>,
}

/// A type that registers hold.
pub(super) trait Lane: Copy + Default {
    fn bank(registers: &Registers) -> &Bank<Self>;
    fn bank_mut(registers: &mut Registers) -> &mut Bank<Self>;
}

macro_rules! lane {
    ($type:ty, $field:ident) => {
        impl Lane for $type {
            fn bank(registers: &Registers) -> &Bank<Self> {
                &registers.$field
            }
            fn bank_mut(registers: &mut Registers) -> &mut Bank<Self> {
                &mut registers.$field
            }
        }
    };
}
lane!(f64, float);
lane!(i64, int);
lane!(bool, bool);

impl Registers {
    /// Registers for `plan`, constants in place.
    pub(super) fn new(plan: &NodePlan, width: usize) -> Self {
        let [float, int, bool] = plan.registers;
        let mut registers = Self { float: Bank::new(float, width), int: Bank::new(int, width), bool: Bank::new(bool, width) };
        for (slot, constant) in &plan.constants {
            match *constant {
                Constant::Float(value) => registers.float.single[slot.number] = value,
                Constant::Int(value) => registers.int.single[slot.number] = value,
                Constant::Bool(value) => registers.bool.single[slot.number] = value,
            }
        }
        registers
    }

    /// The first `lanes` values of a register.
    pub(super) fn arg<T: Lane>(&self, slot: Slot, lanes: usize) -> Arg<'_, T> {
        let bank = T::bank(self);
        if slot.wide { Arg::Wide(&bank.wide[slot.number][..lanes]) } else { Arg::Single(bank.single[slot.number]) }
    }

    /// Lets `make` write the first `lanes` values of register `to` while it reads others.
    pub(super) fn write<T: Lane, R>(&mut self, to: Slot, lanes: usize, make: impl FnOnce(&Self, &mut [T]) -> R) -> R {
        if to.wide {
            let bank = T::bank_mut(self);
            let mut values = std::mem::take(&mut bank.wide[to.number]);
            if values.is_empty() {
                values = vec![T::default(); bank.width];
            }
            let result = make(self, &mut values[..lanes]);
            T::bank_mut(self).wide[to.number] = values;
            result
        } else {
            let mut value = [T::default()];
            let result = make(self, &mut value);
            T::bank_mut(self).single[to.number] = value[0];
            result
        }
    }
}

/// Position of a kind among [`NodePlan::registers`].
pub(super) const fn bank_of(kind: Kind) -> usize {
    match kind {
        Kind::Float => 0,
        Kind::Int => 1,
        Kind::Bool => 2,
    }
}

/// `out = f(a)`, lane by lane.
pub(super) fn map1<A: Copy, T: Copy>(out: &mut [T], a: Arg<'_, A>, f: impl Fn(A) -> T) {
    match a {
        Arg::Wide(a) => out.iter_mut().zip(a).for_each(|(out, a)| *out = f(*a)),
        Arg::Single(a) => out.fill(f(a)),
    }
}

/// `out = f(a, b)`, lane by lane.
pub(super) fn map2<A: Copy, B: Copy, T: Copy>(out: &mut [T], a: Arg<'_, A>, b: Arg<'_, B>, f: impl Fn(A, B) -> T) {
    match (a, b) {
        (Arg::Wide(a), Arg::Wide(b)) => out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = f(*a, *b)),
        (Arg::Wide(a), Arg::Single(b)) => out.iter_mut().zip(a).for_each(|(out, a)| *out = f(*a, b)),
        (Arg::Single(a), Arg::Wide(b)) => out.iter_mut().zip(b).for_each(|(out, b)| *out = f(a, *b)),
        (Arg::Single(a), Arg::Single(b)) => out.fill(f(a, b)),
    }
}

/// `out = f(a, b, c)`, lane by lane.
pub(super) fn map3<A: Copy, B: Copy, C: Copy, T>(out: &mut [T], a: Arg<'_, A>, b: Arg<'_, B>, c: Arg<'_, C>, f: impl Fn(A, B, C) -> T) {
    for (lane, out) in out.iter_mut().enumerate() {
        *out = f(a.lane(lane), b.lane(lane), c.lane(lane));
    }
}
