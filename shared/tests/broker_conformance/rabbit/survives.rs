//! The server dies under load: nothing that it confirmed is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernelopt_shared::broker::link::{Repetition, publish};
use kernelopt_shared::broker::{Address, Broker, BrokerState};
use kernelopt_test_servers::RabbitMq;
use tokio_util::sync::CancellationToken;

use super::{connect, left_out};
use crate::stand::{SOON, frame, lane, next, text, until};

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_killed_under_load_keeps_what_it_confirmed() {
    if left_out() {
        return;
    }
    let mut server = RabbitMq::start().unwrap();
    let (sender, receiver) = (connect(&server.url(), "k").await, connect(&server.url(), "k").await);
    let mut subscription = receiver.subscribe(&lane(), 32).await.unwrap();
    let stop = CancellationToken::new();

    let senders: Vec<_> = (0..4).map(|n| tokio::spawn(send(sender.clone(), n, stop.clone()))).collect();
    let hearing = tokio::spawn(async move {
        let mut heard = BTreeMap::<String, u32>::new();
        while let Ok(Some(delivery)) = tokio::time::timeout(SOON, subscription.next()).await {
            let text = text(&delivery);
            if text == "end" {
                break;
            }
            *heard.entry(text).or_default() += 1;
            delivery.receipt.acknowledge().await;
        }
        heard
    });

    tokio::time::sleep(Duration::from_secs(2)).await;
    let server = tokio::task::spawn_blocking(move || {
        server.kill9();
        server.restart().unwrap();
        server
    });
    let server = server.await.unwrap();
    let begun = Instant::now();
    until(&sender, |state| *state == BrokerState::Up).await;
    eprintln!("connected {} ms after the server was", begun.elapsed().as_millis());
    tokio::time::sleep(Duration::from_secs(2)).await;
    stop.cancel();
    let mut confirmed = BTreeSet::new();
    for sent in senders {
        confirmed.extend(sent.await.unwrap());
    }
    // Quorum queues keep their order but for what came back: the last word is heard after all others, or they are missing.
    tokio::time::sleep(Duration::from_secs(1)).await;
    sender.publish(&lane(), frame("end")).await.unwrap();
    let heard = hearing.await.unwrap();
    let lost: Vec<_> = confirmed.iter().filter(|text| !heard.contains_key(*text)).collect();
    let twice = heard.values().filter(|times| **times > 1).count();
    eprintln!("{} confirmed, {} heard, {twice} of them more than once", confirmed.len(), heard.len());
    assert!(lost.is_empty(), "{lost:?}");
    assert!(confirmed.len() > 100);
    drop(server);
}

/// Sends until told: what was confirmed.
async fn send(broker: Arc<dyn Broker>, sender: u32, stop: CancellationToken) -> Vec<String> {
    let repetition = Repetition { tries: 100, first: Duration::from_millis(50), longest: Duration::from_millis(500) };
    let mut confirmed = Vec::new();
    for i in 0.. {
        if stop.is_cancelled() {
            break;
        }
        let text = format!("{sender}-{i:06}");
        publish(broker.as_ref(), &lane(), &frame(&text), repetition).await.unwrap();
        confirmed.push(text);
    }
    confirmed
}

/// All queues are gone, as after a wiped disk: everybody goes on without being told.
#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_wiped_is_declared_again() {
    if left_out() {
        return;
    }
    let mut server = RabbitMq::start().unwrap();
    let broker = connect(&server.url(), "w").await;
    let mut reports = broker.subscribe(&Address::Reports, 4).await.unwrap();
    broker.publish(&Address::Reports, frame("before")).await.unwrap();
    assert!(next(&mut reports).await.receipt.acknowledge().await);
    let server = tokio::task::spawn_blocking(move || {
        server.wipe().unwrap();
        server.restart().unwrap();
        server
    });
    let _server = server.await.unwrap();
    until(&broker, |state| *state == BrokerState::Up).await;
    broker.publish(&Address::Reports, frame("after")).await.unwrap();
    assert_eq!(text(&next(&mut reports).await), "after");
}

/// What it costs here; figures of a busy machine are noise, so nothing is asserted but that all arrives.
#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_figures() {
    if left_out() {
        return;
    }
    const FRAMES: usize = 3200;
    let server = RabbitMq::start().unwrap();
    let (sender, receiver) = (connect(&server.url(), "f").await, connect(&server.url(), "f").await);
    let mut subscription = receiver.subscribe(&lane(), 256).await.unwrap();
    sender.publish(&lane(), frame("warm")).await.unwrap();
    assert!(next(&mut subscription).await.receipt.acknowledge().await);

    let begun = Instant::now();
    let sending: Vec<_> = (0..32)
        .map(|n| {
            let sender = sender.clone();
            tokio::spawn(async move {
                for i in 0..FRAMES / 32 {
                    sender.publish(&lane(), frame(&format!("{n}-{i}"))).await.unwrap();
                }
            })
        })
        .collect();
    for sent in sending {
        sent.await.unwrap();
    }
    let published = begun.elapsed();
    for _ in 0..FRAMES {
        assert!(next(&mut subscription).await.receipt.acknowledge().await);
    }
    let taken = begun.elapsed();

    let mut trips: Vec<Duration> = Vec::new();
    for i in 0..200 {
        let begun = Instant::now();
        sender.publish(&lane(), frame(&i.to_string())).await.unwrap();
        let delivery = next(&mut subscription).await;
        trips.push(begun.elapsed());
        assert!(delivery.receipt.acknowledge().await);
    }
    trips.sort();
    eprintln!(
        "{:.0} confirmed publications/s with 32 under way, {:.0} taken/s; confirmed and delivered alone: median {:.1} ms, p99 {:.1} ms",
        FRAMES as f64 / published.as_secs_f64(),
        FRAMES as f64 / taken.as_secs_f64(),
        trips[100].as_secs_f64() * 1e3,
        trips[198].as_secs_f64() * 1e3,
    );
}
