//! A task's ordinary life, and that of its copies.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kernelopt_shared::broker::{Address, Broker as _, Frame};
use kernelopt_shared::message::{AgentMode, Control, Reply, Work};

use crate::rig::{Rig, identity};
use crate::script::{Act, BUILD, Script};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_started_done_reported_with_its_device_and_settled() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    let agent = rig.serve("a", &script);
    rig.beating(&agent).await;
    let first = rig.desk.heard().beat(&agent.agent).unwrap().clone();
    assert_eq!((first.mode, first.holds.len(), first.device.clone()), (AgentMode::Working, 0, identity("a")));
    let task = rig.judge("candidate").await;
    let report = rig.desk.report(task.lease).await;
    assert_eq!((report.task, &report.job, &report.agent), (task.id, &task.job, &agent.agent));
    assert_eq!(report.device, identity("a"), "a figure is never filed under another device (21)");
    assert!(matches!(&report.reply, Reply::Judged(outcome) if outcome.evidence.seed == task.seed), "{report:?}");
    rig.desk.until_settled(&rig.class, &agent.agent).await;
    assert_eq!(rig.desk.heard().started(task.lease), 1);
    for work in [Work::Profile, Work::CheckModel { optimized: task.bundle }, Work::Nothing { busy_us: 1000 }] {
        let task = rig.desk.task(work);
        rig.desk.send(&rig.class, &task).await;
        let kind = rig.desk.report(task.lease).await.reply.kind();
        assert!(["profiled", "model_checked", "nothing"].contains(&kind), "{kind}");
    }
    assert_eq!(script.made.load(Ordering::Relaxed), 1, "one agent serves all tasks of a bundle");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_repeated_until_it_is_accepted_and_only_then_the_broker_may_forget() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    let connection = Arc::new(rig.broker.connect());
    let agent = rig.serve_over("a", &script, connection.clone());
    rig.desk.accepts(false);
    let task = rig.judge("candidate").await;
    rig.desk.until("it was said three times", |heard| heard.of(task.lease).len() >= 3).await;
    rig.desk.until("the beat names it", |heard| heard.beat(&agent.agent).is_some_and(|beat| beat.holds == [task.lease])).await;
    assert_eq!(script.count("candidate"), 1);
    // An answer to another lease of the task is none.
    let other = kernelopt_shared::message::Lease { epoch: 1, serial: 999 };
    rig.desk.tell(&agent.agent, Control::Accepted { task: task.id, lease: other }).await;
    // The process dies before the answer: the task is there for another one (1).
    agent.kill(connection.as_ref()).await;
    assert_eq!(rig.waiting().await, 1);
    let heir = rig.serve("b", &script);
    rig.desk.accepts(true);
    rig.desk.until("the other did it", |heard| heard.of(task.lease).iter().any(|report| report.agent == heir.agent)).await;
    rig.desk.until_settled(&rig.class, &heir.agent).await;
    assert_eq!(script.count("candidate"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_a_task_are_work_once() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    script.on("candidate", Act::Work(Duration::from_millis(400)));
    let agent = rig.serve("a", &script);
    let task = rig.judge("candidate").await;
    rig.desk.until("it runs", |heard| heard.started(task.lease) == 1).await;
    // Delivered thrice, while it runs and afterwards (8).
    rig.desk.send(&rig.class, &task).await;
    rig.desk.tell(&agent.agent, Control::Assigned(Box::new(task.clone()))).await;
    rig.desk.report(task.lease).await;
    rig.desk.until_settled(&rig.class, &agent.agent).await;
    let before = rig.desk.heard().of(task.lease).len();
    rig.desk.send(&rig.class, &task).await;
    rig.desk.until("it is said again", |heard| heard.of(task.lease).len() > before).await;
    rig.desk.until_settled(&rig.class, &agent.agent).await;
    assert_eq!((script.count("candidate"), rig.desk.heard().started(task.lease)), (1, 1));
    let heard = rig.desk.heard();
    assert!(heard.of(task.lease).windows(2).all(|pair| pair[0] == pair[1]), "and always the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_for_its_device_and_needs_no_lane() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    let agent = rig.serve("a", &script);
    rig.beating(&agent).await;
    let task = rig.task("confirm");
    rig.desk.tell(&agent.agent, Control::Assigned(Box::new(task.clone()))).await;
    assert_eq!(rig.desk.report(task.lease).await.reply.kind(), "judged");
    rig.desk.until_settled(&rig.class, &agent.agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_was_given_out_again_is_done_under_its_latest_lease() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    script.on("first", Act::Work(Duration::from_millis(400)));
    let agent = rig.serve("a", &script);
    let first = rig.judge("first").await;
    rig.desk.until("it runs", |heard| heard.started(first.lease) == 1).await;
    let lost = rig.judge("again").await;
    rig.desk.until("both are held", |heard| heard.beat(&agent.agent).is_some_and(|beat| beat.holds.contains(&lost.lease))).await;
    let again = kernelopt_shared::message::Task { lease: rig.task("again").lease, ..lost.clone() };
    for task in [&again, &lost] {
        rig.desk.tell(&agent.agent, Control::Assigned(Box::new(task.clone()))).await;
    }
    assert_eq!(rig.desk.report(again.lease).await.reply.kind(), "judged");
    rig.desk.until_settled(&rig.class, &agent.agent).await;
    assert!(rig.desk.heard().of(lost.lease).is_empty());
    assert_eq!(script.count("again"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_epoch_is_refused_without_a_word() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    let agent = rig.serve("a", &script);
    rig.beating(&agent).await;
    rig.desk.tell(&agent.agent, Control::Leading { epoch: 7 }).await;
    rig.desk.until("it knows the epoch", |heard| heard.beat(&agent.agent).unwrap().epoch == 7).await;
    let (old, kept) = (rig.task("old"), rig.task("kept"));
    // A lease of before the restart, sent again by the coordinator of now, is as good as any (4).
    let kept = kernelopt_shared::message::Task { epoch: 7, ..kept };
    rig.desk.send(&rig.class, &old).await;
    rig.desk.send(&rig.class, &kept).await;
    assert_eq!(rig.desk.report(kept.lease).await.reply.kind(), "judged");
    rig.desk.until_settled(&rig.class, &agent.agent).await;
    assert_eq!(script.count("old"), 0);
    assert!(rig.desk.heard().of(old.lease).is_empty());
    assert_eq!(rig.desk.heard().beat(&agent.agent).unwrap().epoch, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_run_ahead_where_the_device_allows_it() {
    for allowed in [true, false] {
        let rig = Rig::new().await;
        let script = Arc::new(Script { builds_ahead: allowed, ..Script::new() });
        script.on("first", Act::Work(Duration::from_millis(500)));
        let agent = rig.serve("a", &script);
        let first = rig.judge("first").await;
        rig.desk.until("it runs", |heard| heard.started(first.lease) == 1).await;
        let second = rig.judge("second").await;
        rig.desk.until("both are held", |heard| heard.beat(&agent.agent).is_some_and(|beat| beat.holds.len() == 2)).await;
        assert!(rig.desk.heard().of(first.lease).is_empty(), "the device measures all the while");
        rig.desk.report(second.lease).await;
        assert_eq!(*script.ahead.lock().unwrap(), if allowed { vec!["second".to_owned()] } else { Vec::new() });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_built_together_where_nothing_may_be_built_beside() {
    let rig = Rig::new().await;
    let script = Arc::new(Script { capacity: 4, ..Script::new() });
    script.on("first", Act::Work(Duration::from_millis(500)));
    let agent = rig.serve("a", &script);
    let first = rig.judge("first").await;
    rig.desk.until("it runs", |heard| heard.started(first.lease) == 1).await;
    let mut tasks = Vec::new();
    for source in ["second", "third", "fourth", "fifth"] {
        tasks.push(rig.judge(source).await);
    }
    rig.desk.until("four are held", |heard| heard.beat(&agent.agent).is_some_and(|beat| beat.holds.len() == 4)).await;
    assert_eq!(rig.desk.heard().beat(&agent.agent).unwrap().capacity, 4);
    let mut build_ms = Vec::new();
    for task in &tasks {
        let Reply::Judged(outcome) = rig.desk.report(task.lease).await.reply else { panic!("no verdict") };
        build_ms.push(outcome.evidence.build_ms);
    }
    let together = script.together.lock().unwrap().clone();
    assert_eq!(together.len(), 1, "neither one alone nor one twice: {together:?}");
    assert!(together[0].len() == 3 && together[0].iter().all(|source| source != "first" && source != "fifth"));
    assert_eq!(build_ms.iter().sum::<u64>(), BUILD.as_millis() as u64, "and told once: {build_ms:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_can_read_is_put_aside_and_disturbs_nothing() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    let agent = rig.serve("a", &script);
    let lane = Address::Lane(rig.class.clone());
    for body in [b"".as_slice(), b"KOPT\xff\xff\x01\0\0\0\0\0\0\0\0\0", &[0; 5000]] {
        let frame = Frame { kind: "task", version: 1, id: "?".into(), body: body.to_vec().into() };
        rig.broker.publish(&lane, frame).await.unwrap();
    }
    let task = rig.judge("candidate").await;
    assert_eq!(rig.desk.report(task.lease).await.reply.kind(), "judged");
    rig.desk.until_settled(&rig.class, &agent.agent).await;
    assert_eq!(rig.broker.depth(&Address::Dead).await.unwrap().unwrap().ready, 3, "(28)");
}
