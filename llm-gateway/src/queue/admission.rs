//! The queue and the books together.

use std::sync::{Arc, PoisonError, RwLock};

use super::{Ask, Permit, Refused, RefusedKind};
use crate::settings::Settings;

/// Lets requests through. Clones are the same.
#[derive(Clone)]
pub struct Admission {
    settings: Arc<RwLock<Arc<Settings>>>,
}

impl Admission {
    /// With limits that are this process's own.
    pub fn new(settings: Arc<Settings>) -> Self {
        Self { settings: Arc::new(RwLock::new(settings)) }
    }

    /// Takes over new settings; what waits or is in flight stays.
    pub fn reconfigure(&self, settings: Arc<Settings>) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Waits in the fair queue until every limit of key, job, upstream, credential and deployment can be reserved at once for some deployment
    /// of the model. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// See [`RefusedKind`].
    pub async fn admit(&self, ask: Ask) -> Result<Permit, Refused> {
        let settings = self.settings.read().unwrap_or_else(PoisonError::into_inner).clone();
        let unknown = || Refused { kind: RefusedKind::UnknownModel, retry_after: None, what: format!("there is no model {}", ask.model) };
        let key = settings.keys.get(&ask.key).filter(|key| key.may_call(&ask.model)).ok_or_else(unknown)?;
        let model = settings.models.get(&ask.model).filter(|model| key.may_call(&model.name)).ok_or_else(unknown)?;
        let left = model.deployments.iter().find(|deployment| !ask.without.contains(&deployment.id));
        let none = || Refused { kind: RefusedKind::NoneLeft, retry_after: None, what: format!("every way to {} has failed", ask.model) };
        left.cloned().map(Permit::new).ok_or_else(none)
    }
}
