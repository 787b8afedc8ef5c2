//! One connection, channel, consumer or queue is taken away, and all goes on.

use std::sync::Arc;
use std::time::Duration;

use kernelopt_shared::broker::rabbit::RabbitBroker;
use kernelopt_shared::broker::{Address, Broker, BrokerError, BrokerState};
use kernelopt_test_servers::{Proxy, RabbitMq};

use super::{connect, left_out, options};
use crate::stand::{SOON, agent, eventually, frame, lane, next, publish, take, text, until};

/// The lane's queue on the server.
const QUEUE: &str = "m.v1.lane.nvidia-h200-139g-sm90";

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_mends() {
    if left_out() {
        return;
    }
    let server = RabbitMq::start().unwrap();
    macro_rules! run {
        ($($check:ident),* $(,)?) => {
            $(
                let begun = std::time::Instant::now();
                $check(&server).await;
                eprintln!("{:6} ms  {}", begun.elapsed().as_millis(), stringify!($check));
            )*
        };
    }
    run![
        a_queue_deleted_under_its_consumer_is_made_again,
        a_deaf_consumer_is_made_again,
        a_queue_deleted_under_its_publisher_is_made_again,
        an_agents_own_queue_is_made_again,
        a_turn_is_lost_with_its_queue,
        a_connection_closed_by_an_operator_is_made_again,
        other_arguments_are_refused_with_what_to_do,
        a_wrong_password_is_said_without_it,
        an_alarm_is_a_state_and_ends,
        a_channel_killed_by_a_timeout_is_made_again,
    ];
}

/// The broker cancels the consumer: its stream ends without an error.
async fn a_queue_deleted_under_its_consumer_is_made_again(server: &RabbitMq) {
    let broker = connect(&server.url(), "m").await;
    let mut tasks = broker.subscribe(&lane(), 4).await.unwrap();
    publish(&broker, &lane(), &["a"]).await;
    let held = next(&mut tasks).await;
    server.rabbitmqctl(&["delete_queue", QUEUE]).unwrap();
    publish(&broker, &lane(), &["b"]).await;
    assert_eq!(take(&mut tasks, 1).await, ["b"]);
    // Its queue is gone; a broker is a pipe, not a ledger. Nothing breaks.
    held.receipt.acknowledge().await;
}

/// The queue is there again before the consumer's channel has heard of its end: what is sent then may be held by a consumer that never
/// hears it. Silence mends it.
async fn a_deaf_consumer_is_made_again(server: &RabbitMq) {
    let broker = connect(&server.url(), "m").await;
    let mut tasks = broker.subscribe(&lane(), 4).await.unwrap();
    publish(&broker, &lane(), &["a"]).await;
    assert_eq!(take(&mut tasks, 1).await, ["a"]);
    let name = format!("rabbit_misc:r(<<\"/\">>, queue, <<\"{QUEUE}\">>)");
    let again = format!(
        "{{ok, Q}} = rabbit_amqqueue:lookup({name}), rabbit_amqqueue:delete(Q, false, false, <<\"tests\">>), \
         rabbit_amqqueue:declare({name}, true, false, amqqueue:get_arguments(Q), none, <<\"tests\">>)."
    );
    server.rabbitmqctl(&["eval", &again]).unwrap();
    publish(&broker, &lane(), &["b"]).await;
    assert_eq!(take(&mut tasks, 1).await, ["b"]);
}

async fn a_queue_deleted_under_its_publisher_is_made_again(server: &RabbitMq) {
    let broker = connect(&server.url(), "m").await;
    publish(&broker, &lane(), &["a"]).await;
    server.rabbitmqctl(&["delete_queue", QUEUE]).unwrap();
    assert_eq!(broker.depth(&lane()).await.unwrap(), None);
    publish(&broker, &lane(), &["b"]).await;
    let mut tasks = broker.subscribe(&lane(), 4).await.unwrap();
    assert_eq!(take(&mut tasks, 1).await, ["b"]);
}

