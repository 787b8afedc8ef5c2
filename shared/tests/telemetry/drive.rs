//! Calls every method of every group of metrics, as a busy coordinator and a busy agent would.

#![expect(clippy::unwrap_used, reason = "names that are written here are names")]

use std::time::Duration;

use kernelopt_shared::broker::{Address, BrokerError, BrokerState, Depth};
use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::language_model::NanoUsd;
use kernelopt_shared::message::{
    AgentId, AgentMode, Beat, DeviceClass, DeviceIdentity, DeviceKind, Failure, FailureKind, JobId, Lease, Reply, Times, Work,
};
use kernelopt_shared::stats::Interval;
use kernelopt_shared::target::Language;
use kernelopt_shared::task::{Depth as Spend, ModelCheck};
use kernelopt_shared::telemetry::{
    AgentCounts, AgentMetrics, BrokerMetrics, Charge, CoordinatorMetrics, DeviceNow, Done, Expiry, FrontierMetrics, GatewayMetrics,
    HttpMetrics, JobNow, LaneNow, Offered, Registry, Settled, TelemetryError,
};
use kernelopt_shared::verdict::{Conditions, Evidence, Outcome, Verdict};

/// A coordinator's metrics.
pub struct Coordinator {
    pub own: CoordinatorMetrics,
    pub broker: BrokerMetrics,
    pub frontier: FrontierMetrics,
    pub http: HttpMetrics,
}

/// An agent's metrics.
pub struct Agent {
    pub own: AgentMetrics,
    pub broker: BrokerMetrics,
}

/// A gateway's metrics.
pub struct Gateway {
    pub own: GatewayMetrics,
    pub http: HttpMetrics,
}

impl Gateway {
    pub fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        let gateway = Self { own: GatewayMetrics::new(registry)?, http: HttpMetrics::new(registry)? };
        gateway.own.expect_model(&model(1));
        gateway.own.expect_upstream(&upstream(1));
        Ok(gateway)
    }

    /// Everything that a gateway says of a model and an upstream.
    pub fn drive(&self, number: u64) {
        let (took, own) = (Duration::from_millis(number + 1), &self.own);
        let (model, upstream) = (model(number), upstream(number));
        own.ended(&model, "answered", took);
        own.overhead(took);
        own.admitted(took);
        own.waiting(3);
        own.in_flight(&upstream, 2);
        own.attempted(&upstream, "rate_limited");
        own.first_byte(&upstream, took);
        let tokens = Settled { input: 50, cached_input: 40, cache_write: 5, output: 20, reasoning: 10 };
        own.settled(&model, "exact", tokens, NanoUsd(70));
        own.closed(&upstream, true);
        own.cache("hit");
        own.reloaded(true);
        own.store_up(false);
        own.batch_line("completed");
        self.http.answered("POST", Some("/v1/chat/completions"), 200, took);
    }
}

fn model(number: u64) -> String {
    format!("model-{number}")
}

fn upstream(number: u64) -> String {
    format!("provider-{number}")
}

pub fn class(number: u64) -> DeviceClass {
    DeviceClass::parse(&format!("nvidia-h200-{number}g-sm90")).unwrap()
}

pub fn agent(host: u64, device: u64) -> AgentId {
    AgentId::parse(&format!("gpu{host}/cuda{device}")).unwrap()
}

pub fn job(number: u64) -> JobId {
    JobId::parse(&format!("{number:010x}")).unwrap()
}

fn evaluate(depth: Spend) -> Work {
    let digest = Digest::of([b"target".as_slice()]);
    let origin = Origin { proposer: "schedule".into(), note: String::new(), parent: None, round: 0 };
    let candidate = Candidate {
        language: Language::Triton,
        source: String::new(),
        launch: None,
        further: Vec::new(),
        scratch: Vec::new(),
        precision: Precision::Baseline,
        origin,
    };
    Work::Evaluate { target: digest, candidate, depth }
}

/// One of every kind of work.
pub fn works() -> Vec<Work> {
    let optimized = Digest::of([b"optimized".as_slice()]);
    let evaluations = [Spend::Screen, Spend::Full, Spend::Confirm].map(evaluate);
    let others = [Work::Profile, Work::CheckModel { optimized }, Work::Nothing { busy_us: 1 }];
    evaluations.into_iter().chain(others).collect()
}

