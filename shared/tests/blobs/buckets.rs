//! S3 and Google Cloud Storage, by their protocols: a small server that speaks the part of both that we use. What it cannot show is what the
//! providers themselves do.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use tokio::net::TcpListener;

#[derive(Default)]
struct Bucket {
    objects: HashMap<String, Bytes>,
    parts: BTreeMap<u32, Bytes>,
    signed: u32,
}

type Shared = Arc<Mutex<Bucket>>;

async fn start() -> (u16, Shared) {
    let shared = Shared::default();
    let router = Router::new().route("/{*key}", any(object)).layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&shared));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (port, shared)
}

async fn object(
    State(shared): State<Shared>,
    Path(key): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut bucket = shared.lock().unwrap();
    bucket.signed += u32::from(headers.get("authorization").is_some_and(|value| value.to_str().unwrap().starts_with("AWS4-HMAC-SHA256")));
    let tag = [("etag", "\"tag\""), ("last-modified", "Mon, 30 Nov 2026 12:00:00 GMT")];
    match (method.as_str(), query.get("partNumber"), query.contains_key("uploads")) {
        ("POST", None, true) => "<InitiateMultipartUploadResult><UploadId>7</UploadId></InitiateMultipartUploadResult>".into_response(),
        ("PUT", Some(part), _) => {
            bucket.parts.insert(part.parse().unwrap(), body);
            tag.into_response()
        }
        ("POST", None, false) => {
            let whole: Vec<u8> = std::mem::take(&mut bucket.parts).into_values().flatten().collect();
            bucket.objects.insert(key, whole.into());
            "<CompleteMultipartUploadResult><ETag>\"tag\"</ETag></CompleteMultipartUploadResult>".into_response()
        }
        ("PUT", None, _) => {
            bucket.objects.insert(key, body);
            tag.into_response()
        }
        ("GET" | "HEAD", ..) => match bucket.objects.get(&key) {
            Some(bytes) => (tag, bytes.clone()).into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

/// Runs a test of this program in another process, since credentials come from the environment.
async fn in_child(test: &'static str, environment: Vec<(&'static str, String)>) -> Output {
    let run = move || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--ignored", "--nocapture"]).envs(environment).output().unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn passed(output: &Output) {
    let words = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && words.contains("1 passed"), "{words}");
}

#[tokio::test]
#[ignore = "started by the tests below, with an environment"]
async fn child() {
    let blobs = super::open(&std::env::var("KERNELOPT_TEST_ADDRESS").unwrap());
    super::conforms(&blobs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_conforms() {
    let (port, bucket) = start().await;
    let environment = [
        ("KERNELOPT_TEST_ADDRESS", "s3://bucket/some/prefix"),
        ("AWS_ENDPOINT", &format!("http://127.0.0.1:{port}")),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "eu-north-1"),
    ];
    passed(&in_child("buckets::child", environment.map(|(name, value)| (name, value.to_owned())).to_vec()).await);
    let bucket = bucket.lock().unwrap();
    assert!(bucket.signed > 10);
    assert!(bucket.objects.keys().all(|key| key.starts_with("bucket/some/prefix/")), "{:?}", bucket.objects.keys());
}

#[tokio::test(flavor = "multi_thread")]
async fn google_cloud_storage_conforms() {
    let (port, bucket) = start().await;
    let folder = tempfile::tempdir().unwrap();
    let account = folder.path().join("account.json");
    let text = format!(
        r#"{{"gcs_base_url": "http://127.0.0.1:{port}", "disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}}"#
    );
    std::fs::write(&account, text).unwrap();
    let environment = vec![
        ("KERNELOPT_TEST_ADDRESS", "gs://bucket/prefix".to_owned()),
        ("GOOGLE_SERVICE_ACCOUNT", account.to_str().unwrap().to_owned()),
        ("GOOGLE_ALLOW_HTTP", "true".to_owned()),
    ];
    passed(&in_child("buckets::child", environment).await);
    assert!(bucket.lock().unwrap().objects.keys().all(|key| key.starts_with("bucket/prefix/")));
}
