//! The agents: processes of this program, or, where all is in one process, tasks of it.

use std::io::Read as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use kernelopt_gpu_agent::service::idle::{self, NoStore};
use kernelopt_gpu_agent::service::{AgentService, Settings, Telemetry};
use kernelopt_shared::broker::Broker;
use kernelopt_shared::broker::memory::MemoryBroker;
use kernelopt_shared::broker::rabbit::RabbitBroker;
use kernelopt_shared::exit::ExitCode;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::stage::rabbit_options;
use crate::args::bench::Hand;
use crate::failure::Failure;

/// For agents to leave in good order; then they are killed.
const LEAVING: Duration = Duration::from_secs(25);
/// Between two looks whether they have.
const LOOK: Duration = Duration::from_millis(20);

/// All agents. Dropped, they are killed.
pub enum Crew {
    /// Of their own.
    Processes(Vec<Process>),
    /// Of this process.
    Tasks(CancellationToken, Vec<JoinHandle<Result<(), kernelopt_gpu_agent::service::ServiceError>>>),
}

/// An agent's process. It leaves when its stdin ends, and so also when this process is killed.
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended is not there to be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Crew {
    /// Starts `count` processes.
    pub fn processes(count: u16, prefix: &str) -> Result<Self, Failure> {
        let program = super::super::reexec()?.program;
        let start = |number: u16| {
            let name = format!("bench-{number}");
            let mut command = Command::new(&program);
            command.args(["bench", "hand", "--name", &name, "--prefix", prefix]).stdin(Stdio::piped()).stdout(Stdio::null());
            let mut child = command.spawn().map_err(|e| failed(format!("an agent could not be started: {e}")))?;
            let stdin = child.stdin.take();
            Ok(Process { child, stdin })
        };
        (1..=count).map(start).collect::<Result<_, _>>().map(Self::Processes)
    }

    /// Starts `count` tasks.
    pub fn tasks(count: u16, broker: &MemoryBroker) -> Result<Self, Failure> {
        let leave = CancellationToken::new();
        let start = |number: u16| {
            let service = service(&format!("bench-{number}"))?;
            Ok(tokio::spawn(service.run(Arc::new(broker.connect()), Arc::new(NoStore), leave.clone())))
        };
        let tasks = (1..=count).map(start).collect::<Result<_, Failure>>()?;
        Ok(Self::Tasks(leave, tasks))
    }

    /// True where all of them live.
    pub fn is_whole(&mut self) -> bool {
        match self {
            Self::Processes(processes) => processes.iter_mut().all(|process| matches!(process.child.try_wait(), Ok(None))),
            Self::Tasks(_, tasks) => tasks.iter().all(|task| !task.is_finished()),
        }
    }

    /// Has them leave, and waits for that.
    pub async fn leave(mut self) {
        let deadline = Instant::now() + LEAVING;
        match &mut self {
            Self::Processes(processes) => {
                processes.iter_mut().for_each(|process| drop(process.stdin.take()));
                while Instant::now() < deadline && processes.iter_mut().any(|process| matches!(process.child.try_wait(), Ok(None))) {
                    sleep(LOOK).await;
                }
            }
            Self::Tasks(leave, tasks) => {
                leave.cancel();
                for task in tasks {
                    // How it ended changes nothing that was measured.
                    let _ = tokio::time::timeout_at(deadline, task).await;
                }
            }
        }
    }
}

fn service(name: &str) -> Result<AgentService, Failure> {
    let device = idle::device(name).map_err(|e| failed(format!("the canary of this program: {e}")))?;
    let (settings, telemetry) = (Settings::default(), Telemetry::default());
    Ok(AgentService { name: name.into(), devices: vec![device], settings, telemetry })
}

/// Runs `bench hand`.
pub async fn serve(options: &Hand) -> crate::CommandResult {
    let mut broker = rabbit_options()?;
    broker.connection_name = format!("kernelopt bench {}", options.name);
    broker.prefix.clone_from(&options.prefix);
    let broker: Arc<dyn Broker> = Arc::new(RabbitBroker::start(broker)?);
    let leave = CancellationToken::new();
    let ends = leave.clone();
    // Its own thread: reading blocks, and the runtime would wait for it.
    let watch = move || {
        // Nothing is ever sent; an error is an end too.
        let _ = std::io::stdin().read(&mut [0]);
        ends.cancel();
    };
    std::thread::Builder::new().name("stdin".into()).spawn(watch).map_err(|e| failed(format!("no thread: {e}")))?;
    service(&options.name)?.run(broker, Arc::new(NoStore), leave).await?;
    Ok(ExitCode::Success)
}

fn failed(what: String) -> Failure {
    Failure::new(ExitCode::Environment, what, "Look at the limits of the process (ulimit -u, the cgroup's pids.max).")
}
