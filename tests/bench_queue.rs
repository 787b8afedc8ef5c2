//! `kernelopt bench queue`: it measures on real servers, and leaves nothing behind. How fast a machine is, is no matter of a test: bounds are
//! such that only something broken misses them.

use std::process::{Command, Output};

use kernelopt_test_servers::{RabbitMq, Redis, RedisOptions};
use kernelopt_tests::{binary, command};
use serde_json::Value;

fn bench(options: &[&str]) -> Command {
    let mut bench = command(&binary());
    bench.args(["bench", "queue"]).args(options).env_remove("KERNELOPT_BROKER_URL").env_remove("KERNELOPT_REDIS_URL");
    bench
}

fn figures(done: &Output) -> Value {
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).expect("JSON on stdout")
}

/// What holds of any figures.
fn are_sane(figures: &Value, tasks: u64, agents: u64) {
    let number = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("{name} is no number: {figures:#}"));
    assert_eq!((figures["tasks"].as_u64(), figures["agents"].as_u64()), (Some(tasks), Some(agents)));
    assert!(number("tasks_per_second") > 10.0, "{figures:#}");
    assert!(number("p50_dispatch_ms") > 0.0 && number("p50_dispatch_ms") <= number("p99_dispatch_ms"), "{figures:#}");
    let one = &figures["one_second"];
    let (elapsed, ideal) = (one["elapsed_seconds"].as_f64().expect("a time"), one["ideal_seconds"].as_f64().expect("a time"));
    // All agents work at the same time, and none does a task in less than its length.
    assert!(elapsed > ideal && elapsed < ideal * agents as f64, "{figures:#}");
}

#[test]
fn it_measures_on_real_servers_and_leaves_nothing_behind() {
    let rabbit = RabbitMq::start().expect("RabbitMQ starts");
    let redis = Redis::start(RedisOptions::default()).expect("Redis starts");
    let mut bench = bench(&["--agents", "4", "--tasks", "400", "--seconds", "3", "--json"]);
    let done = bench.env("KERNELOPT_BROKER_URL", rabbit.url()).env("KERNELOPT_REDIS_URL", redis.url()).output().expect("it starts");
    let figures = figures(&done);
    are_sane(&figures, 400, 4);
    assert!(figures["coordinator_cpu_us_per_task"].as_f64().is_some_and(|cpu| cpu > 0.0), "{figures:#}");
    assert!(figures["versions"]["rabbitmq"].as_str().is_some_and(|version| version.starts_with(['3', '4'])), "{figures:#}");
    assert!(figures["versions"]["redis"].as_str().is_some_and(|version| version.contains('.')), "{figures:#}");
    for what in ["queues", "exchanges"] {
        let left = rabbit.rabbitmqctl(&["--quiet", &format!("list_{what}"), "name"]).expect("the broker answers");
        assert!(!left.contains("kernelopt"), "{what} are left:\n{left}");
    }
    assert_eq!(redis.command(&["DBSIZE"]).expect("Redis answers").trim(), "0");
}

#[test]
fn one_process_is_measured_without_any_server() {
    let figures =
        figures(&bench(&["--embedded", "--agents", "2", "--tasks", "200", "--seconds", "2", "--json"]).output().expect("it starts"));
    are_sane(&figures, 200, 2);
    assert!(figures["versions"]["rabbitmq"].is_null() && figures["coordinator_cpu_us_per_task"].is_null(), "{figures:#}");
}

#[test]
fn what_is_missing_is_named() {
    let refused = |bench: &mut Command| {
        let done = bench.output().expect("it starts");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (code, words) = refused(&mut bench(&[]));
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("KERNELOPT_BROKER_URL") && words.contains("--embedded"), "{words}");
    let (code, words) = refused(bench(&[]).env("KERNELOPT_BROKER_URL", "amqp://nobody@127.0.0.1:1"));
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("KERNELOPT_REDIS_URL"), "{words}");
    let (code, words) = refused(&mut bench(&["--embedded", "--data", "/dev/shm"]));
    assert_eq!(code, Some(5), "{words}");
    assert!(words.contains("tmpfs") && words.contains("--data"), "{words}");
}
