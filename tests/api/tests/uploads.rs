//! Uploads that are too large, torn, slow or not what they say: nothing of them stays.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::{Duration, Instant};

use kernelopt_coordinator::http::Limits;
use kernelopt_shared::api::Problem;
use kernelopt_shared::blobs::{BlobError, BlobOptions, Blobs};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::secret::SecretString;
use kernelopt_test_api::{Running, bundle_tar, token};
use reqwest::{Body, Client, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MIB: usize = 1 << 20;

fn limits() -> Limits {
    Limits {
        blob_bytes: MIB as u64,
        silence: Duration::from_millis(300),
        head_within: Duration::from_millis(300),
        least_bytes_per_second: 1 << 10,
        uploads: 2,
        ..Limits::default()
    }
}

fn client() -> Client {
    kernelopt_shared::tls::install();
    Client::new()
}

fn digest(bytes: &[u8]) -> Digest {
    Digest::of([bytes])
}

async fn put(running: &Running, digest: &str, body: impl Into<Body>) -> (StatusCode, String) {
    let request = client().put(running.url(&format!("/v1/blobs/{digest}"))).bearer_auth(token("submitter")).body(body);
    let response = request.send().await.unwrap();
    (response.status(), response.text().await.unwrap())
}

fn nothing_stays(running: &Running) {
    assert_eq!(running.desk.blob_names(), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(&running.spool).unwrap().count(), 0, "the spool is empty");
}

/// Waits for an upload that was given up by its client to be noticed.
async fn nothing_stays_soon(running: &Running) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while std::fs::read_dir(&running.spool).unwrap().count() > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    nothing_stays(running);
}

