//! What every broker must do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kernelopt_shared::broker::{Address, BrokerError, BrokerState, Depth, Frame, RETURNS};
use kernelopt_shared::wire::MAX_FRAME_BYTES;

use crate::stand::{A_WHILE, SOON, Stand, agent, eventually, frame, lane, next, nothing, publish, take, text, until};

/// Calls a macro with the name of every check.
macro_rules! for_each_check {
    ($with:ident) => {
        $with! {
            what_was_confirmed_arrives,
            what_is_dropped_comes_back,
            what_is_handed_back_goes_to_others,
            what_is_refused_goes_to_the_dead,
            what_comes_back_too_often_goes_to_the_dead,
            the_dead_can_be_read_and_forgotten,
            no_more_arrives_than_the_prefetch,
            two_subscribers_share_a_lane,
            many_at_once_arrive_once_each,
            a_cancelled_wait_loses_nothing,
            everyone_is_every_agent,
            an_agent_that_is_not_there_is_unroutable,
            an_agent_that_came_back_is_heard,
            signs_of_life_need_no_listener,
            nobody_subscribes_to_everyone_alone,
            one_leads_and_the_next_waits,
            a_turn_is_lost_with_its_connection,
            one_connection_has_one_turn,
            depth_is_what_waits,
            a_frame_too_large_is_refused,
            what_was_delivered_outlives_its_subscription,
            what_nobody_took_goes_back_with_the_subscription,
            a_closed_end_is_closed,
        }
    };
}
pub(crate) use for_each_check;

pub async fn what_was_confirmed_arrives(stand: &dyn Stand) {
    let (sender, receiver) = (stand.connect().await, stand.connect().await);
    for to in [lane(), Address::Reports] {
        publish(&sender, &to, &["a"]).await;
        let mut subscription = receiver.subscribe(&to, 8).await.unwrap();
        let delivery = next(&mut subscription).await;
        assert_eq!((text(&delivery).as_str(), delivery.redelivered), ("a", false));
        assert!(delivery.receipt.acknowledge().await);
        nothing(&mut subscription).await;
    }
}

pub async fn what_is_dropped_comes_back(stand: &dyn Stand) {
    let broker = stand.connect().await;
    publish(&broker, &lane(), &["a"]).await;
    let mut subscription = broker.subscribe(&lane(), 1).await.unwrap();
    drop(next(&mut subscription).await);
    let again = next(&mut subscription).await;
    assert_eq!((text(&again).as_str(), again.redelivered), ("a", true));
    assert!(again.receipt.acknowledge().await);
    nothing(&mut subscription).await;
}

pub async fn what_is_handed_back_goes_to_others(stand: &dyn Stand) {
    let (one, other) = (stand.connect().await, stand.connect().await);
    publish(&one, &lane(), &["a"]).await;
    let mut first = one.subscribe(&lane(), 1).await.unwrap();
    let delivery = next(&mut first).await;
    let mut second = other.subscribe(&lane(), 1).await.unwrap();
    drop(first);
    delivery.receipt.hand_back().await;
    let again = next(&mut second).await;
    assert!(again.redelivered);
    assert!(again.receipt.acknowledge().await);
}

pub async fn what_is_refused_goes_to_the_dead(stand: &dyn Stand) {
    let broker = stand.connect().await;
    let mut dead = broker.subscribe(&Address::Dead, 8).await.unwrap();
    for to in [lane(), Address::Reports, Address::Pulses, agent("gpu7/cuda0")] {
        let mut subscription = broker.subscribe(&to, 8).await.unwrap();
        publish(&broker, &to, &[to.kind()]).await;
        next(&mut subscription).await.receipt.refuse().await;
        assert_eq!(take(&mut dead, 1).await, [to.kind()]);
        nothing(&mut subscription).await;
    }
}

