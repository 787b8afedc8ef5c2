//! From the file to settings: numbers in their ranges, names that exist, secrets that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use kernelopt_shared::secret::{self, ExposeSecret, SecretError, SecretString};
use toml::Spanned;
use url::Url;

use super::error::SettingsError;
use super::numbers::MOST;
use super::written::{self, MOST_FILE_BYTES, Written};
use super::{
    Breaker, Cache, Counting, Credential, Deployment, Http, Job, Key, Model, Queue, Retry, Settings, Shared, Timeouts, Upstream, Use,
    Vocabulary, fingerprint,
};
use crate::names::{CredentialName, DeploymentId, ModelName, UpstreamName};

/// The gateway's port where none is set.
pub const DEFAULT_PORT: u16 = 7119;
pub(super) type Checked<T> = Result<T, SettingsError>;

impl Settings {
    /// Reads a file, and the secrets that it names.
    ///
    /// # Errors
    /// It cannot be read, is no TOML, has a word too many, a number out of its range, a name without a thing, or no secret where it says.
    pub fn read(path: &Path) -> Checked<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| SettingsError::new(e.to_string(), "Check the path."));
        text.and_then(|text| Self::parse(&text)).map_err(|error| SettingsError { file: Some(path.into()), ..error })
    }

    /// The same from the text.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub fn parse(text: &str) -> Checked<Self> {
        if text.len() > MOST_FILE_BYTES {
            return Err(SettingsError::new("longer than 4 MiB", "Name another file."));
        }
        let written: Written = toml::from_str(text).map_err(|error| SettingsError::parser(&error, text))?;
        Checker { text, upstreams: BTreeMap::new() }.settings(written)
    }
}

/// An upstream, its credentials in the order of the file.
type Place = (Arc<Upstream>, Vec<Arc<Credential>>);

pub(super) struct Checker<'a> {
    pub(super) text: &'a str,
    upstreams: BTreeMap<UpstreamName, Place>,
}

