//! Answers of a language model, from a record and from a batch, go through a whole `tune` like any other candidates.

use std::fs;
use std::path::Path;
use std::process::Output;

use kernelopt_coordinator::journal::{Event, Journal};
use kernelopt_coordinator::llm::{Part, question_id};
use kernelopt_tests::{bundle, kernelopt, result, root};
use serde_json::{Value, json};

const KERNEL: &str = "cpp_fused_native_layer_norm_0";

fn tune(out: &Path, more: &[&str]) -> Output {
    let model = bundle("layer_norm_one_thread");
    let mut args = vec!["tune", model.to_str().expect("utf-8"), "-o", out.to_str().expect("utf-8"), "--budget", "5m"];
    args.extend_from_slice(more);
    kernelopt(&args)
}

fn words(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// The rows of the record, by question.
fn recorded() -> Vec<(Part, String)> {
    let text = fs::read_to_string(root().join("tests/fixtures/replay/layer_norm_answers.jsonl")).expect("the record");
    let mut next = 0;
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).expect("a row");
        let part = row["question"].as_str().map_or_else(
            || {
                next += 1;
                Part::Code(next - 1)
            },
            |text| Part::parse(text).expect("a question"),
        );
        (part, row["answer"].as_str().expect("an answer").to_owned())
    };
    text.lines().map(row).collect()
}

#[test]
fn a_kernel_out_of_recorded_answers_is_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let record = root().join("tests/fixtures/replay/layer_norm_answers.jsonl");
    let done = tune(&out, &["--proposer", &format!("replay={}", record.display())]);
    assert!(done.status.success(), "{}", words(&done));
    let found = result(&out);
    assert_eq!(found["model"]["verdict"], "improved", "{found:#}");
    let winner = &found["targets"][0]["winner"];
    assert_eq!(winner["proposer"], "replay");
    assert!(winner["note"].as_str().expect("a note").contains("the variance over 256"), "the repaired one: {winner}");
    let used = &found["budget"]["language_model"];
    assert_eq!((&used["no_kernel"], &used["candidates"]), (&json!(2), &json!(3)), "prose and assembly are no kernels: {used}");
    let table = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(table.contains("language model: ") && table.contains("2 answers without a kernel"), "{table}");
}

/// What a batch API would give back for a file of requests: the record's answers, the last line first.
fn results(requests: &Path) -> String {
    let record = recorded();
    let line = |line: &str| {
        let request: Value = serde_json::from_str(line).expect("a request");
        let id = request["custom_id"].as_str().expect("an id").to_owned();
        let text = record.iter().find(|(part, _)| question_id(0, KERNEL, *part) == id).map(|(_, text)| text.clone());
        let choices = json!([{"message": {"role": "assistant", "content": text.as_ref()?}, "finish_reason": "stop"}]);
        let body = json!({"model": "m", "choices": choices, "usage": {"prompt_tokens": 2000, "completion_tokens": 300}});
        Some(json!({"custom_id": id, "response": {"status_code": 200, "body": body}, "error": null}).to_string())
    };
    let text = fs::read_to_string(requests).expect("the requests");
    let mut lines: Vec<String> = text.lines().filter_map(line).collect();
    lines.reverse();
    lines.join("\n")
}

#[test]
fn a_batch_waits_on_disk_and_goes_on_round_after_round() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let options = ["--proposer", "batch", "--model", "m", "--max-tokens", "200000", "--resume"];
    let mut rounds = 0;
    let done = loop {
        let done = tune(&out, &options);
        if done.status.success() {
            break done;
        }
        assert_eq!(done.status.code(), Some(11), "{}", words(&done));
        rounds += 1;
        assert!(rounds < 10, "no end");
        let requests = out.join(format!("batch/round-{rounds}.requests.jsonl"));
        assert!(words(&done).contains(requests.to_str().expect("utf-8")), "it says which file to send: {}", words(&done));
        let answers = results(&requests);
        // Once nothing comes back, whoever sends them gives up: every line failed.
        let failed = |line: &str| {
            let request: Value = serde_json::from_str(line).expect("a request");
            json!({"custom_id": request["custom_id"], "response": null, "error": {"code": "batch_expired"}}).to_string()
        };
        let text = fs::read_to_string(&requests).expect("the requests");
        let answers = if answers.is_empty() { text.lines().map(failed).collect::<Vec<_>>().join("\n") } else { answers };
        fs::write(out.join(format!("batch/round-{rounds}.results.jsonl")), answers).expect("the results");
    };
    assert!(rounds >= 3, "ideas, kernels, repairs: {rounds} rounds");
    let found = result(&out);
    // How fast they are is another test's matter.
    let counts = &found["targets"][0]["verdict_counts"];
    assert_eq!(counts["wrong"], 1, "{counts}: {}", words(&done));
    assert_eq!(found["budget"]["language_model"]["candidates"], 3);
    let tokens = found["budget"]["tokens"].as_u64().expect("tokens");
    assert_eq!(tokens, 2300 * found["budget"]["language_model"]["answers"].as_u64().expect("answers"));
    let entries = Journal::read_only(&out).expect("the journal");
    let asked: Vec<&String> = entries
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::Asked { question, .. } => Some(&question.id),
            _ => None,
        })
        .collect();
    let unique: std::collections::BTreeSet<_> = asked.iter().collect();
    assert_eq!(asked.len(), unique.len(), "nothing is asked twice");
}

#[test]
fn proposers_that_lack_something_say_what() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let cases: [(&[&str], i32, &str); 7] = [
        (&["--proposer", "llm", "--model", "m"], 2, "no gateway"),
        (&["--proposer", "llm", "--model", "m", "--gateway", "http://127.0.0.1:1"], 2, "KERNELOPT_GATEWAY_TOKEN"),
        (&["--proposer", "batch"], 2, "--model"),
        (&["--proposer", "oracle"], 2, "unknown proposer"),
        (&["--proposer", "batch,replay=x.jsonl", "--model", "m"], 2, "several proposers"),
        (&["--proposer", "replay=/nonexistent.jsonl"], 3, "/nonexistent.jsonl"),
        (&["--proposer", "batch", "--model", "m", "--max-cost", "five"], 2, "dollars"),
    ];
    for (more, code, what) in cases {
        let done = tune(&out, more);
        assert_eq!(done.status.code(), Some(code), "{more:?}: {}", words(&done));
        assert!(words(&done).contains(what), "{more:?}: {}", words(&done));
        assert!(!out.exists(), "{more:?} leaves nothing");
    }
}
