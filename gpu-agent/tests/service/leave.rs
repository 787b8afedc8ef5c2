//! How an agent goes (22).

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernelopt_shared::message::{AgentMode, Control, Reply};

use crate::rig::{Rig, settings};
use crate::script::{Act, Script};

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_finished_what_waits_is_handed_back() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    script.on("short", Act::Work(Duration::from_millis(300)));
    let agent = rig.serve("a", &script);
    let short = rig.judge("short").await;
    rig.desk.until("it runs", |heard| heard.started(short.lease) == 1).await;
    let waiting = rig.judge("waiting").await;
    let queued = rig.judge("queued").await;
    rig.desk.until("one is built ahead", |heard| heard.beat(&agent.agent).is_some_and(|beat| beat.holds.len() == 2)).await;
    agent.shutdown.cancel();
    agent.ended.await.unwrap().unwrap();
    rig.desk.until("it has left", |heard| heard.has_left(&agent.agent)).await;
    {
        let heard = rig.desk.heard();
        assert_eq!(heard.of(short.lease)[0].reply.kind(), "judged");
        assert!(matches!(&heard.of(waiting.lease)[0].reply, Reply::HandedBack { .. }));
        assert!(heard.of(queued.lease).is_empty());
        assert!(heard.beats().any(|beat| beat.mode == AgentMode::Draining));
    }
    assert_eq!(rig.waiting().await, 2, "for others");
    assert_eq!((script.count("waiting"), script.count("queued")), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_end_in_time_is_handed_back() {
    for act in [Act::Work(Duration::from_secs(600)), Act::Stubborn(Duration::from_secs(4))] {
        let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
        script.on("long", act);
        let agent = rig.serve("a", &script);
        let long = rig.judge("long").await;
        rig.desk.until("it runs", |heard| heard.started(long.lease) == 1).await;
        let told = Instant::now();
        rig.desk.tell(&agent.agent, Control::Drain).await;
        agent.ended.await.unwrap().unwrap();
        let took = told.elapsed();
        assert!(took >= settings().drain && took < settings().farewell + Duration::from_secs(2), "{took:?}");
        rig.desk.until("it has left", |heard| heard.has_left(&agent.agent)).await;
        assert_eq!(rig.desk.report(long.lease).await.reply.kind(), "handed_back");
        assert_eq!(rig.waiting().await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_leaves_in_time_although_nobody_answers() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    rig.desk.accepts(false);
    let agent = rig.serve("a", &script);
    let task = rig.judge("candidate").await;
    rig.desk.report(task.lease).await;
    let told = Instant::now();
    agent.shutdown.cancel();
    agent.ended.await.unwrap().unwrap();
    assert!(told.elapsed() < settings().farewell + Duration::from_secs(2));
    assert_eq!(rig.waiting().await, 1, "nobody said that the report is safe");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_agent_leaves_at_once_and_the_times_fit_into_twenty_seconds() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    let agent = rig.serve("a", &script);
    rig.beating(&agent).await;
    let told = Instant::now();
    rig.desk.tell(&agent.agent, Control::Drain).await;
    agent.ended.await.unwrap().unwrap();
    assert!(told.elapsed() < Duration::from_secs(1));
    rig.desk.until("it has left", |heard| heard.has_left(&agent.agent)).await;
    let times = kernelopt_gpu_agent::service::Settings::default();
    assert!(times.drain < times.farewell && times.farewell + Duration::from_secs(1) < Duration::from_secs(20));
}