pub async fn what_comes_back_too_often_goes_to_the_dead(stand: &dyn Stand) {
    let broker = stand.connect().await;
    publish(&broker, &lane(), &["poison"]).await;
    let mut subscription = broker.subscribe(&lane(), 1).await.unwrap();
    for _ in 0..=RETURNS {
        next(&mut subscription).await.receipt.hand_back().await;
    }
    nothing(&mut subscription).await;
    let mut dead = broker.subscribe(&Address::Dead, 1).await.unwrap();
    assert_eq!(take(&mut dead, 1).await, ["poison"]);
}

pub async fn the_dead_can_be_read_and_forgotten(stand: &dyn Stand) {
    let broker = stand.connect().await;
    publish(&broker, &Address::Dead, &["a", "b"]).await;
    let mut dead = broker.subscribe(&Address::Dead, 1).await.unwrap();
    next(&mut dead).await.receipt.refuse().await;
    assert!(next(&mut dead).await.receipt.acknowledge().await);
    nothing(&mut dead).await;
}

pub async fn no_more_arrives_than_the_prefetch(stand: &dyn Stand) {
    let broker = stand.connect().await;
    publish(&broker, &lane(), &["a", "b", "c", "d"]).await;
    let mut subscription = broker.subscribe(&lane(), 2).await.unwrap();
    let (first, second) = (next(&mut subscription).await, next(&mut subscription).await);
    nothing(&mut subscription).await;
    assert!(first.receipt.acknowledge().await);
    let third = next(&mut subscription).await;
    nothing(&mut subscription).await;
    for delivery in [second, third] {
        assert!(delivery.receipt.acknowledge().await);
    }
    assert_eq!(take(&mut subscription, 1).await.len(), 1);
}

pub async fn two_subscribers_share_a_lane(stand: &dyn Stand) {
    let (one, other) = (stand.connect().await, stand.connect().await);
    let mut first = one.subscribe(&lane(), 1).await.unwrap();
    let mut second = other.subscribe(&lane(), 1).await.unwrap();
    let texts = ["a", "b", "c", "d", "e", "f"];
    publish(&one, &lane(), &texts).await;
    let (mut all, also) = tokio::join!(take(&mut first, 3), take(&mut second, 3));
    all.extend(also);
    all.sort();
    assert_eq!(all, texts);
}

pub async fn many_at_once_arrive_once_each(stand: &dyn Stand) {
    let (sender, receiver) = (stand.connect().await, stand.connect().await);
    let texts: Vec<String> = (0..300).map(|i| format!("{i:04}")).collect();
    let sending = texts.iter().map(|text| {
        let sender = sender.clone();
        let frame = frame(text);
        tokio::spawn(async move { sender.publish(&lane(), frame).await })
    });
    let sending: Vec<_> = sending.collect();
    let mut subscription = receiver.subscribe(&lane(), 16).await.unwrap();
    assert_eq!(take(&mut subscription, texts.len()).await, texts);
    for sent in sending {
        sent.await.unwrap().unwrap();
    }
    nothing(&mut subscription).await;
}

pub async fn a_cancelled_wait_loses_nothing(stand: &dyn Stand) {
    let broker = stand.connect().await;
    let mut subscription = broker.subscribe(&lane(), 4).await.unwrap();
    let sender = broker.clone();
    let sending = tokio::spawn(async move {
        for i in 0..30 {
            sender.publish(&lane(), frame(&format!("{i:02}"))).await.unwrap();
        }
    });
    let mut found = BTreeSet::new();
    let begun = tokio::time::Instant::now();
    while found.len() < 30 {
        assert!(begun.elapsed() < SOON, "{found:?}");
        if let Ok(Some(delivery)) = tokio::time::timeout(Duration::from_micros(100), subscription.next()).await {
            assert!(!delivery.redelivered && found.insert(text(&delivery)));
            assert!(delivery.receipt.acknowledge().await);
        }
    }
    sending.await.unwrap();
}

