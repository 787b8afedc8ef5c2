//! A job with a scripted model and a scripted referee.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Instant;

use kernelopt_coordinator::job::{Job, KernelSearch, Terms, Wish};
use kernelopt_coordinator::journal::{Draft, Entry, Event};
use kernelopt_coordinator::llm::{LLM, LlmProposer};
use kernelopt_coordinator::schedule::ScheduleProposer;
use kernelopt_coordinator::search::allowance::{Most, Spent};
use kernelopt_coordinator::search::proposer::{Proposer, Scene};
use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::language_model::{Answer, NanoUsd, Question, StopReason, TokenUsage, Unanswered};
use kernelopt_shared::message::{DeviceIdentity, DeviceKind, JobId, Reply, Work};
use kernelopt_shared::stats::Interval;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::{BandwidthCurve, GraphProfile, KernelProfile, ModelProfile};
use kernelopt_shared::verdict::{Evidence, Outcome, Verdict};

pub const KERNEL: &str = "triton_red_fused__softmax_exp_prepare_softmax_online_sub_0";

pub fn bundle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/bundles/softmax_cuda")
}

pub fn target() -> Target {
    static TARGET: LazyLock<Target> = LazyLock::new(|| {
        let (targets, _) = kernelopt_coordinator::inspect::targets(&Bundle::open(&bundle()).unwrap()).unwrap();
        targets.into_iter().next().unwrap()
    });
    TARGET.clone()
}

/// Candidates that a good model could write: those of the schedule proposer.
pub fn good_candidates(count: usize) -> &'static [Candidate] {
    static ALL: LazyLock<Vec<Candidate>> =
        LazyLock::new(|| ScheduleProposer::new().propose(&Scene::of(&target(), &[], usize::MAX)).candidates);
    &ALL[..count.min(ALL.len())]
}

/// An answer that holds `candidate`.
pub fn text_of(candidate: &Candidate) -> String {
    let launches: Vec<serde_json::Value> = candidate
        .launches()
        .map(|launch| {
            let mut value = serde_json::to_value(launch).unwrap();
            value.as_object_mut().unwrap().remove("divisible_by_16");
            value
        })
        .collect();
    let launches = serde_json::json!({"launches": launches, "scratch": candidate.scratch});
    format!("IDEA: {}\n\n```python\n{}\n```\n\n```json\n{launches}\n```\n", candidate.origin.note, candidate.source.trim_end())
}

pub fn answer(text: &str) -> Answer {
    let usage = TokenUsage { input_tokens: 2_000, cached_input_tokens: 0, output_tokens: 500 };
    Answer { text: text.into(), stop: StopReason::End, model: "scripted".into(), usage, cost: NanoUsd::ZERO }
}

pub fn terms(max_tokens: u64, max_cost: NanoUsd) -> Terms {
    Terms {
        name: String::new(),
        class: Some(device().class()),
        budget_ms: 3_600_000,
        max_candidates: 10_000,
        seed: 0,
        proposers: Vec::new(),
        priority: 5,
        weight: 10,
        model: "scripted".into(),
        max_tokens,
        max_cost,
    }
}

pub fn device() -> DeviceIdentity {
    DeviceIdentity {
        kind: DeviceKind::Cuda,
        uuid: "GPU-0".into(),
        product: "gpu".into(),
        memory_bytes: 1 << 37,
        architecture: "sm_90".into(),
        partition: None,
        driver: "1".into(),
        threads: 0,
    }
}

fn profile() -> ModelProfile {
    let kernels = BTreeMap::from([(KERNEL.to_owned(), KernelProfile { launches: 1, us: vec![280.0] })]);
    let graph = GraphProfile { index: 0, calls_per_run: 1, call_us: vec![281.0], kernels };
    ModelProfile { graphs: vec![graph], bandwidth: BandwidthCurve(vec![(1 << 30, 4e6)]), device: String::new() }
}

pub fn faster(estimate: f64) -> Verdict {
    Verdict::Accepted { speedup: Interval { estimate, low: estimate * 0.99, high: estimate * 1.01 } }
}

type Model<'a> = Box<dyn FnMut(&Question) -> Result<Answer, Unanswered> + 'a>;

/// A job, what it was given out, and what it recorded.
pub struct Rig<'a> {
    pub job: Job,
    pub journal: Vec<Entry>,
    pub out: Vec<Question>,
    pub asked: Vec<String>,
    pub tried: BTreeSet<Digest>,
    /// Largest sum of spent tokens and what questions in flight may take.
    pub most_tokens: u64,
    pub most_in_flight: usize,
    pub hushed: usize,
    pub model: Model<'a>,
    pub referee: Box<dyn FnMut(&Candidate) -> Verdict + 'a>,
    terms: Terms,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Only the whole model is left to be checked.
    Searched,
    /// Answers are awaited that come some other time.
    Paused,
    /// As many events as were asked for are there.
    Events,
}

