//! The gateway: settings in force, admission, upstreams and their health in one. HTTP, batches and the embedded model are doors to it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::telemetry::{GatewayMetrics, Registry, TelemetryError};
use tokio::time::Instant;

use crate::breaker::{Breaker, Rules, Sign};
use crate::cache::AnswerCache;
use crate::kept::{self, Kept};
use crate::names::{DeploymentId, UpstreamName};
use crate::queue::{Admission, Standing};
use crate::settings::{Live, Settings, SettingsError};
use crate::upstream::{Upstream, UpstreamError};

/// Why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum GatewayError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
}

impl UserError for GatewayError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Settings(error) => error.exit_code(),
            Self::Upstream(_) => ExitCode::Environment,
            Self::Telemetry(_) => ExitCode::Failure,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Settings(error) => error.remedy(),
            Self::Upstream(_) => Some("Look at the certificates and limits of this host.".into()),
            Self::Telemetry(_) => None,
        }
    }
}

/// The metered door to language models.
pub struct Gateway {
    live: Live,
    admission: Admission,
    places: RwLock<Arc<Places>>,
    breakers: Mutex<HashMap<DeploymentId, Breaker>>,
    /// Its bounds are those of the start: a reload leaves it alone.
    cache: Option<AnswerCache<Kept>>,
    pub(crate) metrics: GatewayMetrics,
}

/// The upstreams of the settings in force.
type Places = BTreeMap<UpstreamName, Arc<Place>>;

/// An upstream and how many requests are there.
pub struct Place {
    /// Its name.
    pub name: UpstreamName,
    /// The way there.
    pub upstream: Upstream,
    in_flight: AtomicUsize,
}

impl Gateway {
    /// Puts a gateway together from its settings; its metrics go into `registry`.
    ///
    /// # Errors
    /// Connections cannot be made on this host, or the metrics are there already.
    pub fn new(live: Live, admission: Admission, registry: &Registry) -> Result<Arc<Self>, GatewayError> {
        let metrics = GatewayMetrics::new(registry)?;
        let settings = live.now();
        let places = places(&settings, &Places::new())?;
        expect(&metrics, &settings);
        let cache = settings.cache.as_ref().map(kept::cache);
        Ok(Arc::new(Self { live, admission, places: RwLock::new(Arc::new(places)), breakers: Mutex::default(), cache, metrics }))
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        self.live.now()
    }

    pub(crate) const fn cache(&self) -> Option<&AnswerCache<Kept>> {
        self.cache.as_ref()
    }

    pub(crate) const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Reads the settings again. Requests that are under way end as they began, and connections to upstreams that did not change stay.
    ///
    /// # Errors
    /// They cannot be used: the old ones stay in force.
    pub fn reload(&self) -> Result<(), GatewayError> {
        let reloaded = self.try_reload();
        self.metrics.reloaded(reloaded.is_ok());
        reloaded
    }

    fn try_reload(&self) -> Result<(), GatewayError> {
        let settings = self.live.reload()?;
        let now = places(&settings, &self.places())?;
        expect(&self.metrics, &settings);
        *self.places.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(now);
        let known: Vec<&DeploymentId> = settings.deployments().map(|deployment| &deployment.id).collect();
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| known.contains(&id));
        self.admission.reconfigure(settings);
        Ok(())
    }

    /// What waits, what is in flight, what is spent.
    pub fn standing(&self) -> Standing {
        self.admission.standing()
    }

    /// Says how the queue and the deployments are now; once a second is enough.
    pub fn show(&self) {
        let (settings, standing) = (self.settings(), self.admission.standing());
        self.metrics.waiting(standing.waiting);
        self.metrics.store_up(self.admission.store_is_up());
        let closed = |name: &UpstreamName| {
            let mut its = settings.deployments().filter(|deployment| deployment.upstream.name == *name);
            its.any(|deployment| standing.deployments.get(&deployment.id).is_some_and(|gate| !gate.open))
        };
        self.places().keys().for_each(|name| self.metrics.closed(name.as_str(), closed(name)));
    }

    fn places(&self) -> Arc<Places> {
        self.places.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The upstream of this name; none where a reload has taken it away since.
    pub(crate) fn place(&self, name: &UpstreamName) -> Option<Arc<Place>> {
        self.places.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Takes a sign of a deployment's health in; gives the end of the pause that follows.
    pub(crate) fn sign(&self, settings: &Settings, id: &DeploymentId, sign: Sign) -> Option<Instant> {
        let rules = Rules { breaker: &settings.breaker, retry: &settings.retry };
        let mut breakers = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(breaker) = breakers.get_mut(id) {
            return breaker.sign(Instant::now(), sign, rules);
        }
        breakers.entry(id.clone()).or_default().sign(Instant::now(), sign, rules)
    }
}

fn places(settings: &Settings, old: &Places) -> Result<Places, UpstreamError> {
    let mut places = Places::new();
    for deployment in settings.deployments() {
        let set = &deployment.upstream;
        if places.contains_key(&set.name) {
            continue;
        }
        let kept = old.get(&set.name).filter(|place| place.upstream.is_as(set)).cloned();
        let place = match kept {
            Some(place) => place,
            None => Arc::new(Place { name: set.name.clone(), upstream: Upstream::new(set)?, in_flight: AtomicUsize::new(0) }),
        };
        places.insert(set.name.clone(), place);
    }
    Ok(places)
}

fn expect(metrics: &GatewayMetrics, settings: &Settings) {
    settings.models.keys().for_each(|model| metrics.expect_model(model.as_str()));
    settings.deployments().for_each(|deployment| metrics.expect_upstream(deployment.upstream.name.as_str()));
}

impl Place {
    /// One more is there.
    pub fn enter(&self, metrics: &GatewayMetrics) {
        metrics.in_flight(self.name.as_str(), self.in_flight.fetch_add(1, Ordering::Relaxed) + 1);
    }

    /// One less is there.
    pub fn leave(&self, metrics: &GatewayMetrics) {
        metrics.in_flight(self.name.as_str(), self.in_flight.fetch_sub(1, Ordering::Relaxed).saturating_sub(1));
    }
}
