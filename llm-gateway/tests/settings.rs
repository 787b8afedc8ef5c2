//! The file of settings: the example is read whole, and what is wrong is said with its line and what to do.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod rig;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kernelopt_llm_gateway::limit::{Kind, Rate};
use kernelopt_llm_gateway::names::{JobName, KeyName, ModelName};
use kernelopt_llm_gateway::settings::{Counting, Live, Settings, SettingsError, Use, Vocabulary};
use kernelopt_shared::exit::UserError;
use kernelopt_shared::language_model::NanoUsd;
use kernelopt_shared::secret::ExposeSecret;
use rig::World;

const EXAMPLE: &str = include_str!("../../deploy/config/gateway-all.toml");

/// The example with its secrets in files of `folder`.
fn example(folder: &Path) -> String {
    let mut text = EXAMPLE.replace("/run/secrets/openai-team-b", "OPENAI_B");
    for name in ["KERNELOPT_REDIS_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GATEWAY_KEY_SEARCH", "GATEWAY_KEY_OPERATOR"] {
        text = text.replace(&format!("env = \"{name}\""), &format!("file = \"{name}\""));
    }
    for name in ["KERNELOPT_REDIS_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GATEWAY_KEY_SEARCH", "GATEWAY_KEY_OPERATOR", "OPENAI_B"] {
        let path = folder.join(name);
        fs::write(&path, format!("the-secret-in-{name}\n")).unwrap();
        text = text.replace(&format!("file = \"{name}\""), &format!("file = \"{}\"", path.display()));
    }
    text
}

#[test]
fn the_example_says_all_that_can_be_set() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::parse(&example(folder.path())).unwrap();
    let coder = &settings.models[&ModelName::parse("coder").unwrap()];
    let ids: Vec<_> = coder.deployments.iter().map(|deployment| deployment.id.as_str()).collect();
    assert_eq!(ids, ["openai/team-a/gpt-5.2-codex", "openai/team-b/gpt-5.2-codex", "anthropic/main/claude-sonnet-4-5"]);
    assert_eq!(
        (coder.counting, coder.output_tokens, coder.context_tokens),
        (Counting::Vocabulary(Vocabulary::O200kBase), 8192, Some(400_000))
    );
    assert_eq!(coder.deployments[0].limits.rate(Kind::Tokens), Some(Rate::minute(500_000)));
    assert_eq!(coder.deployments[0].price.unwrap().cached_input.unwrap().0, NanoUsd(175_000_000));
    assert_eq!(coder.deployments[1].credential.secret.as_ref().unwrap().expose_secret(), "the-secret-in-OPENAI_B");
    assert_eq!(settings.upstreams_timeouts(), Duration::from_secs(600));
    let key = settings.key_of("the-secret-in-GATEWAY_KEY_SEARCH").unwrap();
    assert_eq!((key.name.as_str(), key.limits.budget), ("search", Some(NanoUsd(200_000_000_000))));
    assert_eq!(settings.key_of("the-secret-in-GATEWAY_KEY_OPERATOR").unwrap().used, Use::Operate);
    assert!(settings.key_of("the-secret-in-GATEWAY_KEY_SEARC").is_none());
    assert_eq!(settings.job(&JobName::parse("nightly").unwrap()).weight, 3);
    assert_eq!(settings.job(&JobName::parse("another").unwrap()).limits.concurrent, Some(32));
    assert_eq!(settings.shared.as_ref().unwrap().gateways, 2);
    let shown = format!("{settings:?}");
    assert!(!shown.contains("the-secret-in"), "no secret is ever printed");
}

/// The longest total time of all deployments.
trait Longest {
    fn upstreams_timeouts(&self) -> Duration;
}

impl Longest for Settings {
    fn upstreams_timeouts(&self) -> Duration {
        self.deployments().map(|deployment| deployment.upstream.timeouts.total).max().unwrap()
    }
}

