//! A network with bad luck, and processes that vanish.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kernelopt_shared::broker::faults::{Faults, FaultyBroker};
use kernelopt_shared::message::{Lease, Reply};

use crate::rig::Rig;
use crate::script::{Act, Script};

#[tokio::test(flavor = "multi_thread")]
async fn every_task_is_done_and_none_under_two_names_whatever_the_network_does() {
    let rig = Rig::new().await;
    let scripts = [Arc::new(Script::new()), Arc::new(Script::new())];
    let unlucky = |seed| Arc::new(FaultyBroker::new(Arc::new(rig.broker.connect()), Faults::SOME, seed));
    let agents = [rig.serve_over("a", &scripts[0], unlucky(1)), rig.serve_over("b", &scripts[1], unlucky(2))];
    let mut leases = BTreeSet::new();
    for i in 0..40 {
        leases.insert(rig.judge(&format!("{i}")).await.lease);
    }
    rig.desk
        .until("all are reported", |heard| heard.reports.iter().map(|report| report.lease).collect::<BTreeSet<_>>().is_superset(&leases))
        .await;
    for agent in &agents {
        rig.desk.until("it holds nothing", |heard| heard.beat(&agent.agent).is_some_and(|beat| beat.holds.is_empty())).await;
    }
    assert_eq!(rig.waiting().await, 0);
    // One who did a task says the same of it each time.
    let heard = rig.desk.heard();
    let mut said: BTreeMap<(Lease, String), &Reply> = BTreeMap::new();
    for report in &heard.reports {
        let before = said.insert((report.lease, report.agent.to_string()), &report.reply);
        assert!(before.is_none_or(|before| *before == report.reply));
        assert!(leases.contains(&report.lease) && report.reply.kind() == "judged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_costs_no_work() {
    let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
    script.on("long", Act::Work(Duration::from_millis(700)));
    let network = Arc::new(FaultyBroker::new(Arc::new(rig.broker.connect()), Faults::NONE, 3));
    let agent = rig.serve_over("a", &script, network.clone());
    let task = rig.judge("long").await;
    rig.desk.until("it runs", |heard| heard.started(task.lease) == 1).await;
    network.cut().await;
    assert_eq!(rig.waiting().await, 1, "the broker gives it to whoever is there");
    tokio::time::sleep(Duration::from_millis(200)).await;
    network.mend();
    // It comes back to the very agent that is at it (5).
    assert_eq!(rig.desk.report(task.lease).await.reply.kind(), "judged");
    rig.desk.until_settled(&rig.class, &agent.agent).await;
    assert_eq!(script.count("long"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_process_held_is_done_by_another() {
    // Dead before it begins, in the middle, and before it is heard (1).
    for stage in ["waiting", "running", "reported"] {
        let (rig, script) = (Rig::new().await, Arc::new(Script::new()));
        let connection = Arc::new(rig.broker.connect());
        script.on("first", Act::Work(Duration::from_millis(if stage == "reported" { 0 } else { 5000 })));
        rig.desk.accepts(false);
        let agent = rig.serve_over("a", &script, connection.clone());
        let (first, second) = (rig.judge("first").await, rig.judge("second").await);
        match stage {
            "waiting" => rig.desk.until("both are held", |heard| heard.beat(&agent.agent).is_some_and(|beat| beat.holds.len() == 2)).await,
            "running" => rig.desk.until("it runs", |heard| heard.started(first.lease) == 1).await,
            _ => rig.desk.until("it is reported", |heard| !heard.of(first.lease).is_empty()).await,
        }
        agent.kill(connection.as_ref()).await;
        rig.desk.accepts(true);
        let heir = rig.serve("b", &Arc::new(Script::new()));
        for lease in [first.lease, second.lease] {
            rig.desk.until(stage, |heard| heard.of(lease).iter().any(|report| report.agent == heir.agent)).await;
        }
        rig.desk.until_settled(&rig.class, &heir.agent).await;
    }
}
