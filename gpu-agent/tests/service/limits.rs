//! Clocks: a task's own, the thread's, the store's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kernelopt_shared::message::{AgentMode, Control, FailureKind, Reply, Task, Work};

use crate::rig::Rig;
use crate::script::{Act, Script, nothing};

fn kind(reply: &Reply) -> Option<FailureKind> {
    match reply {
        Reply::Failed(failure) => Some(failure.kind),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_takes_too_long_is_stopped_and_waiting_does_not_count() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    script.on("endless", Act::Work(Duration::from_secs(600)));
    let _agent = rig.serve("a", &script);
    let endless = Task { run_limit_ms: 400, ..rig.task("endless") };
    // It waits longer than it may run, and is not the worse for it (25).
    let patient = Task { run_limit_ms: 200, ..rig.task("patient") };
    rig.desk.send(&rig.class, &endless).await;
    rig.desk.until("it runs", |heard| heard.started(endless.lease) == 1).await;
    rig.desk.send(&rig.class, &patient).await;
    let (endless, patient) = (rig.desk.report(endless.lease).await, rig.desk.report(patient.lease).await);
    assert_eq!(kind(&endless.reply), Some(FailureKind::TimedOut));
    assert!(endless.times.run_ms >= 400, "{:?}", endless.times);
    assert_eq!(patient.reply.kind(), "judged");
    assert!(patient.times.waited_ms >= 250 && patient.times.run_ms < 200, "{:?}", patient.times);
    assert_eq!(script.made.load(Ordering::Relaxed), 2, "what was stopped is not used again");
}

#[tokio::test(flavor = "multi_thread")]
async fn absurd_times_are_no_reason_to_fall_over() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    let agent = rig.serve("a", &script);
    let absurd = Task { run_limit_ms: u64::MAX, ..rig.desk.task(Work::Nothing { busy_us: u64::MAX }) };
    rig.desk.send(&rig.class, &absurd).await;
    rig.desk.until("it runs", |heard| heard.started(absurd.lease) == 1).await;
    rig.desk.tell(&agent.agent, Control::Cancel { lease: absurd.lease }).await;
    rig.desk.until_settled(&rig.class, &agent.agent).await;
    let none = Task { run_limit_ms: 0, ..rig.task("candidate") };
    rig.desk.send(&rig.class, &none).await;
    rig.desk.report(none.lease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_is_of_its_own_task_alone() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    script.on("stubborn", Act::Stubborn(Duration::from_millis(1500)));
    let agent = rig.serve("a", &script);
    let stubborn = Task { run_limit_ms: 100, ..rig.task("stubborn") };
    rig.desk.send(&rig.class, &stubborn).await;
    let report = rig.desk.report(stubborn.lease).await;
    assert_eq!(kind(&report.reply), Some(FailureKind::TimedOut));
    // The thread is still in it: nothing else can be measured there (14).
    rig.desk.until("it is in quarantine", |heard| matches!(heard.mode(&agent.agent), Some(AgentMode::Quarantined { .. }))).await;
    let next = rig.judge("next").await;
    rig.desk.tell(&agent.agent, Control::Readmit).await;
    rig.desk.until("it works again", |heard| heard.mode(&agent.agent) == Some(&AgentMode::Working)).await;
    assert_eq!(rig.desk.report(next.lease).await.reply.kind(), "judged");
    rig.desk.until_settled(&rig.class, &agent.agent).await;
    // Its verdict came in the end, and was dropped (16).
    let heard = rig.desk.heard();
    assert!(heard.of(stubborn.lease).iter().all(|report| kind(&report.reply) == Some(FailureKind::TimedOut)));
    assert_eq!((script.count("stubborn"), script.count("next")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_is_not_there_is_told_from_a_store_that_is_away() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    let agent = rig.serve("a", &script);
    let torn = Task { bundle: nothing(), ..rig.task("candidate") };
    rig.desk.send(&rig.class, &torn).await;
    let report = rig.desk.report(torn.lease).await;
    assert_eq!(kind(&report.reply), Some(FailureKind::Environment));
    assert!(matches!(&report.reply, Reply::Failed(failure) if failure.what.contains("no blob") && !failure.remedy.is_empty()));

    // Back before patience ends: nobody notices.
    rig.shelf.away.store(true, Ordering::Relaxed);
    let delayed = rig.judge("delayed").await;
    rig.desk.until("it is held", |heard| heard.beat(&agent.agent).is_some_and(|beat| beat.holds.contains(&delayed.lease))).await;
    rig.shelf.away.store(false, Ordering::Relaxed);
    assert_eq!(rig.desk.report(delayed.lease).await.reply.kind(), "judged");

    rig.shelf.away.store(true, Ordering::Relaxed);
    let handed_back = rig.judge("handed back").await;
    let report = rig.desk.report(handed_back.lease).await;
    assert!(matches!(&report.reply, Reply::HandedBack { reason } if reason.contains("connection refused")), "{:?}", report.reply);
    rig.shelf.away.store(false, Ordering::Relaxed);
    rig.desk.until("it came again", |heard| heard.of(handed_back.lease).iter().any(|report| report.reply.kind() == "judged")).await;
    // What needs no blob needs no store.
    rig.shelf.away.store(true, Ordering::Relaxed);
    let idle = rig.desk.task(Work::Nothing { busy_us: 0 });
    rig.desk.send(&rig.class, &idle).await;
    assert_eq!(rig.desk.report(idle.lease).await.reply, Reply::Nothing);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_measure_on_a_device_in_turn() {
    let rig = Rig::new().await;
    let uuid = format!("TEST-turns-{}", std::process::id());
    let at_once = Arc::default();
    let script = || Arc::new(Script { uuid: Some(uuid.clone()), at_once: Arc::clone(&at_once), ..Script::new() });
    let scripts = [script(), script()];
    let mut leases = Vec::new();
    for script in &scripts {
        (0..6).for_each(|i| script.on(&format!("{i}"), Act::Work(Duration::from_millis(40))));
    }
    let _agents = [rig.serve("a", &scripts[0]), rig.serve("b", &scripts[1])];
    for i in 0..6 {
        leases.push(rig.judge(&format!("{i}")).await.lease);
    }
    for lease in leases {
        assert_eq!(rig.desk.report(lease).await.reply.kind(), "judged");
    }
    let (_, most): &(_, std::sync::atomic::AtomicUsize) = &at_once;
    assert_eq!(most.load(Ordering::SeqCst), 1, "never two at once (17)");
    assert!(scripts.iter().all(|script| !script.begun.lock().unwrap().is_empty()), "and both have a turn");
    std::fs::remove_file(format!("/dev/shm/kernelopt/{uuid}.lock")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_one_tasks_failure() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    script.on("bomb", Act::Panic);
    let _agent = rig.serve("a", &script);
    let (bomb, after) = (rig.judge("bomb").await, rig.judge("after").await);
    let report = rig.desk.report(bomb.lease).await;
    assert!(matches!(&report.reply, Reply::Failed(failure) if failure.what.contains("as the script says")), "{:?}", report.reply);
    assert_eq!(kind(&report.reply), Some(FailureKind::Internal));
    assert_eq!(rig.desk.report(after.lease).await.reply.kind(), "judged");
}