/// A small file that is right, changed in one place.
fn wrong(from: &str, to: &str) -> SettingsError {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("key");
    fs::write(&secret, "0123456789abcdef").unwrap();
    fs::write(folder.path().join("short"), "short").unwrap();
    let text = World { key: "concurrent = 3", ..World::default() }.text(&secret);
    assert!(Settings::parse(&text).is_ok());
    let changed = text.replacen(from, &to.replace("SHORT", &folder.path().join("short").display().to_string()), 1);
    assert_ne!(changed, text, "{from}");
    Settings::parse(&changed).unwrap_err()
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_a_remedy() {
    for (from, to, line, says) in [
        ("dialect = \"openai\"", "dialekt = \"openai\"", 4, "unknown field `dialekt`"),
        ("dialect = \"openai\"", "dialect = \"gemini\"", 4, "unknown variant"),
        ("http://127.0.0.1:9/v1", "http://user:pass@127.0.0.1:9/v1", 5, "no plain address"),
        ("http://127.0.0.1:9/v1", "ftp://127.0.0.1/v1", 5, "no plain address"),
        ("limits = {  }", "limits = { concurrent = 0 }", 6, "concurrent is 0"),
        ("limits = {  }", "limits = { budget_usd = \"ten\" }", 6, "no number of dollars"),
        ("limits = {  }", "limits = { budget_usd = 2000000 }", 6, "more than a million"),
        ("limits = {  }", "limits = { tokens_per_minute = -1 }", 6, "invalid value"),
        ("upstream = \"up\"", "upstream = \"pu\"", 11, "no upstream is called pu"),
        ("model = \"m-1\"", "model = \"m-1\"\ncredentials = [\"b\"]", 13, "up has no credential b"),
        ("output = 1 }", "output = 1000000 }", 13, "a price of"),
        ("[[models.at]]", "vocabulary = \"o200k_base\"\nbytes_per_token = 3\n[[models.at]]", 11, "both set"),
        ("concurrent = 3", "", 16, "the key lab has no limit"),
        ("priority = 0", "priority = 10", 17, "priority is 10"),
        ("priority = 0", "models = [\"n\"]", 17, "no model is called n"),
        ("name = \"lab\"", "name = \"lab\"\nenv = \"X\"", 16, "env and file are both set"),
        ("name = \"lab\"", "name = \"l b\"", 16, "a key's name is"),
        ("[[keys]]", "[[keys]]\nname = \"two\"\nfile = \"SHORT\"\nlimits = { concurrent = 1 }\n[[keys]]", 16, "shorter than 16"),
    ] {
        let error = wrong(from, to);
        assert_eq!(error.line, Some(line), "{to}: {error}");
        assert!(error.to_string().contains(says), "{to}: {error}");
        assert!(!error.remedy().unwrap().is_empty() && !error.to_string().contains("pass@"), "{to}");
    }
    assert!(Settings::parse("").unwrap_err().what.contains("no model"));
    assert!(Settings::read(Path::new("/no/such/file")).unwrap_err().to_string().starts_with("/no/such/file: "));
}

#[test]
fn two_of_a_name_or_of_a_secret_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("key");
    fs::write(&secret, "0123456789abcdef").unwrap();
    let text = World { key: "concurrent = 3", ..World::default() }.text(&secret);
    let key = |name: &str| format!("[[keys]]\nname = \"{name}\"\nfile = \"{}\"\nlimits = {{ concurrent = 1 }}", secret.display());
    let doubled = |more: &str| Settings::parse(&format!("{text}\n{more}")).unwrap_err().what;
    assert!(doubled(&key("lab")).contains("two keys are called lab"));
    assert!(doubled(&key("other")).contains("have the same secret"));
    assert!(doubled("[[upstreams]]\nname = \"up\"\ndialect = \"openai\"\nurl = \"http://x\"").contains("two upstreams"));
    assert!(doubled("[[models]]\nname = \"m\"\n[[models.at]]\nupstream = \"up\"\nmodel = \"m-1\"").contains("two models"));
    assert!(doubled("[[jobs.named]]\nname = \"a\"\n[[jobs.named]]\nname = \"a\"").contains("two jobs"));
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_bad_file_changes_nothing_and_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, file) = (folder.path().join("key"), folder.path().join("gateway.toml"));
    fs::write(&secret, "0123456789abcdef").unwrap();
    let write = |concurrent: &'static str| fs::write(&file, World { key: concurrent, ..World::default() }.text(&secret)).unwrap();
    let log = Log::default();
    let lines = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || lines.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let said = || String::from_utf8(log.0.lock().unwrap().clone()).unwrap().matches("the old settings stay").count();
    write("concurrent = 3");
    let live = Live::open(&file).unwrap();
    let limit = || live.now().keys[&KeyName::parse("lab").unwrap()].limits.concurrent;
    write("concurrent = 4");
    live.reload().unwrap();
    assert_eq!((limit(), said()), (Some(4), 0));
    write("concurrent = 0");
    for _ in 0..3 {
        assert!(live.reload().is_err());
    }
    assert_eq!((limit(), said()), (Some(4), 1));
    // Right again, and wrong again: that is news.
    write("concurrent = 5");
    live.reload().unwrap();
    write("concurrent = 0");
    assert!(live.reload().is_err());
    assert_eq!((limit(), said()), (Some(5), 2));
}
