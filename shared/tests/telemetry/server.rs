//! The three routes as a probe and Prometheus see them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kernelopt_shared::telemetry::health::Health;
use kernelopt_shared::telemetry::server::{Telemetry, serve};
use kernelopt_shared::telemetry::{ProcessMetrics, Registry};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Status and what follows it.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer["HTTP/1.1 ".len()..][..3].parse().unwrap(), answer)
}

async fn ask(address: SocketAddr, path: &'static str) -> (u16, String) {
    tokio::task::spawn_blocking(move || get(address, path)).await.unwrap()
}

#[tokio::test]
async fn probes_and_scrapes_are_answered() {
    let registry = Registry::new();
    let health = Health::new(Duration::from_secs(60), ["journal"]);
    let telemetry =
        Telemetry { registry: registry.clone(), process: ProcessMetrics::new(&registry, "agent").unwrap(), health: health.clone() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let server = tokio::spawn(serve(listener, telemetry, stop.clone()));

    assert_eq!(ask(address, "/healthz").await.0, 200);
    let (status, answer) = ask(address, "/readyz").await;
    assert!(status == 503 && answer.ends_with("journal: starting\n"), "{answer}");
    let (status, answer) = ask(address, "/metrics").await;
    assert!(status == 200 && answer.contains("text/plain; version=0.0.4") && answer.contains("\nkernelopt_ready 0\n"), "{answer}");

    health.met("journal");
    assert_eq!(ask(address, "/readyz").await.0, 200);
    assert!(ask(address, "/metrics").await.1.contains("\nkernelopt_ready 1\n"));
    assert_eq!(ask(address, "/v1/jobs").await.0, 404);

    stop.cancel();
    server.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_loop_that_is_stuck_is_not_alive_and_its_work_is_no_matter() {
    let registry = Registry::new();
    let health = Health::new(Duration::from_millis(10), []);
    let telemetry = Telemetry { registry: registry.clone(), process: ProcessMetrics::new(&registry, "agent").unwrap(), health };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, telemetry, CancellationToken::new()));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (status, answer) = ask(address, "/healthz").await;
    assert!(status == 503 && answer.contains("the loop has not turned"), "{answer}");
    assert_eq!(ask(address, "/readyz").await.0, 200);
}