async fn an_agents_own_queue_is_made_again(server: &RabbitMq) {
    let broker = connect(&server.url(), "own").await;
    let address = agent("gpu7/cuda0");
    let mut controls = broker.subscribe(&address, 4).await.unwrap();
    let queues = server.rabbitmqctl(&["list_queues", "--quiet", "name"]).unwrap();
    let queue = queues.lines().find(|name| name.starts_with("own.v1.agent.gpu7/cuda0.")).expect("its name says whose it is");
    server
        .rabbitmqctl(&["eval", &format!("rabbit_amqqueue:delete_exclusive([rabbit_misc:r(<<\"/\">>, queue, <<\"{queue}\">>)], none).")])
        .ok();
    server.rabbitmqctl(&["delete_queue", queue]).ok();
    eventually("it is heard again", async || broker.publish(&address, frame("a")).await.is_ok()).await;
    assert_eq!(take(&mut controls, 1).await, ["a"]);
}

async fn a_turn_is_lost_with_its_queue(server: &RabbitMq) {
    let (one, other) = (connect(&server.url(), "l").await, connect(&server.url(), "l").await);
    let mut lead = one.lead().await.unwrap();
    // What a partition or a careless operator does.
    delete(server, "l.v1.leader");
    tokio::time::timeout(SOON, lead.lost()).await.expect("it still believes that it leads");
    tokio::time::timeout(SOON, other.lead()).await.expect("the turn did not pass on").unwrap();
}

/// Deletes a queue, somebody else's exclusive one too.
fn delete(server: &RabbitMq, queue: &str) {
    let name = format!("rabbit_misc:r(<<\"/\">>, queue, <<\"{queue}\">>)");
    let delete = format!("{{ok, Q}} = rabbit_amqqueue:lookup({name}), rabbit_amqqueue:delete(Q, false, false, <<\"tests\">>).");
    server.rabbitmqctl(&["eval", &delete]).unwrap();
}

async fn a_connection_closed_by_an_operator_is_made_again(server: &RabbitMq) {
    let broker = connect(&server.url(), "m").await;
    let mut tasks = broker.subscribe(&lane(), 4).await.unwrap();
    let mut states = broker.state();
    states.mark_unchanged();
    let mut lead = broker.lead().await.unwrap();
    publish(&broker, &lane(), &["a"]).await;
    let held = next(&mut tasks).await;
    server.rabbitmqctl(&["close_all_connections", "maintenance"]).unwrap();
    tokio::time::timeout(SOON, states.changed()).await.expect("the state stays").unwrap();
    tokio::time::timeout(SOON, lead.lost()).await.expect("it still believes that it leads");
    until(&broker, |state| *state == BrokerState::Up).await;
    let again = next(&mut tasks).await;
    assert_eq!((text(&again).as_str(), again.redelivered), ("a", true));
    assert!(!held.receipt.acknowledge().await, "an acknowledgement that is late says so");
    assert!(again.receipt.acknowledge().await);
}

async fn other_arguments_are_refused_with_what_to_do(server: &RabbitMq) {
    let declare = "rabbit_amqqueue:declare(rabbit_misc:r(<<\"/\">>, queue, <<\"bad.v1.reports\">>), true, false, [], none, <<\"tests\">>).";
    server.rabbitmqctl(&["eval", declare]).unwrap();
    let broker = connect(&server.url(), "bad").await;
    for error in [
        broker.publish(&Address::Reports, frame("a")).await.unwrap_err(),
        broker.subscribe(&Address::Reports, 1).await.err().expect("it is refused"),
    ] {
        let words = error.to_string();
        assert!(matches!(error, BrokerError::Topology(_)) && words.contains("bad.v1.reports") && words.contains("delete it"), "{words}");
    }
    // Nothing else is disturbed.
    publish(&broker, &lane(), &["a"]).await;
}

