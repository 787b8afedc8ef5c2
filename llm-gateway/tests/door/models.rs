//! The gateway as the search sees it: in the same process, and over HTTP. One set of expectations for both.

use std::sync::Arc;
use std::time::Duration;

use kernelopt_llm_gateway::client::Client;
use kernelopt_llm_gateway::embedded::Embedded;
use kernelopt_llm_gateway::names::KeyName;
use kernelopt_shared::language_model::{LanguageModel, NanoUsd, Question, Role, StopReason, TokenUsage, Turn, Unanswered};
use kernelopt_shared::secret::SecretString;
use serde_json::json;

use crate::rig::{KEY, Rig};
use crate::upstream::{Step, Upstream, completion, error, message, ok};

fn both(rig: &Rig) -> [Arc<dyn LanguageModel>; 2] {
    let client = Client::new(&rig.base.parse().unwrap(), &SecretString::from(KEY)).unwrap();
    [Arc::new(Embedded::new(rig.gateway.clone(), KeyName::parse("caller").unwrap())), Arc::new(client)]
}

fn question() -> Question {
    let turn = |role, content: &str| Turn { role, content: content.into() };
    Question {
        id: "round-1.0".into(),
        model: "m".into(),
        turns: vec![turn(Role::System, "be brief"), turn(Role::User, "hello")],
        max_output_tokens: 20,
        temperature: Some(0.7),
        sample: 0,
    }
}

#[tokio::test]
async fn a_question_is_answered_with_its_tokens_and_its_cost() {
    for dialect in ["openai", "anthropic"] {
        let upstream = Upstream::start(move |_| ok(&if dialect == "openai" { completion("said") } else { message("said") })).await;
        let rig = Rig::with(&upstream, dialect).await;
        for model in both(&rig) {
            let answer = model.ask("tune/1", &question()).await.unwrap();
            assert_eq!((answer.text.as_str(), answer.stop, answer.model.as_str()), ("said", StopReason::End, "theirs"));
            let cached = if dialect == "openai" { 0 } else { 3 };
            assert_eq!(answer.usage, TokenUsage { input_tokens: 7, cached_input_tokens: cached, output_tokens: 3 });
            assert!(answer.cost > NanoUsd(0) && answer.cost <= NanoUsd(13_000), "{:?}", answer.cost);
            let asked = upstream.last().body;
            assert_eq!((&asked["temperature"], &asked["max_tokens"]), (&json!(0.7), &json!(20)));
        }
    }
}

#[tokio::test]
async fn why_there_is_no_answer_is_said_in_the_searchs_words() {
    let length = Upstream::start(|_| {
        let mut body = completion("half");
        body["choices"][0]["finish_reason"] = "length".into();
        ok(&body)
    })
    .await;
    for model in both(&Rig::with(&length, "openai").await) {
        assert_eq!(model.ask("j", &question()).await.unwrap().stop, StopReason::Length);
    }
    let refusing = Upstream::start(|_| error(400, &[], "no")).await;
    let rig = Rig::with(&refusing, "openai").await;
    for model in both(&rig) {
        assert!(matches!(model.ask("j", &question()).await, Err(Unanswered::Refused { .. })));
        let unknown = Question { model: "nobody".into(), ..question() };
        assert!(matches!(model.ask("j", &unknown).await, Err(Unanswered::Refused { .. })));
        assert!(matches!(model.ask("a job", &question()).await, Err(Unanswered::Refused { .. })));
    }
    let failing = Upstream::start(|_| error(500, &[], "oops")).await;
    for model in both(
        &Rig::start_with(
            "[retry]\nmost_attempts = 1",
            &[crate::rig::at(&failing, "one", "openai", &["a"], ""), crate::rig::model(&["one"])].concat(),
        )
        .await,
    ) {
        assert!(matches!(model.ask("j", &question()).await, Err(Unanswered::Unavailable { .. })));
    }
    let wrong = Client::new(&rig.base.parse().unwrap(), &SecretString::from("no-such-key-0123456789")).unwrap();
    assert!(matches!(wrong.ask("j", &question()).await, Err(Unanswered::Refused { .. })));
    let gone = Client::new(&"http://127.0.0.1:1".parse().unwrap(), &SecretString::from(KEY)).unwrap();
    let error = gone.ask("j", &question()).await.unwrap_err();
    assert!(matches!(&error, Unanswered::Unavailable { .. }) && !error.to_string().contains("canary"));
}

#[tokio::test]
async fn dropping_the_future_cancels_the_call_upstream() {
    let upstream = Upstream::start(|_| vec![Step::Stall]).await;
    let rig = Rig::start(&[crate::rig::at(&upstream, "one", "openai", &["a"], ""), crate::rig::model(&["one"])].concat()).await;
    for (number, model) in both(&rig).into_iter().enumerate() {
        let question = question();
        assert!(tokio::time::timeout(Duration::from_millis(200), model.ask("j", &question)).await.is_err());
        rig.until("the upstream hears it", || upstream.hung_up.load(std::sync::atomic::Ordering::SeqCst) == number + 1).await;
        rig.quiet().await;
    }
}
