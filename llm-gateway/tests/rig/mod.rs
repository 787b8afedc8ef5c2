//! What tests of the queue and the limits share.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use kernelopt_llm_gateway::estimate::Estimate;
use kernelopt_llm_gateway::names::{JobName, KeyName, ModelName};
use kernelopt_llm_gateway::queue::{Admission, Ask};
use kernelopt_llm_gateway::settings::Settings;
use kernelopt_shared::language_model::NanoUsd;
use tokio::time::Instant;

/// Settings with one key, `lab`, and one upstream, `up`, whose only model is `m` at a dollar per million tokens. `{KEY}`, `{UPSTREAM}`, `{AT}` and `{MORE}` of
/// the file are what the test says.
#[derive(Clone, Copy, Default)]
pub struct World {
    pub key: &'static str,
    pub upstream: &'static str,
    pub at: &'static str,
    pub more: &'static str,
}

impl World {
    pub fn text(&self, secret: &std::path::Path) -> String {
        format!(
            r#"
            [[upstreams]]
            name = "up"
            dialect = "openai"
            url = "http://127.0.0.1:9/v1"
            limits = {{ {} }}
            credentials = [{{ name = "a" }}]
            [[models]]
            name = "m"
            [[models.at]]
            upstream = "up"
            model = "m-1"
            price = {{ input = 1, output = 1 }}
            {}
            [[keys]]
            name = "lab"
            priority = 0
            file = "{}"
            limits = {{ {} }}
            {}
            "#,
            self.upstream,
            self.at,
            secret.display(),
            if self.key.is_empty() { "concurrent = 1000000" } else { self.key },
            self.more,
        )
    }

    pub fn settings(&self) -> Arc<Settings> {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("key");
        std::fs::write(&secret, "0123456789abcdef-lab").unwrap();
        std::fs::write(folder.path().join("other"), "0123456789abcdef-other").unwrap();
        let text = self.text(&secret).replace("OTHER_KEY", &folder.path().join("other").display().to_string());
        Arc::new(Settings::parse(&text).unwrap())
    }

    pub fn admission(&self) -> Admission {
        Admission::new(self.settings())
    }
}

/// A request of `job` for `tokens` of input, with a minute to wait.
pub fn ask(job: &str, tokens: u64) -> Ask {
    Ask {
        job: JobName::parse(job).unwrap(),
        key: KeyName::parse("lab").unwrap(),
        model: ModelName::parse("m").unwrap(),
        estimate: Estimate::exact(tokens, 0),
        priority: 5,
        deadline: Instant::now() + Duration::from_secs(60),
        without: Vec::new(),
        again: false,
    }
}

/// Nothing waits, nothing is reserved, no slot is taken.
pub fn assert_empty(admission: &Admission) {
    let standing = admission.standing();
    assert_eq!((standing.waiting, standing.in_flight), (0, 0));
    for (name, position) in &standing.accounts {
        assert_eq!((position.in_flight, position.reserved, position.reserved_tokens), (0, NanoUsd::ZERO, 0), "{name}");
    }
    for (deployment, gate) in &standing.deployments {
        assert_eq!(gate.in_flight, 0, "{deployment}");
    }
}