async fn a_wrong_password_is_said_without_it(server: &RabbitMq) {
    let url = format!("amqp://kernelopt:hunter2@127.0.0.1:{}/%2f", server.port());
    let broker: Arc<dyn Broker> = Arc::new(RabbitBroker::start(options(&url, "m")).unwrap());
    until(&broker, |state| matches!(state, BrokerState::Down { reason } if reason.contains("ACCESS_REFUSED"))).await;
    assert!(!format!("{:?}", broker.state().borrow()).contains("hunter2"));
}

async fn an_alarm_is_a_state_and_ends(server: &RabbitMq) {
    let broker = connect(&server.url(), "m").await;
    publish(&broker, &Address::Reports, &["before"]).await;
    server.rabbitmqctl(&["set_vm_memory_high_watermark", "absolute", "1"]).unwrap();
    // A connection is told once it publishes.
    let sender = broker.clone();
    let during = tokio::spawn(async move { sender.publish(&Address::Reports, frame("during")).await });
    until(&broker, |state| matches!(state, BrokerState::Blocked { reason } if reason.contains("memory"))).await;
    let error = broker.publish(&Address::Reports, frame("held")).await.unwrap_err();
    assert!(error.is_passing() && error.to_string().contains("no publications"), "{error}");
    server.rabbitmqctl(&["set_vm_memory_high_watermark", "0.4"]).unwrap();
    until(&broker, |state| *state == BrokerState::Up).await;
    let _ = during.await.unwrap();
    publish(&broker, &Address::Reports, &["after"]).await;
}

/// The broker closes the channel with a 406, `PRECONDITION_FAILED`.
async fn a_channel_killed_by_a_timeout_is_made_again(server: &RabbitMq) {
    let hurry = "application:set_env(rabbit, consumer_timeout, 1000), application:set_env(rabbit, channel_tick_interval, 500).";
    server.rabbitmqctl(&["eval", hurry]).unwrap();
    let broker = connect(&server.url(), "406").await;
    let mut tasks = broker.subscribe(&lane(), 1).await.unwrap();
    publish(&broker, &lane(), &["a"]).await;
    let held = next(&mut tasks).await;
    let again = next(&mut tasks).await;
    assert_eq!((text(&again).as_str(), again.redelivered), ("a", true));
    assert!(!held.receipt.acknowledge().await);
    assert!(again.receipt.acknowledge().await);
    assert_eq!(*broker.state().borrow(), BrokerState::Up, "one channel is not the connection");
    server.rabbitmqctl(&["eval", "application:set_env(rabbit, consumer_timeout, 1800000)."]).unwrap();
}

/// A network that swallows everything: only heartbeats tell.
#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_through_a_bad_network() {
    if left_out() {
        return;
    }
    let server = RabbitMq::start().unwrap();
    let proxy = Proxy::to(server.port()).unwrap();
    let (far, near) = (connect(&server.url_at(proxy.port()), "n").await, connect(&server.url(), "n").await);
    let mut tasks = far.subscribe(&lane(), 1).await.unwrap();
    let mut lead = far.lead().await.unwrap();
    publish(&near, &lane(), &["a"]).await;
    let held = next(&mut tasks).await;

    proxy.delay(Duration::from_secs(3600));
    let begun = tokio::time::Instant::now();
    until(&far, |state| matches!(state, BrokerState::Down { .. })).await;
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    tokio::time::timeout(SOON, lead.lost()).await.expect("it still believes that it leads");
    let mut others = near.subscribe(&lane(), 1).await.unwrap();
    let again = next(&mut others).await;
    assert!(again.redelivered && !held.receipt.acknowledge().await && again.receipt.acknowledge().await);
    tokio::time::timeout(SOON, near.lead()).await.expect("the turn did not pass on").unwrap();
    drop(others);

    proxy.delay(Duration::ZERO);
    proxy.cut();
    until(&far, |state| *state == BrokerState::Up).await;
    publish(&near, &lane(), &["b"]).await;
    assert_eq!(take(&mut tasks, 1).await, ["b"]);
}
