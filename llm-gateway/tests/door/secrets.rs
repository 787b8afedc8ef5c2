//! Keys, the caller's and the gateway's own, are nowhere but where they belong.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;

use crate::rig::{KEY, OPERATOR, Rig, THEIRS, TIMES, at, chat, model};
use crate::upstream::{Play, Step, Upstream, answer, chunk, completion, delta, end, error, finish, ok, stream_head};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Every way in which an upstream may repeat what it was sent.
fn plays(asked: &str) -> Vec<Play> {
    let echo = format!("you sent {asked} and key {}", THEIRS[0]);
    let event = |data: &Value| chunk(&format!("data: {data}\n\n"));
    let failure = json!({"error": {"message": echo, "type": "server_error", "code": THEIRS[0], "param": THEIRS[0]}});
    let mut plays: Vec<Play> = [400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 503, 529]
        .into_iter()
        .map(|status| {
            answer(status, &[("x-request-id", THEIRS[0]), ("www-authenticate", THEIRS[0]), ("x-api-key", THEIRS[0])], &failure.to_string())
        })
        .collect();
    plays.push(answer(200, &[("authorization", THEIRS[0]), ("request-id", THEIRS[0])], &completion("fine").to_string()));
    plays.push(answer(200, &[], &failure.to_string()));
    plays.push(answer(500, &[], &echo));
    plays.push(answer(302, &[("location", &format!("http://127.0.0.1:1/{}", THEIRS[0]))], &echo));
    plays.push(vec![stream_head(), event(&failure), end()]);
    plays.push(vec![stream_head(), chunk(&delta("a")), event(&failure), end()]);
    plays.push(vec![stream_head(), chunk(&format!("data: {echo}\n\n")), end()]);
    plays.push(vec![stream_head(), chunk(&delta("a")), chunk(&finish()), end()]);
    plays.push(vec![Step::Cut]);
    plays
}

#[tokio::test]
async fn keys_are_in_no_log_no_metric_no_error_and_no_body() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false).with_writer(log.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut seen = String::new();
    let count = plays("").len();
    for number in 0..count {
        let upstream = Upstream::start(move |asked| plays(&asked.head).swap_remove(number)).await;
        let top = "[retry]\nmost_attempts = 2\nfirst_wait_ms = 10\nlongest_wait_ms = 10";
        let rig = Rig::start_with(top, &[at(&upstream, "one", "openai", &["a"], TIMES), model(&["one"])].concat()).await;
        for stream in [false, true] {
            let mut body = chat();
            body["stream"] = stream.into();
            let request = rig.post("/v1/chat/completions", &body).header("x-kernelopt-deadline-ms", "300");
            let response = request.send().await.unwrap();
            seen.push_str(&format!("{:?}\n", response.headers()));
            seen.push_str(&response.text().await.unwrap());
        }
        // The caller's own key where it does not belong.
        let odd = rig.client.post(format!("{}/v1/{KEY}", rig.base)).bearer_auth(KEY).body("{").send().await.unwrap();
        drop(odd);
        seen.push_str(&rig.metrics());
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("attempt failed") && log.contains("kernelopt_llm_gateway"), "something is logged");
    let ours: String = log.lines().filter(|line| line.contains("kernelopt")).collect::<Vec<_>>().join("\n");
    for canary in [KEY, OPERATOR, THEIRS[0], THEIRS[1]] {
        assert!(!seen.contains(canary), "{}", seen.lines().find(|line| line.contains(canary)).unwrap_or_default());
        assert!(!ours.contains(canary), "{}", ours.lines().find(|line| line.contains(canary)).unwrap_or_default());
    }
    assert!(!ours.contains("hello there"), "content is not logged");
}

#[tokio::test]
async fn a_complaint_that_holds_the_key_keeps_the_rest_of_its_words() {
    let upstream = Upstream::start(|_| error(400, &[], &format!("temperature is odd ({})", THEIRS[0]))).await;
    let rig = Rig::with(&upstream, "openai").await;
    let text = rig.chat().await.text().await.unwrap();
    assert!(text.contains("temperature is odd ([withheld])"), "{text}");
    let upstream = Upstream::start(|_| ok(&completion("fine"))).await;
    drop(Rig::with(&upstream, "openai").await);
}
