//! The rules of a frontier as a pure state: what the coordinator folds its journal into, and what the backends are held against.

use std::collections::BTreeMap;

use super::offer::{Entry, Key, Offer, Offered};

/// A frontier in memory, without locks or waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table(BTreeMap<Key, Slot>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    entry: Entry,
    /// Latest epoch that the key has heard of.
    epoch: u64,
}

impl Table {
    /// Offers a candidate.
    pub fn offer(&mut self, offer: &Offer) -> Offered {
        let first = |epoch| Slot { entry: Entry { offer: offer.clone(), revision: 1 }, epoch };
        let Some(slot) = self.0.get_mut(&offer.key()) else {
            self.0.insert(offer.key(), first(offer.epoch));
            return Offered::Improved { revision: 1 };
        };
        if offer.epoch < slot.epoch {
            return Offered::Stale { epoch: slot.epoch };
        }
        slot.epoch = offer.epoch;
        if offer.rank() >= slot.entry.offer.rank() {
            return Offered::Kept { best: slot.entry.clone() };
        }
        slot.entry = Entry { offer: offer.clone(), revision: slot.entry.revision + 1 };
        Offered::Improved { revision: slot.entry.revision }
    }

    /// The best one known.
    pub fn best(&self, key: &Key) -> Option<&Entry> {
        self.0.get(key).map(|slot| &slot.entry)
    }

    /// All entries, by key.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.0.values().map(|slot| &slot.entry)
    }

    /// Entries after a key, at most `most`.
    pub(super) fn after(&self, key: Option<&Key>, most: usize) -> Vec<Entry> {
        let from = key.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.0.range((from, std::ops::Bound::Unbounded)).take(most).map(|(_, slot)| slot.entry.clone()).collect()
    }

    /// Becomes exactly `entries`, fenced against epochs before `epoch`; the latest epoch that it has heard of where that is later.
    pub(super) fn rebuild(&mut self, entries: &[Entry], epoch: u64) -> Result<(), u64> {
        if let Some(later) = self.0.values().map(|slot| slot.epoch).max().filter(|latest| *latest > epoch) {
            return Err(later);
        }
        self.0 = entries.iter().map(|entry| (entry.offer.key(), Slot { entry: entry.clone(), epoch })).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::digest;
    use super::*;
    use crate::digest::Digest;
    use crate::message::{DeviceClass, JobId};

    /// Few values of everything, so that keys meet and times tie.
    fn offer(epoch: u64) -> impl Strategy<Value = Offer> {
        (0u8..2, 0u8..2, 0u8..3, 0u8..2, 1u64..4, 1u64..3, 0u8..2).prop_map(move |(kernel, class, candidate, document, time, base, job)| {
            Offer {
                fingerprint: Digest::of([[kernel].as_slice()]),
                class: DeviceClass::parse(&format!("class-{class}")).unwrap(),
                candidate: Digest::of([[candidate].as_slice()]),
                document: Digest::of([[document].as_slice()]),
                time_ns: time,
                baseline_ns: base,
                job: JobId::parse(&format!("job-{job}")).unwrap(),
                epoch,
            }
        })
    }

    /// Offers, and the same ones in another order, each at least once and some again.
    fn shuffled(epoch: u64) -> impl Strategy<Value = (Vec<Offer>, Vec<Offer>)> {
        prop::collection::vec(offer(epoch), 1..40).prop_flat_map(|offers| {
            let again = prop::collection::vec(prop::sample::select(offers.clone()), 0..40);
            let other = again.prop_map({
                let offers = offers.clone();
                move |again| offers.iter().cloned().chain(again).collect::<Vec<_>>()
            });
            (Just(offers), other.prop_shuffle())
        })
    }

    fn fold<'a>(offers: impl IntoIterator<Item = &'a Offer>) -> (Table, u64) {
        let mut table = Table::default();
        let improved = offers.into_iter().filter(|offer| matches!(table.offer(offer), Offered::Improved { .. })).count();
        (table, improved as u64)
    }

    proptest! {
        #[test]
        fn order_and_repetition_change_nothing((offers, others) in shuffled(7)) {
            let ((one, improved), (other, _)) = (fold(&offers), fold(&others));
            prop_assert_eq!(digest(one.entries()), digest(other.entries()));
            prop_assert_eq!(one.entries().map(|entry| entry.revision).sum::<u64>(), improved);
            for entry in one.entries() {
                let least = offers.iter().filter(|offer| offer.key() == entry.offer.key()).min_by_key(|offer| (offer.time_ns, offer.candidate));
                prop_assert_eq!(least.map(|offer| (offer.time_ns, offer.candidate)), Some((entry.offer.time_ns, entry.offer.candidate)));
            }
        }

        #[test]
        fn a_late_repetition_of_an_earlier_epoch_changes_nothing((offers, _) in shuffled(1), (later, _) in shuffled(2), at in any::<prop::sample::Index>()) {
            let (expected, _) = fold(offers.iter().chain(&later));
            let (before, after) = later.split_at(at.index(later.len()));
            let (found, _) = fold(offers.iter().chain(before).chain(&offers).chain(after).chain(&offers));
            prop_assert_eq!(digest(expected.entries()), digest(found.entries()));
        }

        #[test]
        fn a_rebuilt_one_is_equal((offers, _) in shuffled(3), (more, _) in shuffled(4)) {
            let (mut table, _) = fold(&offers);
            let entries: Vec<Entry> = table.entries().cloned().collect();
            let (mut other, _) = fold(&more);
            prop_assert_eq!(other.rebuild(&entries, 4), Ok(()));
            table.rebuild(&entries, 4).unwrap();
            prop_assert_eq!(&other, &table);
            prop_assert_eq!(other.rebuild(&entries, 4), Ok(()));
            prop_assert_eq!(&other, &table);
            prop_assert_eq!(other.rebuild(&[], 3), Err(4));
            prop_assert_eq!(other, table);
        }
    }
}