/// One of every kind of verdict.
pub fn verdicts() -> Vec<Verdict> {
    let (speedup, reason) = (Interval { estimate: 1.2, low: 1.1, high: 1.3 }, String::new);
    vec![
        Verdict::Accepted { speedup },
        Verdict::NoChange { speedup },
        Verdict::Slower { speedup },
        Verdict::Wrong { reason: reason() },
        Verdict::BuildFailed { reason: reason() },
        Verdict::Crashed { reason: reason() },
        Verdict::Hung { waited_ms: 1 },
        Verdict::Rejected { reason: reason() },
        Verdict::Unstable { reason: reason() },
    ]
}

fn judged(verdict: Verdict) -> Reply {
    // Power cap and a thermal slowdown: two reasons, one throttled evaluation.
    let conditions = Conditions { sm_mhz: [1755, 1980], memory_mhz: 3201, power_mw: 640_000, celsius: 61, throttle: 0x04 | 0x20 };
    let evidence = Evidence {
        rounds_disturbed: 2,
        build_ms: 180,
        verify_ms: 90,
        measure_ms: 700,
        conditions: Some(conditions),
        ..Evidence::default()
    };
    Reply::Judged(Box::new(Outcome { candidate: Digest::of([b"candidate".as_slice()]), verdict, evidence }))
}

/// One of every kind of reply but for a profile, and all verdicts.
pub fn replies() -> Vec<Reply> {
    let failed = |kind| Reply::Failed(Failure { kind, what: String::new(), remedy: String::new() });
    let others = [
        Reply::ModelChecked(ModelCheck { input_sets: Vec::new() }),
        Reply::Nothing,
        Reply::HandedBack { reason: String::new() },
        failed(FailureKind::Environment),
    ];
    verdicts().into_iter().map(judged).chain(others).collect()
}

impl Coordinator {
    pub fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        Ok(Self {
            own: CoordinatorMetrics::new(registry)?,
            broker: BrokerMetrics::new(registry)?,
            frontier: FrontierMetrics::new(registry)?,
            http: HttpMetrics::new(registry)?,
        })
    }

    /// Everything happens once; `round` from one on.
    pub fn drive(&self, round: u64) {
        self.lanes(&[class(140), class(80)], round);
        for class in [class(140), class(80)] {
            self.tasks(&class, round);
        }
        self.jobs(round);
        drive_broker(&self.broker, round);
        let queues = [Address::Lane(class(140)), Address::Reports, Address::Pulses, Address::Dead, Address::Agent(agent(7, 0))];
        self.own.queues.replace(queues.iter().map(|queue| (queue, Depth { ready: 2, consumers: 4 })));
        self.frontier(round);
        for (method, route, status) in
            [("GET", Some("/v1/jobs"), 200), ("POST", Some("/v1/jobs"), 201), ("GET", Some("/v1/jobs/{id}"), 404), ("BREW", None, 503)]
        {
            self.http.answered(method, route, status, Duration::from_millis(3 + round % 5));
        }
    }

    pub fn lanes(&self, classes: &[DeviceClass], round: u64) {
        let lane = |class: &DeviceClass| LaneNow {
            class: class.clone(),
            waiting: 40 + round % 7,
            leased: 8,
            running: 4,
            oldest: Some(Duration::from_secs(12 + round % 30)),
            agents: AgentCounts { working: 4, draining: 1, quarantined: 1 },
        };
        self.own.lanes(&classes.iter().map(lane).collect::<Vec<_>>());
        self.own.quarantined(&[agent(7, 0), agent(7, 1), agent(8, 0)]);
    }

    fn tasks(&self, class: &DeviceClass, round: u64) {
        let times = Times { waited_ms: 300, fetch_ms: 15, run_ms: 900 + round % 100 };
        for work in works() {
            for reply in replies() {
                let (queued, leased) = (Duration::from_millis(1200), Duration::from_millis(2300));
                self.own.tasks.done(&Done { class, work: &work, reply: &reply, times: &times, queued, leased });
            }
            self.own.tasks.poisoned(&work);
        }
        self.own.tasks.abandoned();
        self.own.leases.granted(class, false);
        self.own.leases.granted(class, true);
        self.own.leases.expired(class, Expiry::Silent);
        self.own.leases.expired(class, Expiry::Overrun);
        self.own.leases.stale_report();
        self.own.leases.charged(Charge::LeaseLost);
        for kind in [FailureKind::Environment, FailureKind::Baseline, FailureKind::TimedOut, FailureKind::Internal] {
            Charge::of(kind).into_iter().for_each(|charge| self.own.leases.charged(charge));
        }
        self.own.leases.forgiven(3);
        self.own.jobs.improved(class);
    }

    fn jobs(&self, round: u64) {
        self.own.jobs.phases([("waiting", 1), ("searching", 2 + round % 2), ("failed", 0)]);
        for number in 0..3 {
            self.job(&job(number), round + 10 * number);
        }
        self.own.jobs.ended(&job(2));
        self.own.journal.appended(17, Duration::from_millis(4));
        self.own.journal.failed();
        self.own.journal.unwritten(3);
    }

    pub fn job(&self, job: &JobId, round: u64) {
        let best_speedup = 1.0 + (round as f64 / 40.0).min(1.2);
        let budget_spent = (round as f64 / 200.0).min(1.0);
        let now = JobNow { best_speedup, tasks_outstanding: 12, candidates_judged: 5 * round, targets_won: 2, budget_spent };
        self.own.jobs.running(job, &now);
    }

    fn frontier(&self, round: u64) {
        self.frontier.up(true);
        self.frontier.pending(round % 3 + 1);
        for result in [Offered::Improved, Offered::Kept, Offered::Stale, Offered::Failed] {
            self.frontier.offered(result, Duration::from_micros(700));
        }
        self.frontier.rebuilt(Duration::from_millis(120));
    }
}

