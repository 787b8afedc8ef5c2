//! The frontier's store.

use std::sync::Arc;
use std::time::Duration;

use super::metric::{ANSWERS, Counter, Gauge, Histogram, Spec, Unit, WORK};
use super::registry::{Registry, TelemetryError};

const UP: Spec<0> = Spec::new("kernelopt_redis_up", Unit::Flag, [], "1 while Redis answers and takes writes.");
const OFFERS: Spec<1> = Spec::new(
    "kernelopt_frontier_offers_total",
    Unit::Events,
    ["result"],
    "Winners offered to the frontier: improved, it is the best now; kept, a better one was there; stale, of an earlier epoch; failed, to be offered again.",
);
const OFFER: Spec<0> = Spec::new("kernelopt_frontier_offer_seconds", Unit::Seconds, [], "One offer, to the answer.");
const PENDING: Spec<0> =
    Spec::new("kernelopt_frontier_offers_pending", Unit::Things, [], "Winners in the journal that the frontier has not yet been told of.");
const REBUILDS: Spec<0> = Spec::new(
    "kernelopt_frontier_rebuilds_total",
    Unit::Events,
    [],
    "Times that the frontier was made anew from the journal: it was empty, older, or of another epoch.",
);
const REBUILD: Spec<0> = Spec::new("kernelopt_frontier_rebuild_seconds", Unit::Seconds, [], "Making the frontier anew from the journal.");

/// What came of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It is the best known now.
    Improved,
    /// A better one, or itself, was there.
    Kept,
    /// It is of an earlier epoch than the frontier.
    Stale,
    /// The store did not answer; it will be offered again.
    Failed,
}

impl Offered {
    const ALL: [Self; 4] = [Self::Improved, Self::Kept, Self::Stale, Self::Failed];

    const fn label(self) -> &'static str {
        match self {
            Self::Improved => "improved",
            Self::Kept => "kept",
            Self::Stale => "stale",
            Self::Failed => "failed",
        }
    }
}

/// The frontier's store. Clones are the same metrics.
#[derive(Clone)]
pub struct FrontierMetrics(Arc<Inner>);

struct Inner {
    up: Gauge<0>,
    offers: Counter<1>,
    offer: Histogram<0>,
    pending: Gauge<0>,
    rebuilds: Counter<0>,
    rebuild: Histogram<0>,
}

impl FrontierMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        let inner = Inner {
            up: registry.gauge(&UP)?,
            offers: registry.counter(&OFFERS)?,
            offer: registry.histogram(&OFFER, ANSWERS)?,
            pending: registry.gauge(&PENDING)?,
            rebuilds: registry.counter(&REBUILDS)?,
            rebuild: registry.histogram(&REBUILD, WORK)?,
        };
        inner.up.set([], 0.0);
        inner.pending.set([], 0.0);
        inner.rebuilds.add([], 0);
        inner.offer.expect([]);
        inner.rebuild.expect([]);
        Offered::ALL.iter().for_each(|result| inner.offers.add([result.label()], 0));
        Ok(Self(Arc::new(inner)))
    }

    /// Redis answers, or not.
    pub fn up(&self, up: bool) {
        self.0.up.set([], f64::from(u8::from(up)));
    }

    /// An offer was answered, or not, after so long.
    pub fn offered(&self, result: Offered, took: Duration) {
        self.0.offers.add_one([result.label()]);
        self.0.offer.observe([], took);
    }

    /// So many winners are still to be offered.
    pub fn pending(&self, offers: u64) {
        self.0.pending.set([], offers as f64);
    }

    /// The frontier was made anew, in so long.
    pub fn rebuilt(&self, took: Duration) {
        self.0.rebuilds.add_one([]);
        self.0.rebuild.observe([], took);
    }
}
