//! The real processor: a real compiler, sandbox and referee behind the service, and its canary.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernelopt_gpu_agent::cpu::child::Reexec;
use kernelopt_gpu_agent::python::Python;
use kernelopt_gpu_agent::service::{AgentService, Canary, CpuWorkshop, Served, Settings, Telemetry, Workshop as _, identity};
use kernelopt_shared::message::{Reply, Task};
use kernelopt_shared::stop::Stop;
use kernelopt_shared::task::Depth;
use tokio_util::sync::CancellationToken;

use crate::rig::Rig;

fn workshop() -> CpuWorkshop {
    CpuWorkshop {
        reexec: Reexec { program: env!("CARGO_BIN_EXE_kernelopt-runner").into(), words: Vec::new() },
        cache: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("service-builds"),
        python: Python::find(),
        uuid: identity::processor().uuid,
        canary: Canary::cpu().unwrap(),
    }
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/candidates/softmax").join(name);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_sound_processor_passes_its_own_test() {
    let workshop = workshop();
    let stop = Stop::default();
    let mut agent = workshop.agent(&workshop.canary().manifest, &stop).unwrap();
    let _turn = workshop.turn(&stop).unwrap().unwrap();
    workshop.canary().sing(agent.as_mut(), 1).unwrap();
    // One that takes the right kernel for the wrong one, or the wrong for the right, does not.
    let reversed = Canary { wrong: workshop.canary.target.baseline.clone(), ..workshop.canary.clone() };
    assert!(reversed.sing(agent.as_mut(), 1).unwrap_err().starts_with("a kernel that is wrong was judged"));
}

#[tokio::test(flavor = "multi_thread")]
async fn honest_and_planted_candidates_get_their_verdicts_over_the_broker() {
    let rig = Rig::new().await;
    let device = identity::processor();
    let class = device.class();
    let served = Served { name: "cpu".into(), identity: device.clone(), workshop: Arc::new(workshop()) };
    let service =
        AgentService { name: "real".into(), devices: vec![served], settings: Settings::default(), telemetry: Telemetry::default() };
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(service.run(Arc::new(rig.broker.connect()), rig.shelf.clone(), shutdown.clone()));
    let mut tasks = Vec::new();
    for (name, right) in [("honest_reciprocal.cpp", true), ("zeros.cpp", false), ("fork_bomb.cpp", false)] {
        let work = rig.shelf.evaluate(&fixture(name), Depth::Screen);
        let task = Task { run_limit_ms: 120_000, ..rig.desk.task(work) };
        rig.desk.send(&class, &task).await;
        tasks.push((name, right, task));
    }
    for (name, right, task) in tasks {
        let report = rig.desk.report(task.lease).await;
        assert_eq!(report.device, device);
        let Reply::Judged(outcome) = &report.reply else { panic!("{name}: {:?}", report.reply) };
        let verdict = &outcome.verdict;
        let expected = match name {
            "zeros.cpp" => verdict.kind() == "wrong",
            "fork_bomb.cpp" => verdict.kind() == "rejected",
            // On a busy machine its time may be too unsteady to state.
            _ => verdict.is_right() || verdict.kind() == "unstable",
        };
        assert!(expected && verdict.is_right() <= right, "{name}: {verdict:?}");
    }
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
