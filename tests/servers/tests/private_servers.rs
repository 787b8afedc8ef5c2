//! Servers start alone, keep what they confirmed, and leave nothing behind.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use kernelopt_test_servers::{Proxy, RabbitMq, Redis, RedisOptions};

/// Processes that run in `folder`, though it be gone.
fn processes(folder: &str) -> Vec<u32> {
    let is_in = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.to_string_lossy().starts_with(folder));
    let pids = fs::read_dir("/proc").expect("/proc").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(is_in).collect()
}

/// Addresses on which somebody listens on `port`, as /proc writes them.
fn listeners(port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines());
    let fields = lines.map(|line| line.split_whitespace().collect::<Vec<_>>()).filter(|fields| fields.len() > 3 && fields[3] == "0A");
    let local = fields.filter_map(|fields| fields[1].split_once(':').map(|(address, port)| (address.to_owned(), port.to_owned())));
    local.filter(|(_, found)| *found == format!("{port:04X}")).map(|(address, _)| address).collect()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(10), "not within 10 s: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_node_keeps_what_it_confirmed_and_leaves_nothing() {
    let mut rabbit = RabbitMq::start().unwrap();
    assert!(rabbit.rabbitmqctl(&["version"]).unwrap().contains('.'));
    let folder = rabbit.rabbitmqctl(&["eval", "rabbit_mnesia:dir()."]).unwrap();
    let folder = folder.split("/data").next().unwrap().trim_start_matches('"').to_owned();
    assert!(!processes(&folder).is_empty());

    // Nothing but loopback: the node, its distribution and its epmd.
    let asked = rabbit.rabbitmqctl(&["eval", "{os:getenv(\"RABBITMQ_DIST_PORT\"), os:getenv(\"ERL_EPMD_PORT\")}."]).unwrap();
    let mut ports: Vec<u16> = asked.split('"').filter_map(|word| word.parse().ok()).collect();
    ports.push(rabbit.port());
    assert_eq!(ports.len(), 3, "{asked}");
    for port in ports {
        let found = listeners(port);
        let loopback = ["0100007F", "00000000000000000000000001000000"];
        assert!(!found.is_empty() && found.iter().all(|address| loopback.contains(&address.as_str())), "{port}: {found:?}");
    }

    rabbit.rabbitmqctl(&["add_vhost", "kept"]).unwrap();
    rabbit.kill9();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, rabbit.port())).is_err());
    rabbit.restart().unwrap();
    assert!(rabbit.rabbitmqctl(&["list_vhosts"]).unwrap().contains("kept"));
    rabbit.wipe().unwrap();
    rabbit.restart().unwrap();
    assert!(!rabbit.rabbitmqctl(&["list_vhosts"]).unwrap().contains("kept"));
    let refused = rabbit.rabbitmqctl(&["no_such_command"]).unwrap_err().to_string();
    assert!(refused.contains("no_such_command"), "{refused}");
    assert!(rabbit.stop(), "a node ends by itself when asked");
    drop(rabbit);
    eventually("all its processes end", || processes(&folder).is_empty());
    assert!(!fs::exists(&folder).unwrap());
}

#[test]
fn a_redis_keeps_what_it_confirmed() {
    let mut redis = Redis::start(RedisOptions::default().password("open-sesame")).unwrap();
    assert_eq!(redis.command(&["SET", "a", "1"]).unwrap().trim(), "OK");
    redis.kill9();
    assert!(redis.command(&["GET", "a"]).is_err());
    redis.restart().unwrap();
    assert_eq!(redis.command(&["GET", "a"]).unwrap().trim(), "1");
    assert!(redis.stop());
    redis.restart().unwrap();
    assert_eq!(redis.command(&["GET", "a"]).unwrap().trim(), "1");
    assert!(redis.command(&["NO", "SUCH"]).is_err());
    assert_eq!(listeners(redis.port()), ["0100007F"]);
}

#[test]
fn a_panic_leaves_nothing() {
    let mut folder = String::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let redis = Redis::start(RedisOptions::default()).unwrap();
        folder = redis.command(&["CONFIG", "GET", "dir"]).unwrap().lines().nth(1).unwrap().to_owned();
        assert!(!processes(&folder).is_empty());
        panic!("as a failed test does");
    }));
    assert!(panicked.is_err());
    eventually("it ends", || processes(&folder).is_empty());
    assert!(!fs::exists(&folder).unwrap());
}

/// The other half of the next test: a test's process that is killed.
#[test]
#[ignore = "started by a_killed_test_leaves_no_process"]
fn killed() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    println!("FOLDER {}", redis.command(&["CONFIG", "GET", "dir"]).unwrap().lines().nth(1).unwrap());
    // Until killed.
    thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_test_leaves_no_process() {
    let mut test = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed", "--ignored", "--nocapture"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    let mut out = test.stdout.take().unwrap();
    let mut byte = [0u8; 1];
    while !(text.contains("FOLDER") && text.ends_with('\n')) {
        assert_eq!(out.read(&mut byte).unwrap(), 1, "{text}");
        text.push(byte[0] as char);
    }
    let folder = text.split("FOLDER ").nth(1).unwrap().trim().to_owned();
    assert!(!processes(&folder).is_empty());
    test.kill().unwrap();
    test.wait().unwrap();
    eventually("the kernel ends its server", || processes(&folder).is_empty());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_proxy_carries_and_cuts() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let ping = |stream: &mut TcpStream| {
        let mut answer = [0u8; 7];
        stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut answer).is_ok() && answer == *b"+PONG\r\n"
    };
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();

    let mut stream = connect();
    assert!(ping(&mut stream));
    proxy.delay(Duration::from_millis(60));
    let started = Instant::now();
    assert!(ping(&mut stream) && started.elapsed() >= Duration::from_millis(120));
    proxy.delay(Duration::ZERO);
    proxy.cut();
    assert!(!ping(&mut stream));
    assert!(ping(&mut connect()));
    proxy.close();
    assert!(!ping(&mut connect()));
    proxy.open();
    assert!(ping(&mut connect()));
}
