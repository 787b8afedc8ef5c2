//! From what is asked to what may be reserved.

use std::sync::Arc;

use super::{Ask, LOWEST, Refused, RefusedKind};
use crate::limit::ledger::{AccountName, Wanted};
use crate::limit::{Amounts, Limits};
use crate::names::{JobName, KeyName, ModelName};
use crate::settings::{Deployment, Key, Settings};

/// A deployment that would do, and what it takes. The accounts stand in an order: the narrowest first.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub deployment: Arc<Deployment>,
    pub wanted: Wanted,
}

/// A request, ready to wait.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub owner: (KeyName, JobName),
    pub model: ModelName,
    pub choices: Vec<Choice>,
    pub weight: u32,
    pub priority: u8,
    /// Tokens by which it pays for its turn.
    pub cost: u64,
}

impl Asked {
    /// Looks everything up that the request names.
    ///
    /// # Errors
    /// The model is unknown or not for this key, the request is too long for it, every deployment has failed, or none has a price and there
    /// is a budget.
    pub fn resolve(ask: &Ask, settings: &Settings) -> Result<Self, Refused> {
        let refused = |kind, what| Refused { kind, retry_after: None, what };
        let unknown = || refused(RefusedKind::UnknownModel, format!("there is no model {} for this key", ask.model));
        let key = settings.keys.get(&ask.key).filter(|key| key.may_call(&ask.model)).ok_or_else(unknown)?;
        let model = settings.models.get(&ask.model).ok_or_else(unknown)?;
        let tokens = ask.estimate.input.saturating_add(ask.estimate.output);
        if let Some(most) = model.context_tokens.filter(|most| tokens > *most) {
            let what = format!(
                "about {} tokens and up to {} of answer are more than the {most} of {}",
                ask.estimate.input, ask.estimate.output, model.name
            );
            return Err(refused(RefusedKind::TooLong, what));
        }
        let left: Vec<_> = model.deployments.iter().filter(|deployment| !ask.without.contains(&deployment.id)).collect();
        if left.is_empty() {
            return Err(refused(RefusedKind::NoneLeft, format!("every way to {} has failed", model.name)));
        }
        let choices: Vec<_> = left.into_iter().filter_map(|deployment| choice(ask, settings, key, deployment)).collect();
        if choices.is_empty() {
            let what = format!("nobody has said what {} costs, and a budget is to pay for it", model.name);
            return Err(refused(RefusedKind::Budget, what));
        }
        Ok(Self {
            owner: (ask.key.clone(), ask.job.clone()),
            model: ask.model.clone(),
            choices,
            weight: settings.job(&ask.job).weight,
            priority: ask.priority.max(key.priority).min(LOWEST),
            cost: tokens,
        })
    }
}

/// None where a budget would have to pay an unknown price.
fn choice(ask: &Ask, settings: &Settings, key: &Key, deployment: &Arc<Deployment>) -> Option<Choice> {
    let upstream = &deployment.upstream;
    let job = &settings.job(&ask.job).limits;
    let mut accounts: Vec<(AccountName, Arc<Limits>)> = Vec::with_capacity(5);
    let mut limited = |limits: &Arc<Limits>, name: &dyn Fn() -> AccountName| {
        if !limits.is_unlimited() {
            accounts.push((name(), limits.clone()));
        }
    };
    limited(job, &|| AccountName::job(&ask.key, &ask.job));
    limited(&key.limits, &|| AccountName::key(&ask.key));
    limited(&upstream.limits, &|| AccountName::upstream(&upstream.name));
    limited(&deployment.credential.limits, &|| AccountName::credential(&upstream.name, &deployment.credential.name));
    // Always: the provider's headers may teach it limits.
    accounts.push((AccountName::deployment(&deployment.id), deployment.limits.clone()));
    if deployment.price.is_none() && accounts.iter().any(|(_, limits)| limits.budget.is_some()) {
        return None;
    }
    let estimate = &ask.estimate;
    let most_input = estimate.most_input.max(estimate.input);
    let amounts = Amounts {
        requests: 1,
        input: estimate.input,
        output: estimate.output,
        money: deployment.price.map(|price| price.most(most_input, estimate.output)).unwrap_or_default(),
        budget_tokens: most_input.saturating_add(estimate.output),
    };
    Some(Choice { deployment: deployment.clone(), wanted: Wanted { accounts, amounts } })
}
