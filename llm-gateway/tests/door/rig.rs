//! A gateway that listens, on settings that a test writes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernelopt_llm_gateway::gateway::Gateway;
use kernelopt_llm_gateway::http::Server;
use kernelopt_llm_gateway::queue::Admission;
use kernelopt_llm_gateway::settings::Live;
use kernelopt_shared::telemetry::Registry;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::upstream::Upstream;

/// The key of the gateway's caller.
pub const KEY: &str = "caller-canary-0123456789abcdef";
/// The key of the gateway's operator.
pub const OPERATOR: &str = "operator-canary-0123456789abcdef";
/// Keys at upstreams.
pub const THEIRS: [&str; 3] = ["sk-upstream-canary-a-0123456789", "sk-upstream-canary-b-0123456789", "sk-upstream-canary-c-0123456789"];

pub struct Rig {
    pub gateway: Arc<Gateway>,
    pub registry: Registry,
    pub base: String,
    pub client: reqwest::Client,
    pub stop: CancellationToken,
    pub folder: tempfile::TempDir,
    pub served: tokio::task::JoinHandle<()>,
}

/// An upstream in a file of settings.
pub fn at(upstream: &Upstream, name: &str, dialect: &str, credentials: &[&str], more: &str) -> String {
    let path = if dialect == "openai" { "/v1" } else { "" };
    let credentials: Vec<String> = credentials.iter().map(|name| format!("{{ name = '{name}', file = 'FOLDER/{name}' }}")).collect();
    format!(
        "[[upstreams]]\nname = '{name}'\ndialect = '{dialect}'\nurl = 'http://127.0.0.1:{}{path}'\ncredentials = [{}]\n{more}\n",
        upstream.port,
        credentials.join(", ")
    )
}

/// A model `m`, at these upstreams in order.
pub fn model(upstreams: &[&str]) -> String {
    let at: Vec<String> = upstreams
        .iter()
        .enumerate()
        .map(|(tier, name)| format!("{{ upstream = '{name}', model = 'theirs', tier = {tier}, price = {{ input = 1, output = 2 }} }}"))
        .collect();
    format!("[[models]]\nname = 'm'\noutput_tokens = 100\nat = [{}]\n", at.join(", "))
}

/// Short times.
pub const TIMES: &str = "timeouts = { connect_ms = 500, first_byte_ms = 300, idle_ms = 300, total_ms = 3000 }";

impl Rig {
    /// With one upstream, by one credential.
    pub async fn with(upstream: &Upstream, dialect: &str) -> Self {
        Self::start(&[at(upstream, "one", dialect, &["a"], TIMES), model(&["one"])].concat()).await
    }

    /// With these upstreams and models; `top` settings, such as of retries, come before them.
    pub async fn start(text: &str) -> Self {
        Self::start_with("", text).await
    }

    pub async fn start_with(top: &str, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, key) in [("a", THEIRS[0]), ("b", THEIRS[1]), ("c", THEIRS[2]), ("caller", KEY), ("operator", OPERATOR)] {
            std::fs::write(folder.path().join(name), key).unwrap();
        }
        write(folder.path().join("gateway.toml"), top, text);
        let live = Live::open(&folder.path().join("gateway.toml")).unwrap();
        let (registry, settings) = (Registry::new(), live.now());
        let admission = Admission::new(settings);
        let gateway = Gateway::new(live, admission, &registry).unwrap();
        let server = Server::bind(gateway.clone(), registry.clone()).await.unwrap();
        let (base, stop) = (format!("http://{}", server.address()), CancellationToken::new());
        let served = tokio::spawn(server.run(stop.clone()));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { gateway, registry, base, client, stop, folder, served }
    }

    /// Writes the file of settings anew.
    pub fn rewrite(&self, top: &str, text: &str) {
        write(self.folder.path().join("gateway.toml"), top, text);
    }

    pub fn post(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.client.post(format!("{}{path}", self.base)).bearer_auth(KEY).json(body)
    }

    /// A completion in one piece.
    pub async fn chat(&self) -> reqwest::Response {
        self.post("/v1/chat/completions", &chat()).send().await.unwrap()
    }

    /// A completion as a stream, with usage.
    pub async fn streamed(&self) -> reqwest::Response {
        let mut body = chat();
        body["stream"] = true.into();
        body["stream_options"] = json!({"include_usage": true});
        self.post("/v1/chat/completions", &body).send().await.unwrap()
    }

    pub fn metrics(&self) -> String {
        self.registry.text().unwrap()
    }

    /// The sum of a metric's series whose labels hold all of these.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.metrics();
        let series = text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        let those = series.filter(|line| labels.iter().all(|label| line.contains(label)));
        those.filter_map(|line| line.rsplit_once(' ')).map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    }

    /// Waits for something to become true.
    pub async fn until(&self, what: &str, is: impl Fn() -> bool) {
        for _ in 0..500 {
            if is() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}");
    }

    /// Nothing is at any upstream.
    pub async fn quiet(&self) {
        self.until("nothing in flight", || self.metric("kernelopt_gateway_in_flight", &[]) == 0.0).await;
    }
}

fn write(path: PathBuf, top: &str, text: &str) {
    let folder = path.parent().unwrap().display().to_string();
    let keys = "[[keys]]\nname = 'caller'\nfile = 'FOLDER/caller'\nlimits = { concurrent = 10000 }\n[[keys]]\nname = 'operator'\nfile = 'FOLDER/operator'\nuse = 'operate'\n";
    let text = format!("listen = '127.0.0.1:0'\n{top}\n{text}\n{keys}").replace("FOLDER", &folder);
    std::fs::write(path, text).unwrap();
}

pub fn chat() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hello there"}], "max_tokens": 50})
}

pub async fn json(response: reqwest::Response) -> Value {
    response.json().await.unwrap()
}