fn proposers(with_schedule: bool) -> Vec<Box<dyn Proposer>> {
    let llm = LlmProposer::new(LLM, "scripted");
    if with_schedule { vec![Box::new(ScheduleProposer::new()), Box::new(llm)] } else { vec![Box::new(llm)] }
}

impl<'a> Rig<'a> {
    pub fn new(
        terms: Terms,
        with_schedule: bool,
        model: impl FnMut(&Question) -> Result<Answer, Unanswered> + 'a,
        referee: impl FnMut(&Candidate) -> Verdict + 'a,
    ) -> Self {
        let search = KernelSearch::open(&bundle(), None, &terms, proposers(with_schedule)).unwrap();
        let mut drafts = Vec::new();
        let job = Job::open(JobId::parse("job").unwrap(), terms.clone(), Box::new(search), &mut drafts);
        let mut rig = Self {
            job,
            journal: Vec::new(),
            out: Vec::new(),
            asked: Vec::new(),
            tried: BTreeSet::new(),
            most_tokens: 0,
            most_in_flight: 0,
            hushed: 0,
            model: Box::new(model),
            referee: Box::new(referee),
            terms,
        };
        rig.keep(drafts);
        rig
    }

    /// The same job in another process, from its journal alone.
    pub fn restart(&mut self, with_schedule: bool) {
        let search = KernelSearch::open(&bundle(), None, &self.terms, proposers(with_schedule)).unwrap();
        self.job = Job::resume(JobId::parse("job").unwrap(), self.terms.clone(), Box::new(search), &self.journal);
        self.out.clear();
    }

    fn keep(&mut self, drafts: Vec<Draft>) {
        for Draft { job, active, event } in drafts {
            // What is read back is what counts.
            let event: Event = serde_json::from_str(&serde_json::to_string(&event).unwrap()).unwrap();
            self.journal.push(Entry { seq: self.journal.len() as i64 + 1, job, active, event });
        }
    }

    /// Runs until nothing is left but the whole model, or so many events are journaled; one answer is given for each verdict, the one that
    /// `pick` picks of those that are out.
    pub fn run(&mut self, until: usize, mut pick: impl FnMut(usize) -> usize) -> End {
        let now = Instant::now();
        loop {
            if self.journal.len() >= until {
                return End::Events;
            }
            let mut drafts = Vec::new();
            let wish = self.job.next(4, now, &mut drafts);
            self.keep(drafts);
            let mut drafts = Vec::new();
            match wish {
                Wish::Run(order) => {
                    let reply = match order.work {
                        Work::Profile => Reply::Profiled(profile()),
                        Work::Evaluate { candidate, .. } => {
                            self.tried.insert(candidate.id());
                            let verdict = (self.referee)(&candidate);
                            Reply::Judged(Box::new(Outcome { candidate: candidate.id(), verdict, evidence: Evidence::default() }))
                        }
                        _ => return End::Searched,
                    };
                    self.job.settle(order.task, reply, &device(), now, &mut drafts);
                }
                Wish::Ask(question) => {
                    self.asked.push(question.id.clone());
                    self.out.push(*question);
                    let may_take: u64 = self.out.iter().map(|question| Most::of(question).tokens()).sum();
                    self.most_tokens = self.most_tokens.max(self.spent().tokens + may_take);
                    self.most_in_flight = self.most_in_flight.max(self.out.len());
                }
                Wish::Wait => {
                    assert!(!self.out.is_empty(), "the job waits for nothing");
                    let question = self.out.remove(pick(self.out.len()));
                    let said = (self.model)(&question);
                    self.job.answered(&question.id, said, now, &mut drafts);
                }
                Wish::Hush => {
                    self.hushed += self.out.len();
                    self.out.clear();
                }
                Wish::Pause => return End::Paused,
                Wish::Finish => return End::Searched,
            }
            self.keep(drafts);
        }
    }

    pub fn spent(&self) -> Spent {
        Spent::of(self.job.search().unwrap().state())
    }

    pub fn candidates_by(&self, proposer: &str) -> usize {
        let state = self.job.search().unwrap().state();
        state.targets.values().flat_map(|t| &t.tried).filter(|t| t.candidate.origin.proposer == proposer).count()
    }
}