pub async fn everyone_is_every_agent(stand: &dyn Stand) {
    let (one, other) = (stand.connect().await, stand.connect().await);
    let mut first = one.subscribe(&agent("gpu7/cuda0"), 8).await.unwrap();
    let mut second = other.subscribe(&agent("gpu7/cuda1"), 8).await.unwrap();
    let mut signs = one.subscribe(&Address::Pulses, 8).await.unwrap();
    publish(&one, &Address::Everyone, &["all"]).await;
    publish(&one, &agent("gpu7/cuda1"), &["one"]).await;
    assert_eq!(take(&mut first, 1).await, ["all"]);
    assert_eq!(take(&mut second, 2).await, ["all", "one"]);
    nothing(&mut first).await;
    nothing(&mut signs).await;
}

pub async fn an_agent_that_is_not_there_is_unroutable(stand: &dyn Stand) {
    let broker = stand.connect().await;
    let address = agent("gpu7/cuda0");
    let unroutable = async || matches!(broker.publish(&address, frame("a")).await, Err(BrokerError::Unroutable(_)));
    assert!(unroutable().await);
    let subscription = broker.subscribe(&address, 1).await.unwrap();
    assert!(!unroutable().await);
    drop(subscription);
    eventually("the address is gone with its subscriber", unroutable).await;
}

pub async fn an_agent_that_came_back_is_heard(stand: &dyn Stand) {
    let (old, new) = (stand.connect().await, stand.connect().await);
    let address = agent("gpu7/cuda0");
    // The broker may take the old connection for alive for a while yet.
    let _before = old.subscribe(&address, 1).await.unwrap();
    let mut after = new.subscribe(&address, 1).await.unwrap();
    publish(&new, &address, &["a"]).await;
    assert_eq!(take(&mut after, 1).await, ["a"]);
}

pub async fn signs_of_life_need_no_listener(stand: &dyn Stand) {
    let broker = stand.connect().await;
    publish(&broker, &Address::Pulses, &["unheard"]).await;
    publish(&broker, &Address::Everyone, &["unheard"]).await;
    let mut signs = broker.subscribe(&Address::Pulses, 8).await.unwrap();
    publish(&broker, &Address::Pulses, &["heard"]).await;
    assert_eq!(take(&mut signs, 1).await, ["heard"]);
}

pub async fn nobody_subscribes_to_everyone_alone(stand: &dyn Stand) {
    let broker = stand.connect().await;
    assert!(matches!(broker.subscribe(&Address::Everyone, 1).await, Err(BrokerError::Topology(_))));
}

pub async fn one_leads_and_the_next_waits(stand: &dyn Stand) {
    let (one, other) = (stand.connect().await, stand.connect().await);
    let mut first = one.lead().await.unwrap();
    let next = tokio::spawn(async move { other.lead().await.map(drop) });
    assert!(tokio::time::timeout(A_WHILE, first.lost()).await.is_err());
    assert!(!next.is_finished());
    drop(first);
    tokio::time::timeout(SOON, next).await.expect("the turn did not pass on").unwrap().unwrap();
}

pub async fn a_turn_is_lost_with_its_connection(stand: &dyn Stand) {
    let (one, other) = (stand.connect().await, stand.connect().await);
    let mut first = one.lead().await.unwrap();
    one.close().await;
    tokio::time::timeout(SOON, first.lost()).await.expect("it still believes that it leads");
    tokio::time::timeout(SOON, other.lead()).await.expect("the turn did not pass on").unwrap();
    assert!(one.lead().await.is_err());
}

pub async fn one_connection_has_one_turn(stand: &dyn Stand) {
    let broker = stand.connect().await;
    let first = broker.lead().await.unwrap();
    assert!(tokio::time::timeout(A_WHILE, broker.lead()).await.is_err());
    drop(first);
    tokio::time::timeout(SOON, broker.lead()).await.expect("the turn did not pass on").unwrap();
}

