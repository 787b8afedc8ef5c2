//! Failures in a row: whose fault are they?

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kernelopt_gpu_agent::service::Canary;
use kernelopt_shared::message::{AgentMode, Control, Reply};

use crate::rig::Rig;
use crate::script::{Act, Script};

fn is_quarantined(mode: Option<&AgentMode>) -> bool {
    matches!(mode, Some(AgentMode::Quarantined { .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_finds_itself_out_and_comes_back_by_command() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    (0..3).for_each(|i| script.on(&format!("{i}"), Act::Lack));
    script.blind.store(true, Ordering::Relaxed);
    let agent = rig.serve("a", &script);
    let mut tasks = Vec::new();
    for i in 0..8 {
        tasks.push(rig.judge(&format!("{i}")).await);
    }
    rig.desk.until("it is in quarantine", |heard| is_quarantined(heard.mode(&agent.agent))).await;
    let reason = format!("{:?}", rig.desk.heard().mode(&agent.agent));
    assert!(reason.contains("a kernel that is wrong was judged: no_change"), "{reason}");
    // Three tasks paid for it, the others wait for somebody else (10).
    let failed = rig
        .desk
        .heard()
        .reports
        .iter()
        .filter(|report| matches!(report.reply, Reply::Failed(_)))
        .map(|r| r.lease)
        .collect::<std::collections::BTreeSet<_>>();
    assert_eq!(failed.len(), 3);
    rig.desk.until_settled_but_for_lane(&agent.agent).await;
    assert_eq!(rig.waiting().await, 5);

    // Still blind: it stays where it is.
    let (made, from) = (script.made.load(Ordering::Relaxed), rig.desk.heard().pulses.len());
    rig.desk.tell(&agent.agent, Control::Readmit).await;
    rig.desk.until("it has looked again", |_| script.made.load(Ordering::Relaxed) > made).await;
    rig.desk.until("it says so", |heard| heard.pulses.len() > from + 3).await;
    assert!(rig.desk.heard().beats().rev().take(3).all(|beat| is_quarantined(Some(&beat.mode))));
    script.blind.store(false, Ordering::Relaxed);
    rig.desk.until_works_when_told(&agent.agent).await;
    for task in &tasks[3..] {
        rig.desk.until("it is judged", |heard| heard.of(task.lease).iter().any(|report| report.reply.kind() == "judged")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_tasks_do_not_make_a_bad_device() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    (0..9).for_each(|i| script.on(&format!("{i}"), if i % 2 == 0 { Act::Lack } else { Act::Panic }));
    let agent = rig.serve("a", &script);
    for i in 0..9 {
        let task = rig.judge(&format!("{i}")).await;
        assert_eq!(rig.desk.report(task.lease).await.reply.kind(), "failed");
    }
    let good = rig.judge("good").await;
    assert_eq!(rig.desk.report(good.lease).await.reply.kind(), "judged", "(9, 11)");
    assert!(rig.desk.heard().beats().all(|beat| beat.mode == AgentMode::Working));
    assert_eq!(script.count("good"), 1);
    let _ = agent;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_baseline_that_does_not_run_is_no_doubt() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    (0..5).for_each(|i| script.on(&format!("{i}"), Act::Baseline));
    let _agent = rig.serve("a", &script);
    for i in 0..5 {
        let task = rig.judge(&format!("{i}")).await;
        assert_eq!(rig.desk.report(task.lease).await.reply.kind(), "failed");
    }
    assert_eq!(script.made.load(Ordering::Relaxed), 1, "no test, and no fresh agent");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_can_set_a_device_aside() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    let agent = rig.serve("a", &script);
    rig.beating(&agent).await;
    rig.desk.tell(&agent.agent, Control::Quarantine { reason: "fan replaced".into() }).await;
    rig.desk.until("it is in quarantine", |heard| is_quarantined(heard.mode(&agent.agent))).await;
    let task = rig.judge("candidate").await;
    let assigned = rig.task("assigned");
    rig.desk.tell(&agent.agent, Control::Assigned(Box::new(assigned.clone()))).await;
    assert_eq!(rig.desk.report(assigned.lease).await.reply.kind(), "handed_back");
    assert_eq!((rig.waiting().await, script.count("candidate")), (1, 0));
    // Set aside again while it tests itself: the last word counts.
    script.on(&Canary::cpu().unwrap().wrong.source, Act::Work(Duration::from_millis(300)));
    let made = script.made.load(Ordering::Relaxed);
    rig.desk.tell(&agent.agent, Control::Readmit).await;
    rig.desk.until("it tests itself", |_| script.made.load(Ordering::Relaxed) > made).await;
    let from = rig.desk.heard().pulses.len();
    rig.desk.tell(&agent.agent, Control::Quarantine { reason: "not yet".into() }).await;
    rig.desk.until("it has had time to pass", |heard| heard.pulses.len() > from + 6).await;
    assert!(rig.desk.heard().beats().all(|beat| beat.mode == AgentMode::Working || is_quarantined(Some(&beat.mode))));
    assert!(rig.desk.heard().beats().rev().take(3).all(|beat| is_quarantined(Some(&beat.mode))));
    rig.desk.until_works_when_told(&agent.agent).await;
    assert_eq!(rig.desk.report(task.lease).await.reply.kind(), "judged");
}
