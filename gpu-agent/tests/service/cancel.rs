//! What nobody wants any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernelopt_shared::message::{AgentMode, Control, JobId, Task};

use crate::rig::Rig;
use crate::script::{Act, Script};

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_task_ends_and_nothing_comes_back() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    script.on("long", Act::Work(Duration::from_secs(600)));
    let agent = rig.serve("a", &script);
    let long = rig.judge("long").await;
    rig.desk.until("it runs", |heard| heard.started(long.lease) == 1).await;
    let next = rig.judge("next").await;
    let told = Instant::now();
    rig.desk.tell(&agent.agent, Control::Cancel { lease: long.lease }).await;
    assert_eq!(rig.desk.report(next.lease).await.reply.kind(), "judged");
    assert!(told.elapsed() < Duration::from_secs(5), "{:?} (30)", told.elapsed());
    rig.desk.until_settled(&rig.class, &agent.agent).await;
    // A copy of it that was still under way is settled without work.
    rig.desk.send(&rig.class, &long).await;
    rig.desk.until_settled(&rig.class, &agent.agent).await;
    assert!(rig.desk.heard().of(long.lease).is_empty());
    assert_eq!(script.count("long"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_ends_also_where_it_has_not_begun() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    script.on("long", Act::Work(Duration::from_secs(600)));
    let agent = rig.serve("a", &script);
    let doomed = JobId::parse("doomed").unwrap();
    let of_job = |task: Task| Task { job: doomed.clone(), ..task };
    let tasks = [of_job(rig.task("long")), of_job(rig.task("held")), of_job(rig.task("queued"))];
    rig.desk.send(&rig.class, &tasks[0]).await;
    rig.desk.until("it runs", |heard| heard.started(tasks[0].lease) == 1).await;
    for task in &tasks[1..] {
        rig.desk.send(&rig.class, task).await;
    }
    let other = rig.judge("other").await;
    rig.desk.until("one runs and one is held", |heard| heard.beat(&agent.agent).is_some_and(|beat| beat.holds.len() == 2)).await;
    rig.desk.tell(&agent.agent, Control::CancelJob { job: doomed.clone() }).await;
    assert_eq!(rig.desk.report(other.lease).await.reply.kind(), "judged");
    rig.desk.until_settled(&rig.class, &agent.agent).await;
    assert!(tasks.iter().all(|task| rig.desk.heard().of(task.lease).is_empty()));
    assert_eq!((script.count("held"), script.count("queued")), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_nobody_wants_is_not_repeated() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    rig.desk.accepts(false);
    let agent = rig.serve("a", &script);
    let task = rig.judge("candidate").await;
    rig.desk.report(task.lease).await;
    rig.desk.tell(&agent.agent, Control::CancelJob { job: task.job.clone() }).await;
    rig.desk.until_settled(&rig.class, &agent.agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_whose_lease_was_lost_meanwhile_is_repeated_until_it_is_taken() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    rig.desk.accepts(false);
    let agent = rig.serve("a", &script);
    let task = rig.judge("candidate").await;
    rig.desk.report(task.lease).await;
    rig.desk.tell(&agent.agent, Control::Cancel { lease: task.lease }).await;
    rig.desk.until("it says it again", |heard| heard.of(task.lease).len() >= 3).await;
    rig.desk.accepts(true);
    rig.desk.until_settled(&rig.class, &agent.agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_that_does_not_work_shows_in_the_beats_until_the_device_is_given_up() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    script.on("stubborn", Act::Stubborn(Duration::from_secs(2)));
    let agent = rig.serve("a", &script);
    let task = rig.judge("stubborn").await;
    rig.desk.until("it runs", |heard| heard.started(task.lease) == 1).await;
    rig.desk.tell(&agent.agent, Control::Cancel { lease: task.lease }).await;
    rig.desk.until("it is in quarantine", |heard| matches!(heard.mode(&agent.agent), Some(AgentMode::Quarantined { .. }))).await;
    let heard = rig.desk.heard();
    let held = heard.beats().filter(|beat| beat.holds.contains(&task.lease)).count();
    assert!(held >= 1 && heard.beat(&agent.agent).unwrap().holds.is_empty());
    assert!(heard.of(task.lease).is_empty());
}
