use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::queue::{Bound, Queue, Stored};
use crate::broker::{Address, BrokerError, Depth, KEPT_FRAMES, RETURNS};

/// All queues, and whose turn it is.
pub(super) struct Hub {
    full_bytes: usize,
    state: Mutex<State>,
    turn: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    durable: HashMap<Address, Durable>,
    /// Subscribers of addresses that are not durable, by a serial number.
    ears: HashMap<Address, BTreeMap<u64, Arc<Queue>>>,
    serial: u64,
}

struct Durable {
    queue: Arc<Queue>,
    consumers: u64,
}

/// A subscriber's place; dropped, nothing is sent there any more.
pub(super) struct Ear {
    hub: Weak<Hub>,
    address: Address,
    serial: Option<u64>,
    queue: Arc<Queue>,
}

impl Ear {
    pub(super) const fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let Some(hub) = self.hub.upgrade() else { return };
        let mut state = hub.lock();
        match self.serial {
            None => {
                if let Some(durable) = state.durable.get_mut(&self.address) {
                    durable.consumers -= 1;
                }
            }
            Some(serial) => {
                let empty = state.ears.get_mut(&self.address).is_some_and(|ears| {
                    ears.remove(&serial);
                    ears.is_empty()
                });
                if empty {
                    state.ears.remove(&self.address);
                }
            }
        }
    }
}

impl Hub {
    pub(super) fn new(full_bytes: usize) -> Self {
        Self { full_bytes, state: Mutex::default(), turn: Arc::new(Semaphore::new(1)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn publish(&self, to: &Address, stored: Stored) -> Result<(), BrokerError> {
        let mut state = self.lock();
        if to.is_durable() {
            let taken = state.durable(to, self.full_bytes).queue.push(stored);
            return if taken { Ok(()) } else { Err(BrokerError::Full(to.to_string())) };
        }
        let mut heard = false;
        for (address, ears) in &state.ears {
            if address == to || (*to == Address::Everyone && matches!(address, Address::Agent(_))) {
                // An ear that is full forgets its oldest and takes this one.
                heard |= ears.values().filter(|queue| queue.push(stored.clone())).count() > 0;
            }
        }
        match to {
            Address::Agent(_) if !heard => Err(BrokerError::Unroutable(to.to_string())),
            _ => Ok(()),
        }
    }

    pub(super) fn listen(self: &Arc<Self>, to: &Address) -> Result<Ear, BrokerError> {
        let mut state = self.lock();
        let (serial, queue) = if *to == Address::Everyone {
            return Err(BrokerError::Topology("nobody subscribes to everyone alone; an agent's address hears it too".into()));
        } else if to.is_durable() {
            let durable = state.durable(to, self.full_bytes);
            durable.consumers += 1;
            (None, durable.queue.clone())
        } else {
            state.serial += 1;
            let (serial, queue) = (state.serial, Arc::new(Queue::new(Bound::Frames(KEPT_FRAMES))));
            state.ears.entry(to.clone()).or_default().insert(serial, queue.clone());
            (Some(serial), queue)
        };
        Ok(Ear { hub: Arc::downgrade(self), address: to.clone(), serial, queue })
    }

    pub(super) fn depth(&self, of: &Address) -> Option<Depth> {
        let state = self.lock();
        let durable = state.durable.get(of)?;
        Some(Depth { ready: durable.queue.len() as u64, consumers: durable.consumers })
    }

    /// Waits for the turn; turns come in the order in which they were asked for.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turn.clone().acquire_owned().await.ok()
    }

    /// A frame that was delivered and not settled; to the dead once it came back too often.
    pub(super) fn put_back(&self, queue: &Arc<Queue>, stored: Stored) {
        let stored = Stored { returns: stored.returns + 1, ..stored };
        if stored.returns > RETURNS { self.bury(queue, stored) } else { queue.put_back(stored) }
    }

    /// A frame that nobody could read. Who reads the dead and refuses one is rid of it.
    pub(super) fn bury(&self, queue: &Arc<Queue>, stored: Stored) {
        let dead = self.lock().durable(&Address::Dead, self.full_bytes).queue.clone();
        if !Arc::ptr_eq(&dead, queue) {
            dead.push(Stored::new(stored.body));
        }
    }
}

impl State {
    fn durable(&mut self, address: &Address, full_bytes: usize) -> &mut Durable {
        let bound = if *address == Address::Dead { Bound::Frames(KEPT_FRAMES) } else { Bound::Bytes(full_bytes) };
        self.durable.entry(address.clone()).or_insert_with(|| Durable { queue: Arc::new(Queue::new(bound)), consumers: 0 })
    }
}