pub async fn depth_is_what_waits(stand: &dyn Stand) {
    let broker = stand.connect().await;
    assert_eq!(broker.depth(&lane()).await.unwrap(), None);
    publish(&broker, &lane(), &["a", "b", "c"]).await;
    let depth = async |ready, consumers| broker.depth(&lane()).await.unwrap() == Some(Depth { ready, consumers });
    eventually("three wait", || depth(3, 0)).await;
    let mut subscription = broker.subscribe(&lane(), 1).await.unwrap();
    let delivery = next(&mut subscription).await;
    eventually("two wait", || depth(2, 1)).await;
    delivery.receipt.acknowledge().await;
    drop(subscription);
    eventually("two wait for nobody", || depth(2, 0)).await;
    assert_eq!(broker.depth(&agent("gpu7/cuda0")).await.unwrap(), None);
}

pub async fn a_frame_too_large_is_refused(stand: &dyn Stand) {
    let broker = stand.connect().await;
    let sized = |bytes| Frame { body: Bytes::from(vec![7; bytes]), ..frame("large") };
    let error = broker.publish(&lane(), sized(MAX_FRAME_BYTES + 1)).await;
    assert!(matches!(error, Err(BrokerError::TooLarge { .. })));
    broker.publish(&lane(), sized(MAX_FRAME_BYTES)).await.unwrap();
    let mut subscription = broker.subscribe(&lane(), 1).await.unwrap();
    let delivery = next(&mut subscription).await;
    assert!(delivery.body.len() == MAX_FRAME_BYTES && delivery.body.iter().all(|byte| *byte == 7));
    assert!(delivery.receipt.acknowledge().await);
}

pub async fn what_was_delivered_outlives_its_subscription(stand: &dyn Stand) {
    let broker = stand.connect().await;
    publish(&broker, &lane(), &["running"]).await;
    let mut subscription = broker.subscribe(&lane(), 1).await.unwrap();
    let running = next(&mut subscription).await;
    drop(subscription);
    let mut others = broker.subscribe(&lane(), 1).await.unwrap();
    nothing(&mut others).await;
    assert!(running.receipt.acknowledge().await);
    nothing(&mut others).await;
}

pub async fn what_nobody_took_goes_back_with_the_subscription(stand: &dyn Stand) {
    let broker = stand.connect().await;
    publish(&broker, &lane(), &["a", "b", "c"]).await;
    let mut subscription = broker.subscribe(&lane(), 8).await.unwrap();
    let kept = next(&mut subscription).await;
    tokio::time::sleep(A_WHILE).await;
    drop(subscription);
    let mut others = broker.subscribe(&lane(), 8).await.unwrap();
    let mut all = take(&mut others, 2).await;
    all.push(text(&kept));
    all.sort();
    assert_eq!(all, ["a", "b", "c"]);
    assert!(kept.receipt.acknowledge().await);
}

pub async fn a_closed_end_is_closed(stand: &dyn Stand) {
    let (one, other) = (stand.connect().await, stand.connect().await);
    publish(&one, &lane(), &["a"]).await;
    let mut subscription = one.subscribe(&lane(), 1).await.unwrap();
    let held = next(&mut subscription).await;
    let waiting = tokio::spawn(async move { subscription.next().await.is_none() });
    one.close().await;
    assert!(tokio::time::timeout(SOON, waiting).await.expect("the subscription goes on").unwrap());
    until(&one, |state| matches!(state, BrokerState::Down { .. })).await;
    assert!(matches!(one.publish(&lane(), frame("b")).await, Err(BrokerError::Down(_))));
    assert!(matches!(one.subscribe(&lane(), 1).await, Err(BrokerError::Down(_))));
    let mut others = other.subscribe(&lane(), 1).await.unwrap();
    assert!(next(&mut others).await.redelivered);
    assert!(!held.receipt.acknowledge().await, "it is somebody else's");
    let other: Arc<_> = other;
    assert_eq!(*other.state().borrow(), BrokerState::Up);
}
