//! The desk in memory as a program, for fuzzing: prints its address and the digest of a bundle that it has, plays every submitted job, ends
//! when its input does.

use std::sync::Arc;
use std::time::Duration;

use kernelopt_coordinator::http::{Desk, JobFilter, Limits};
use kernelopt_shared::api::{JobSpec, Phase};
use kernelopt_test_api::{MemoryDesk, Running, script};
use serde::Deserialize;

#[tokio::main]
async fn main() {
    let limits = Limits { blob_bytes: 1 << 20, heartbeat: Duration::from_millis(200), ..Limits::default() };
    let running = Running::start(limits, true).await;
    ["gpu1/cuda0", "gpu1/cuda1", "gpu2/cuda0"].into_iter().for_each(|agent| running.desk.beat(script::beat(agent)));
    let bundle = running.store_bundle().await;
    let spec = JobSpec::deserialize(serde_json::json!({"name": "first", "bundle": bundle})).expect("a job");
    running.desk.submit(spec, None).await.expect("the first job");
    println!("{}\n{bundle}", running.url(""));
    let playing = tokio::spawn(play(running.desk.clone()));
    let _ = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await;
    playing.abort();
    running.end().await;
}

async fn play(desk: Arc<MemoryDesk>) {
    let waiting = JobFilter { phase: Some(Phase::Waiting), ..JobFilter::default() };
    loop {
        let page = desk.jobs(&waiting).await.expect("the first page");
        page.jobs.iter().for_each(|job| script::play(&desk, &job.id));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
