//! TLS: with the authority's certificate it works, without it nothing is sent.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernelopt_shared::broker::rabbit::{RabbitBroker, RabbitOptions};
use kernelopt_shared::broker::{Broker, BrokerState};
use kernelopt_test_servers::RabbitMq;

use super::{left_out, options};
use crate::stand::{lane, publish, take, until};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_over_tls() {
    if left_out() {
        return;
    }
    // Where the server's account can read them.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["ca.pem", "server.pem", "server.key"] {
        fs::copy(fixture(name), folder.path().join(name)).unwrap();
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let at = folder.path().display();
    let server = RabbitMq::start_with(&format!(
        "listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.cacertfile = {at}/ca.pem\nssl_options.certfile = {at}/server.pem\n\
         ssl_options.keyfile = {at}/server.key\nssl_options.verify = verify_none"
    ))
    .unwrap();
    let url = server.url_at(port).replace("amqp://", "amqps://");

    let trusting = RabbitOptions { ca_file: Some(fixture("ca.pem")), ..options(&url, "tls") };
    let broker: Arc<dyn Broker> = Arc::new(RabbitBroker::start(trusting).unwrap());
    until(&broker, |state| *state == BrokerState::Up).await;
    publish(&broker, &lane(), &["a"]).await;
    let mut tasks = broker.subscribe(&lane(), 1).await.unwrap();
    assert_eq!(take(&mut tasks, 1).await, ["a"]);

    let wary: Arc<dyn Broker> = Arc::new(RabbitBroker::start(options(&url, "tls")).unwrap());
    until(&wary, |state| matches!(state, BrokerState::Down { reason } if reason.to_lowercase().contains("cert"))).await;
}