/// A connection that has sent the head of an upload.
async fn raw_upload(running: &Running, digest: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let head = format!("PUT /v1/blobs/{digest} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n{headers}\r\n\r\n", token("submitter"));
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn answer(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut text)).await.expect("an answer, and the end");
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn what_is_stored_comes_back() {
    let running = Running::start(limits(), true).await;
    let (bytes, name) = bundle_tar();
    assert_eq!(put(&running, &name.to_string(), bytes.clone()).await.0, StatusCode::CREATED);
    assert_eq!(put(&running, &name.to_string(), bytes.clone()).await.0, StatusCode::OK);
    let url = running.url(&format!("/v1/blobs/{name}"));
    let head = client().head(&url).bearer_auth(token("submitter")).send().await.unwrap();
    assert_eq!((head.status(), head.headers()["content-length"].to_str().unwrap()), (StatusCode::OK, &*bytes.len().to_string()));
    let got = client().get(&url).bearer_auth(token("agent")).send().await.unwrap();
    assert_eq!(got.headers()["etag"], format!("\"{name}\""));
    assert_eq!(got.bytes().await.unwrap(), bytes);
    let none = client().get(running.url(&format!("/v1/blobs/{}", digest(b"none")))).bearer_auth(token("agent")).send().await.unwrap();
    assert_eq!(none.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_upload_of_unknown_length_is_stored_too() {
    let running = Running::start(limits(), true).await;
    let pieces = futures_util::stream::iter((0..8).map(|i| Ok::<_, std::io::Error>(vec![i; 1000])));
    let whole: Vec<u8> = (0..8).flat_map(|i| vec![i; 1000]).collect();
    let (status, _) = put(&running, &digest(&whole).to_string(), Body::wrap_stream(pieces)).await;
    assert_eq!(status, StatusCode::CREATED);
}

#[tokio::test]
async fn an_upload_that_lies_is_refused() {
    let running = Running::start(limits(), true).await;
    let (status, text) = put(&running, &digest(b"other").to_string(), "content").await;
    let problem: Problem = serde_json::from_str(&text).unwrap();
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(problem.detail.contains(&digest(b"content").to_string()), "{problem:?}");
    nothing_stays(&running);
}

#[tokio::test]
async fn an_upload_that_is_too_large_is_refused_whether_it_says_so_or_not() {
    let running = Running::start(limits(), true).await;
    let large = vec![0u8; 2 * MIB];
    let name = digest(&large).to_string();
    assert_eq!(put(&running, &name, large.clone()).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let pieces = large.chunks(MIB / 8).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect::<Vec<_>>();
    assert_eq!(put(&running, &name, Body::wrap_stream(futures_util::stream::iter(pieces))).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let mut huge = raw_upload(&running, &name, "content-length: 99999999999999").await;
    assert!(answer(&mut huge).await.starts_with("HTTP/1.1 413"));
    nothing_stays(&running);
}

#[tokio::test]
async fn a_torn_upload_leaves_nothing() {
    let running = Running::start(limits(), true).await;
    let (bytes, name) = bundle_tar();
    for headers in [format!("content-length: {}", bytes.len()), "transfer-encoding: chunked".into()] {
        let chunked = headers.starts_with("transfer");
        let mut stream = raw_upload(&running, &name.to_string(), &headers).await;
        if chunked {
            stream.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await.unwrap();
        }
        stream.write_all(&bytes[..bytes.len() / 2]).await.unwrap();
        stream.flush().await.unwrap();
        drop(stream);
        nothing_stays_soon(&running).await;
    }
    assert_eq!(put(&running, &name.to_string(), bytes).await.0, StatusCode::CREATED, "the room of a torn upload is free again");
}

#[tokio::test]
async fn a_silent_upload_ends() {
    let running = Running::start(limits(), true).await;
    let mut stream = raw_upload(&running, &digest(b"x").to_string(), "content-length: 1000").await;
    stream.write_all(b"x").await.unwrap();
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 408"));
    nothing_stays_soon(&running).await;
}

#[tokio::test]
async fn an_upload_of_drops_ends() {
    let running = Running::start(limits(), true).await;
    let mut stream = raw_upload(&running, &digest(b"x").to_string(), "content-length: 1000").await;
    let (mut reading, mut writing) = stream.split();
    let drip = async {
        while writing.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let mut text = vec![0u8; 12];
    tokio::select! {
        read = reading.read_exact(&mut text) => { read.unwrap(); }
        () = drip => {}
        () = tokio::time::sleep(Duration::from_secs(5)) => panic!("it goes on"),
    }
    assert_eq!(text, b"HTTP/1.1 408");
}

#[tokio::test]
async fn a_slow_head_ends() {
    let running = Running::start(limits(), true).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(b"PUT /v1/blobs/").await.unwrap();
    let began = Instant::now();
    answer(&mut stream).await;
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn a_client_that_does_not_read_is_let_go() {
    let running = Running::start(Limits { blob_bytes: 64 << 20, downloads: 1, ..limits() }, true).await;
    let large = vec![7u8; 32 * MIB];
    let name = digest(&large).to_string();
    assert_eq!(put(&running, &name, large).await.0, StatusCode::CREATED);
    let mut deaf = TcpStream::connect(running.address).await.unwrap();
    let request = format!("GET /v1/blobs/{name} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", token("agent"));
    deaf.write_all(request.as_bytes()).await.unwrap();
    let get = || client().get(running.url(&format!("/v1/blobs/{name}"))).bearer_auth(token("agent")).send();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let busy = get().await.unwrap();
    assert_eq!((busy.status(), busy.headers().contains_key("retry-after")), (StatusCode::TOO_MANY_REQUESTS, true));
    let deadline = Instant::now() + Duration::from_secs(5);
    while get().await.unwrap().status() != StatusCode::OK {
        assert!(Instant::now() < deadline, "its place is never free again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_path_leads_nowhere_else() {
    let running = Running::start(limits(), true).await;
    let outside = running.spool.parent().unwrap().join("outside");
    std::fs::write(&outside, "secret").unwrap();
    for name in ["..%2F..%2Foutside", "%2e%2e%2foutside", "../../outside", "%00", "..", &"é".repeat(16), &"0".repeat(31)] {
        for method in ["GET", "PUT", "HEAD"] {
            let mut stream = TcpStream::connect(running.address).await.unwrap();
            let head = format!(
                "{method} /v1/blobs/{name} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {}\r\ncontent-length: 0\r\n\r\n",
                token("operator")
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let text = answer(&mut stream).await;
            assert!(text.starts_with("HTTP/1.1 40"), "{method} {name}: {text}");
            assert!(!text.contains("secret"));
        }
    }
    nothing_stays(&running);
}

#[tokio::test]
async fn an_agent_and_a_submitter_share_blobs_and_a_slow_disk_is_waited_for() {
    let running = Running::start(limits(), true).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, b"content").unwrap();
    let blobs = |role: &str| {
        let token = Some(SecretString::from(token(role)));
        Blobs::open(&BlobOptions { token, deadline: Duration::from_millis(300), ..BlobOptions::new(running.url("/v1/blobs")) }).unwrap()
    };
    // Longer than the deadline: that is for answers; an upload has as long as its bytes may take besides.
    let large = folder.path().join("large");
    std::fs::write(&large, vec![1u8; MIB]).unwrap();
    running.desk.set_disk_takes(Duration::from_millis(600));
    let name = blobs("submitter").put_file(&large).await.unwrap();
    running.desk.set_disk_takes(Duration::ZERO);
    assert_eq!(blobs("agent").get(name, 2 * MIB as u64).await.unwrap().len(), MIB);
    let refused = blobs("viewer").put_file(&path).await.unwrap_err();
    assert!(matches!(refused, BlobError::Refused(_)), "{refused}");
    std::fs::write(&large, vec![1u8; 2 * MIB]).unwrap();
    let refused = blobs("submitter").put_file(&large).await.unwrap_err();
    assert!(matches!(&refused, BlobError::TooLarge { what, .. } if what.contains("a blob has at most")), "{refused}");
}
