use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::Line;
use crate::broker::Receipt;

/// Receipts that are with their holders, so that a cut can take them away.
#[derive(Default)]
pub(super) struct Outstanding {
    receipts: Mutex<Receipts>,
}

#[derive(Default)]
struct Receipts {
    next: u64,
    by_number: BTreeMap<u64, Box<dyn Receipt>>,
}

impl Outstanding {
    fn lock(&self) -> MutexGuard<'_, Receipts> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, receipt: Box<dyn Receipt>) -> u64 {
        let mut receipts = self.lock();
        let number = receipts.next;
        receipts.next += 1;
        receipts.by_number.insert(number, receipt);
        number
    }

    fn take(&self, number: u64) -> Option<Box<dyn Receipt>> {
        self.lock().by_number.remove(&number)
    }

    pub(super) async fn return_all(&self) {
        let receipts = std::mem::take(&mut self.lock().by_number);
        for receipt in receipts.into_values() {
            receipt.hand_back().await;
        }
    }
}

/// A receipt that a cut makes worthless.
pub(super) struct FaultyReceipt {
    line: Arc<Line>,
    number: u64,
}

impl FaultyReceipt {
    pub(super) fn new(line: Arc<Line>, receipt: Box<dyn Receipt>) -> Self {
        let number = line.outstanding.put(receipt);
        Self { line, number }
    }
}

#[async_trait]
impl Receipt for FaultyReceipt {
    async fn acknowledge(self: Box<Self>) -> bool {
        match self.line.outstanding.take(self.number) {
            Some(receipt) => receipt.acknowledge().await,
            None => false,
        }
    }

    async fn hand_back(self: Box<Self>) {
        if let Some(receipt) = self.line.outstanding.take(self.number) {
            receipt.hand_back().await;
        }
    }

    async fn refuse(self: Box<Self>) {
        if let Some(receipt) = self.line.outstanding.take(self.number) {
            receipt.refuse().await;
        }
    }
}

impl Drop for FaultyReceipt {
    fn drop(&mut self) {
        // Dropping the inner receipt gives the frame back.
        drop(self.line.outstanding.take(self.number));
    }
}