impl Checker<'_> {
    fn settings(mut self, written: Written) -> Checked<Settings> {
        for upstream in written.upstreams {
            self.upstream(upstream)?;
        }
        let models = written.models.into_iter().try_fold(BTreeMap::new(), |models, model| self.model(models, model))?;
        if models.is_empty() {
            return Err(SettingsError::new(
                "there is no model",
                "Write [[upstreams]] and [[models]]; deploy/config/gateway.toml is one to begin with.",
            ));
        }
        let mut keys = BTreeMap::new();
        let mut doors = BTreeMap::new();
        for key in written.keys {
            let (name, line) = (key.name.get_ref().clone(), self.line(&key.name));
            let (key, secret) = self.key(key, &models)?;
            if keys.insert(name.clone(), Arc::new(key)).is_some() {
                return Err(SettingsError::new(format!("two keys are called {name}"), "Give each a name of its own.").at(line));
            }
            if let Some(other) = doors.insert(fingerprint(secret.expose_secret()), name.clone()) {
                let what = format!("the keys {other} and {name} have the same secret");
                return Err(SettingsError::new(what, "Make a new one with `openssl rand -hex 32`.").at(line));
            }
        }
        let any_job = Job { weight: self.weight(written.jobs.weight.as_ref())?, limits: self.limits(&written.jobs.limits)? };
        let mut jobs = BTreeMap::new();
        for named in written.jobs.named {
            let job = Job { weight: self.weight(named.weight.as_ref())?, limits: self.limits(&named.limits)? };
            if jobs.insert(named.name.get_ref().clone(), Arc::new(job)).is_some() {
                return Err(self.wrong(&named.name, format!("two jobs are called {}", named.name.get_ref()), "Keep one of them."));
            }
        }
        Ok(Settings {
            listen: written.listen.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, DEFAULT_PORT).into()),
            data: written.data,
            http: self.http(&written.http)?,
            retry: self.retry(&written.retry)?,
            breaker: self.breaker(&written.breaker)?,
            queue: self.queue(&written.queue)?,
            cache: written.cache.map(|cache| self.cache(&cache)).transpose()?,
            shared: written.shared.map(|shared| self.shared(shared)).transpose()?,
            models,
            keys,
            any_job: Arc::new(any_job),
            jobs,
            doors,
        })
    }

    fn http(&self, http: &written::Http) -> Checked<Http> {
        Ok(Http {
            most_body_bytes: self.number("most_body_bytes", http.most_body_bytes.as_ref(), 1..=1 << 30, 32 << 20)?,
            most_file_bytes: self.number("most_file_bytes", http.most_file_bytes.as_ref(), 1..=1 << 32, 200 << 20)?,
            heartbeat: self.seconds("heartbeat_s", http.heartbeat_s.as_ref(), 15)?,
            drain: self.seconds("drain_s", http.drain_s.as_ref(), 30)?,
        })
    }

    fn retry(&self, retry: &written::Retry) -> Checked<Retry> {
        Ok(Retry {
            most_attempts: self.small("most_attempts", retry.most_attempts.as_ref(), 1..=100, 4)?,
            first_wait: self.ms("first_wait_ms", retry.first_wait_ms.as_ref(), 500)?,
            longest_wait: self.ms("longest_wait_ms", retry.longest_wait_ms.as_ref(), 8_000)?,
        })
    }

    fn breaker(&self, breaker: &written::Breaker) -> Checked<Breaker> {
        Ok(Breaker {
            failure_percent: self.small("failure_percent", breaker.failure_percent.as_ref(), 1..=100, 50)?,
            least_attempts: self.small("least_attempts", breaker.least_attempts.as_ref(), 1..=1_000_000, 10)?,
            window: self.seconds("window_s", breaker.window_s.as_ref(), 30)?,
            open: self.seconds("open_s", breaker.open_s.as_ref(), 10)?,
        })
    }

    fn queue(&self, queue: &written::Queue) -> Checked<Queue> {
        let most = self.number("most", queue.most.as_ref(), 1..=1_000_000, 10_000)?;
        let most_per_job = self.number("most_per_job", queue.most_per_job.as_ref(), 1..=1_000_000, most)?;
        Ok(Queue {
            most: usize::try_from(most).unwrap_or(usize::MAX),
            most_per_job: usize::try_from(most_per_job).unwrap_or(usize::MAX),
            longest_wait: self.seconds("longest_wait_s", queue.longest_wait_s.as_ref(), 540)?,
            ageing: self.seconds("ageing_s", queue.ageing_s.as_ref(), 60)?,
        })
    }

    fn cache(&self, cache: &written::Cache) -> Checked<Cache> {
        Ok(Cache {
            most_bytes: self.number("most_bytes", Some(&cache.most_bytes), 1..=1 << 40, 0)?,
            keep: self.seconds("keep_s", Some(&cache.keep_s), 0)?,
        })
    }

    fn shared(&self, shared: Spanned<written::Shared>) -> Checked<Shared> {
        let line = self.line(&shared);
        let shared = shared.into_inner();
        let url = needed_secret(
            "shared",
            shared.env.as_deref().or(Some("KERNELOPT_REDIS_URL")).filter(|_| shared.file.is_none()),
            shared.file.as_deref(),
        )
        .map_err(|error| error.at(line))?;
        let prefix = shared.prefix.map_or_else(|| "kernelopt".into(), Spanned::into_inner);
        if !(1..=100).contains(&prefix.len()) || !prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte)) {
            return Err(
                SettingsError::new("prefix has other characters than it may", "Write 1 to 100 of a-z, A-Z, 0-9 and - _ . : /.").at(line)
            );
        }
        Ok(Shared {
            url,
            ca_file: shared.ca_file,
            prefix,
            deadline: self.ms("deadline_ms", shared.deadline_ms.as_ref(), 250)?,
            ticket: self.seconds("ticket_s", shared.ticket_s.as_ref(), 30)?,
            gateways: self.small("gateways", Some(&shared.gateways), 1..=10_000, 1)?,
        })
    }

    fn upstream(&mut self, upstream: written::Upstream) -> Checked<()> {
        let name = upstream.name.get_ref().clone();
        let built = Upstream {
            url: self.url(&upstream.url)?,
            timeouts: self.timeouts(&upstream.timeouts)?,
            limits: self.limits(&upstream.limits)?,
            dialect: upstream.dialect,
            name: name.clone(),
        };
        let mut credentials: Vec<Arc<Credential>> = Vec::new();
        for written in &upstream.credentials {
            let credential = self.credential(written)?;
            if credentials.iter().any(|other| other.name == credential.name) {
                return Err(self.wrong(
                    &written.name,
                    format!("{name} has two credentials {}", credential.name),
                    "Give each a name of its own.",
                ));
            }
            credentials.push(Arc::new(credential));
        }
        if credentials.is_empty() {
            // Names are never empty, so this one parses.
            let none = CredentialName::parse("none").map_err(|e| SettingsError::new(e.to_string(), ""))?;
            credentials.push(Arc::new(Credential { name: none, secret: None, limits: Arc::default() }));
        }
        match self.upstreams.insert(name.clone(), (Arc::new(built), credentials)) {
            None => Ok(()),
            Some(_) => Err(self.wrong(&upstream.name, format!("two upstreams are called {name}"), "Give each a name of its own.")),
        }
    }

    fn url(&self, written: &Spanned<String>) -> Checked<Url> {
        let text = written.get_ref().trim_end_matches('/');
        let remedy = "Write http://HOST/PATH or https://HOST/PATH; secrets go into env or file of a credential.";
        let url = Url::parse(text).map_err(|e| self.wrong(written, format!("url: {e}"), remedy))?;
        let plain = matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none() && url.fragment().is_none();
        if !plain || !url.username().is_empty() || url.password().is_some() {
            return Err(self.wrong(written, "url is no plain address of a web server", remedy));
        }
        Ok(url)
    }

    fn timeouts(&self, timeouts: &written::Timeouts) -> Checked<Timeouts> {
        Ok(Timeouts {
            connect: self.ms("connect_ms", timeouts.connect_ms.as_ref(), 5_000)?,
            first_byte: self.ms("first_byte_ms", timeouts.first_byte_ms.as_ref(), 120_000)?,
            idle: self.ms("idle_ms", timeouts.idle_ms.as_ref(), 60_000)?,
            total: self.ms("total_ms", timeouts.total_ms.as_ref(), 600_000)?,
        })
    }

    fn credential(&self, credential: &written::Credential) -> Checked<Credential> {
        let name = credential.name.get_ref().clone();
        let secret = match (&credential.env, &credential.file) {
            (None, None) => None,
            (env, file) => {
                let what = format!("credential {name}");
                Some(needed_secret(&what, env.as_deref(), file.as_deref()).map_err(|error| error.at(self.line(&credential.name)))?)
            }
        };
        Ok(Credential { name, secret, limits: self.limits(&credential.limits)? })
    }

    fn model(&self, mut models: BTreeMap<ModelName, Model>, model: written::Model) -> Checked<BTreeMap<ModelName, Model>> {
        let name = model.name.get_ref().clone();
        let mut deployments: Vec<Arc<Deployment>> = Vec::new();
        for at in &model.at {
            for deployment in self.deployments(at)? {
                if deployments.iter().any(|other| other.id == deployment.id) {
                    return Err(self.wrong(&at.upstream, format!("{name} is twice at {}", deployment.id), "Keep one of them."));
                }
                deployments.push(Arc::new(deployment));
            }
        }
        if deployments.is_empty() {
            return Err(self.wrong(
                &model.name,
                format!("the model {name} is nowhere"),
                "Write [[models.at]] below it, with upstream and model.",
            ));
        }
        let built = Model {
            counting: self.counting(model.vocabulary, model.bytes_per_token.as_ref())?,
            output_tokens: self.small("output_tokens", model.output_tokens.as_ref(), 1..=10_000_000, 4096)?,
            context_tokens: model
                .context_tokens
                .as_ref()
                .map(|value| self.number("context_tokens", Some(value), 1..=MOST, 0))
                .transpose()?,
            name: name.clone(),
            deployments,
        };
        match models.insert(name.clone(), built) {
            None => Ok(models),
            Some(_) => Err(self.wrong(&model.name, format!("two models are called {name}"), "Write one model with several [[models.at]].")),
        }
    }

    fn counting(&self, vocabulary: Option<Vocabulary>, ratio: Option<&Spanned<f64>>) -> Checked<Counting> {
        match (vocabulary, ratio) {
            (Some(_), Some(ratio)) => Err(self.wrong(ratio, "vocabulary and bytes_per_token are both set", "Keep one of them.")),
            (Some(vocabulary), None) => Ok(Counting::Vocabulary(vocabulary)),
            (None, Some(ratio)) if !(1.0..=16.0).contains(ratio.get_ref()) => {
                Err(self.wrong(ratio, format!("bytes_per_token is {}", ratio.get_ref()), "Write a number from 1 to 16."))
            }
            (None, ratio) => Ok(Counting::BytesPerToken(ratio.map_or(3.0, |ratio| *ratio.get_ref()))),
        }
    }

    fn deployments(&self, at: &written::At) -> Checked<Vec<Deployment>> {
        let unknown = || {
            let known: Vec<_> = self.upstreams.keys().map(UpstreamName::as_str).collect();
            self.wrong(
                &at.upstream,
                format!("no upstream is called {}", at.upstream.get_ref()),
                format!("There are: {}.", known.join(", ")),
            )
        };
        let (upstream, all) = self.upstreams.get(at.upstream.get_ref()).ok_or_else(unknown)?;
        let named = |name: &Spanned<CredentialName>| {
            let known: Vec<_> = all.iter().map(|credential| credential.name.as_str()).collect();
            let found = all.iter().find(|credential| credential.name == *name.get_ref()).cloned();
            found.ok_or_else(|| {
                let what = format!("{} has no credential {}", upstream.name, name.get_ref());
                self.wrong(name, what, format!("There are: {}.", known.join(", ")))
            })
        };
        let credentials = match &at.credentials {
            Some(names) => names.iter().map(named).collect::<Checked<Vec<_>>>()?,
            None => all.clone(),
        };
        if !(1..=200).contains(&at.model.get_ref().len()) {
            return Err(self.wrong(&at.model, "model is empty or longer than 200 bytes", "Write the model's name at the upstream."));
        }
        if let Some(price) = &at.price
            && let Some(most) = price.get_ref().beyond_reason()
        {
            return Err(self.wrong(price, format!("a price of {} a million tokens", most.0), "Prices are in dollars per million tokens."));
        }
        let (tier, weight) = (self.small("tier", at.tier.as_ref(), 0..=100, 0)?, self.weight(at.weight.as_ref())?);
        let limits = self.limits(&at.limits)?;
        let one = |credential: Arc<Credential>| Deployment {
            id: DeploymentId::new(&upstream.name, &credential.name, at.model.get_ref()),
            upstream: upstream.clone(),
            credential,
            model: at.model.get_ref().clone(),
            tier,
            weight,
            limits: limits.clone(),
            price: at.price.as_ref().map(|price| *price.get_ref()),
        };
        Ok(credentials.into_iter().map(one).collect())
    }

    fn key(&self, key: written::Key, models: &BTreeMap<ModelName, Model>) -> Checked<(Key, SecretString)> {
        let name = key.name.get_ref().clone();
        let limits = self.limits(&key.limits)?;
        if key.used == Use::Models && limits.is_unlimited() {
            let remedy = "Write [keys.limits] with at least one limit: no key that calls models is free of them.";
            return Err(self.wrong(&key.name, format!("the key {name} has no limit"), remedy));
        }
        let known = |model: Spanned<ModelName>| match models.contains_key(model.get_ref()) {
            true => Ok(model.into_inner()),
            false => Err(self.wrong(
                &model,
                format!("no model is called {}", model.get_ref()),
                "Name models of this file, or leave the line out.",
            )),
        };
        let models = key.models.map(|models| models.into_iter().map(known).collect::<Checked<BTreeSet<_>>>()).transpose()?;
        let secret =
            needed_secret(&format!("key {name}"), key.env.as_deref(), key.file.as_deref()).map_err(|e| e.at(self.line(&key.name)))?;
        if secret.expose_secret().len() < 16 {
            let remedy = "Make one with `openssl rand -hex 32`.";
            return Err(self.wrong(&key.name, format!("the secret of key {name} is shorter than 16 characters"), remedy));
        }
        let priority = self.small("priority", key.priority.as_ref(), 0..=9, 5)?;
        Ok((Key { name, used: key.used, models, priority: u8::try_from(priority).unwrap_or(9), limits }, secret))
    }
}

/// The secret in the environment variable `env` (or the file that `env`_FILE names) or in `file`.
fn needed_secret(what: &str, env: Option<&str>, file: Option<&Path>) -> Checked<SecretString> {
    let failed = |error: SecretError| SettingsError::new(format!("{what}: {error}"), "Let it be readable, and set in one place.");
    let (found, place) = match (env, file) {
        (Some(_), Some(_)) => return Err(SettingsError::new(format!("{what}: env and file are both set"), "Keep one of them.")),
        (None, None) => {
            return Err(SettingsError::new(format!("{what} names no secret"), "Write env = \"VARIABLE\" or file = \"PATH\"."));
        }
        (Some(env), None) => (secret::from_env(env).map_err(failed)?, format!("the variable {env}")),
        (None, Some(file)) => (secret::from_file("file", file).map_err(failed)?, format!("the file {}", file.display())),
    };
    found.ok_or_else(|| SettingsError::new(format!("{what}: {place} is not set or empty"), "Put the secret there."))
}
