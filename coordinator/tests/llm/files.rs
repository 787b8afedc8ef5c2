//! Models that are files, and what people may put there.

use std::fs;
use std::path::Path;

use kernelopt_coordinator::llm::{Batch, Part, Recorded, question_id};
use kernelopt_shared::language_model::{LanguageModel as _, Question, Role, Turn, Unanswered};
use serde_json::{Value, json};

fn question(id: &str) -> Question {
    let turns = vec![Turn { role: Role::System, content: "s".into() }, Turn { role: Role::User, content: "u\n\"x\"".into() }];
    Question { id: id.into(), model: "m-1".into(), turns, max_output_tokens: 100, temperature: Some(0.5), sample: 0 }
}

fn ask(model: &dyn kernelopt_shared::language_model::LanguageModel, id: &str) -> Result<String, Unanswered> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(model.ask("job", &question(id))).map(|answer| answer.text)
}

fn output(id: &str, text: &str) -> String {
    let usage = json!({"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 5}});
    let body = json!({"model": "m-1-2026", "choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage});
    json!({"id": "batch_req_1", "custom_id": id, "response": {"status_code": 200, "request_id": "r", "body": body}, "error": null})
        .to_string()
}

#[test]
fn rows_answer_in_their_order_and_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers.jsonl");
    let rows = [
        json!({"kernel": "k", "answer": "first"}).to_string(),
        String::new(),
        json!({"kernel": "other", "answer": "of another"}).to_string(),
        json!({"kernel": "k", "answer": "second"}).to_string(),
        json!({"kernel": "k", "answer": "mended", "question": "repair.0.1"}).to_string(),
        output(&question_id(2, "k", Part::Plan(0)), "IDEA: x"),
        "{\"kernel\": \"k\"".into(),
        json!({"kernel": "k", "answer": "x", "more": 1}).to_string(),
        json!({"kernel": "k", "answer": "x", "question": "judge.1"}).to_string(),
        json!({"kernel": "k", "answer": "x", "question": "code.0"}).to_string(),
        "[1, 2]".into(),
    ];
    let mut text = rows.join("\n").into_bytes();
    text.extend_from_slice(b"\n\xff\xfe\n");
    fs::write(&path, text).unwrap();
    let recorded = Recorded::read(&path).unwrap();
    let said = |part| ask(&recorded, &question_id(0, "k", part));
    assert_eq!(said(Part::Code(0)).as_deref(), Ok("first"));
    assert_eq!(said(Part::Code(1)).as_deref(), Ok("second"));
    assert_eq!(said(Part::Repair(0, 1)).as_deref(), Ok("mended"));
    assert_eq!(ask(&recorded, &question_id(2, "k", Part::Plan(0))).as_deref(), Ok("IDEA: x"), "a line with an id answers that question");
    assert!(matches!(said(Part::Plan(0)), Err(Unanswered::Refused { .. })), "of graph 2, not of 0");
    assert!(matches!(said(Part::Code(2)), Err(Unanswered::Refused { .. })));
    let lines: Vec<&str> = recorded.odd().iter().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(lines, ["line 7", "line 8", "line 9", "line 10", "line 11", "line 12"], "{:?}", recorded.odd());
}

fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_batch_goes_out_once_and_comes_back_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("batch");
    let first = Batch::open(&place).unwrap();
    assert_eq!(first.pending(), None);
    for id in ["a", "b", "a", "c", "d"] {
        assert_eq!(ask(&first, id), Err(Unanswered::Later));
    }
    let pending = first.pending().unwrap();
    assert_eq!((pending.count, pending.requests.clone()), (4, place.join("round-1.requests.jsonl")));
    let asked = lines(&pending.requests);
    assert_eq!(asked.iter().map(|line| line["custom_id"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert_eq!(
        asked[0],
        json!({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {
            "model": "m-1", "max_completion_tokens": 100, "temperature": 0.5,
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u\n\"x\""}]}})
    );
    // A restart before the answers are there asks nothing anew, and mends a torn line.
    let torn = format!("{}{{\"custom_id\": \"e\", \"met", fs::read_to_string(&pending.requests).unwrap());
    fs::write(&pending.requests, torn).unwrap();
    let again = Batch::open(&place).unwrap();
    assert_eq!((ask(&again, "b"), ask(&again, "e")), (Err(Unanswered::Later), Err(Unanswered::Later)));
    assert_eq!(lines(&pending.requests).len(), 5);

    let failed = json!({"custom_id": "c", "response": {"status_code": 429, "body": {"error": {"message": "slow down"}}}}).to_string();
    let expired = json!({"custom_id": "e", "response": null, "error": {"code": "batch_expired"}}).to_string();
    let results = [output("b", "of b"), output("nobody", "x"), failed, output("a", "of a"), output("a", "twice"), expired, "{".into()];
    fs::write(&pending.results, results.join("\n")).unwrap();
    let next = Batch::open(&place).unwrap();
    assert_eq!((ask(&next, "a").as_deref(), ask(&next, "b").as_deref()), (Ok("of a"), Ok("of b")));
    assert!(matches!(ask(&next, "c"), Err(Unanswered::Refused { what }) if what.contains("429") && what.contains("slow down")));
    assert!(matches!(ask(&next, "e"), Err(Unanswered::Refused { what }) if what.contains("batch_expired")));
    assert_eq!(ask(&next, "d"), Err(Unanswered::Later), "what is missing is asked again");
    let pending = next.pending().unwrap();
    assert_eq!((pending.count, lines(&place.join("round-2.requests.jsonl")).len()), (1, 1));
    let odd = next.odd().join("\n");
    for words in [
        "nobody asked \"nobody\"",
        "a second answer to a",
        "c: the question was refused",
        "e: the question",
        "no answer to d",
        "line 7: not JSON",
    ] {
        assert!(odd.contains(words), "{words}: {odd}");
    }
    assert_eq!(next.odd().len(), 6, "{odd}");
}

#[test]
fn usage_is_what_the_provider_says() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.jsonl"), output("a", "x")).unwrap();
    let recorded = Recorded::read(&folder.path().join("a.jsonl")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answer = runtime.block_on(recorded.ask("job", &question("a"))).unwrap();
    assert_eq!((answer.usage.input_tokens, answer.usage.cached_input_tokens, answer.usage.output_tokens), (11, 5, 7));
    assert_eq!(answer.model, "m-1-2026");
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    assert!(Recorded::read(Path::new("/nonexistent/answers.jsonl")).is_err());
}