impl Agent {
    pub fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        Ok(Self { own: AgentMetrics::new(registry)?, broker: BrokerMetrics::new(registry)? })
    }

    /// Everything happens once on each of two devices; `round` from one on.
    pub fn drive(&self, round: u64) {
        for device in 0..2 {
            self.device(&agent(7, device), round);
        }
        drive_broker(&self.broker, round);
    }

    pub fn device(&self, agent: &AgentId, round: u64) {
        self.own.expect(agent);
        self.own.beat(&beat(agent, 0.80 + 0.01 * (round % 15) as f64));
        for work in works() {
            for reply in replies() {
                self.own.task_done(agent, &work, &reply, &Times { waited_ms: 300, fetch_ms: 15, run_ms: 900 });
            }
        }
        self.own.reports_unaccepted(agent, 1);
        self.own.canary(agent, true);
        self.own.canary(agent, false);
        let now = DeviceNow { sm_mhz: 1965 + (round % 2) as u32 * 15, celsius: 58 + (round % 6) as u32, power_mw: 612_000 };
        self.own.devices.sampled(agent, now);
        [13, 79, 9999].iter().for_each(|xid| self.own.devices.xid(agent, *xid));
    }
}

fn beat(agent: &AgentId, busy: f64) -> Beat {
    let device = DeviceIdentity {
        kind: DeviceKind::Cuda,
        uuid: "GPU-210d51c9".into(),
        product: "NVIDIA H200".into(),
        memory_bytes: 140 << 30,
        architecture: "sm_90".into(),
        partition: None,
        driver: "580.159".into(),
        threads: 0,
    };
    let holds = vec![Lease { epoch: 1, serial: 1 }, Lease { epoch: 1, serial: 2 }];
    Beat {
        agent: agent.clone(),
        incarnation: 1,
        version: "0.1.0".into(),
        device,
        epoch: 1,
        mode: AgentMode::Working,
        capacity: 2,
        holds,
        busy,
    }
}

fn drive_broker(broker: &BrokerMetrics, round: u64) {
    broker.state(&BrokerState::Up);
    broker.reconnected();
    for kind in ["task", "report", "pulse", "control"] {
        broker.published(kind, Duration::from_millis(2));
        broker.received(kind, round % 10 == 1);
        broker.dead_letter(kind);
    }
    for error in [
        BrokerError::Unconfirmed(Duration::from_secs(5)),
        BrokerError::Unroutable("agent/gpu7/cuda0".into()),
        BrokerError::Down("refused".into()),
        BrokerError::Topology("not durable".into()),
        BrokerError::TooLarge { found: 2, most: 1 },
    ] {
        broker.not_published(&error);
    }
    broker.malformed("checksum");
}
