//! Rows in which RabbitMQ dies, is slow, or loses what it was given.

use std::time::Duration;

use kernelopt_shared::broker::Address;
use kernelopt_test_servers::Proxy;
use kernelopt_tests::rig::Running;

use crate::fleet::{Fleet, LONG};
use crate::wire::Wire;

/// Longest that it may take until tasks are done again.
const RECOVERED: Duration = Duration::from_secs(10);

/// Row 5: the node dies in mid-job and comes back.
pub fn killed_in_mid_job_loses_nothing() {
    let mut fleet = Fleet::start();
    let _agent = fleet.agent("host1");
    let job = fleet.drill(100, 50, &[]);
    fleet.until_done(&job, 20);
    fleet.rig.rabbit.kill9();
    fleet.rig.rabbit.restart().expect("RabbitMQ starts again");
    fleet.drill_ends_well(&job, 100, LONG);
    assert!(fleet.charged(&job).is_empty(), "{:?}", fleet.charged(&job));
}

/// Row 5: an agent's connection is cut four times, then slow; the coordinator's is cut too.
pub fn cut_and_slow_loses_nothing() {
    let rig = kernelopt_tests::rig::Rig::start();
    let (near, far) = (Proxy::to(rig.rabbit.port()).expect("a proxy"), Proxy::to(rig.rabbit.port()).expect("a proxy"));
    let mut command = rig.coordinator_command(&kernelopt_tests::rig::free_address());
    command.env("KERNELOPT_BROKER_URL", rig.rabbit.url_at(near.port()));
    let (coordinator, address) = kernelopt_tests::rig::lead(&mut command);
    let mut fleet = Fleet { rig, coordinator, address };
    let url = fleet.rig.rabbit.url_at(far.port());
    let _agent = fleet.agent_with("host1", |command| {
        command.env("KERNELOPT_BROKER_URL", url);
    });
    let job = fleet.drill(120, 50, &[]);
    for cut in 0..4 {
        fleet.until_done(&job, 10 + 10 * cut);
        far.cut();
    }
    fleet.until_done(&job, 60);
    near.cut();
    assert!(fleet.coordinator.runs(), "{}", fleet.coordinator.words());
    let done = fleet.kinds(&job).iter().filter(|kind| **kind == "done").count();
    let cut = std::time::Instant::now();
    fleet.until_done(&job, done + 5);
    assert!(cut.elapsed() < RECOVERED, "{:.1?}", cut.elapsed());
    far.delay(Duration::from_millis(150));
    fleet.drill_ends_well(&job, 120, LONG);
    assert!(fleet.charged(&job).is_empty(), "{:?}", fleet.charged(&job));
}

/// Row 6: tasks that wait in the broker are purged, then their queue is deleted. Exactly those are sent again, under the leases that they
/// have.
pub fn purged_and_deleted_queues_are_filled_again() {
    let fleet = Fleet::start();
    let wire = Wire::connect(&fleet.rig.rabbit.url());
    for (round, loss) in ["purge_queue", "delete_queue"].into_iter().enumerate() {
        let (job, class) = fleet.stranded(&format!("gone{round}"), 12, 100, &[]);
        let lane = Address::Lane(class.clone());
        fleet.until_waiting(&wire, &lane);
        fleet.rig.rabbit.rabbitmqctl(&[loss, &format!("kernelopt.v1.lane.{class}")]).expect("the queue is there");
        assert_eq!(wire.ready(&lane), 0);
        let agent: Running = fleet.agent(&format!("host{round}"));
        fleet.drill_ends_well(&job, 12, LONG);
        let leases = fleet.leases(&job);
        assert!(leases.values().all(|count| *count == 1), "{loss}: tasks were given out anew: {leases:?}");
        drop(agent);
    }
}

/// Row 7: RabbitMQ closes the channel of a consumer that is slow to acknowledge, again and again; the work goes on under the same leases.
pub fn a_channel_closed_for_a_late_acknowledgement_is_made_again() {
    let mut fleet = Fleet::start();
    let hurry = "application:set_env(rabbit, consumer_timeout, 1000), application:set_env(rabbit, channel_tick_interval, 500).";
    fleet.rig.rabbit.rabbitmqctl(&["eval", hurry]).expect("RabbitMQ is in a hurry");
    let mut slow = fleet.agent_with("host1", |command| {
        command.env("RUST_LOG", "info,kernelopt_shared=debug,lapin=off");
    });
    let job = fleet.drill(6, 3000, &[]);
    fleet.drill_ends_well(&job, 6, LONG);
    assert!(fleet.charged(&job).is_empty(), "{:?}", fleet.charged(&job));
    assert!(slow.runs() && fleet.coordinator.runs());
    assert!(slow.words().matches("a consumer ended").count() >= 2, "it did not happen:\n{}", slow.words());
}
