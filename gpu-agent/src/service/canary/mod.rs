//! A device's test of itself: a small kernel that must be found right, and a wrong one that must be found wrong.
//!
//! Both go through the same door as any candidate: builder, sandbox, runner, referee. A device that passes is not the reason why tasks
//! fail; one that does not takes no more of them (a worker that fails fast would otherwise eat a whole queue).

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::bundle::{BUNDLE_SCHEMA_VERSION, CapturedDevice, Manifest};
use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::fingerprint::fingerprint;
use kernelopt_shared::meaning::traffic::traffic;
use kernelopt_shared::meaning::{Expr, Meaning};
use kernelopt_shared::target::{Language, Target};
use kernelopt_shared::task::{Agent, Depth, Evaluate};
use kernelopt_shared::verdict::Verdict;

/// Looks at a kernel before the device is called unsteady: others may use the host for a moment.
const LOOKS: u64 = 5;

/// The test of one kind of device.
#[derive(Clone, Debug)]
pub struct Canary {
    /// What an agent for it is made from.
    pub manifest: Manifest,
    /// The target; its baseline is the right kernel.
    pub target: Target,
    /// A candidate that is almost right.
    pub wrong: Candidate,
}

impl Canary {
    /// C++, for a processor.
    ///
    /// # Errors
    /// Never for the files of this program, which a test reads.
    pub fn cpu() -> Result<Self, serde_json::Error> {
        let candidate = |source: &str| candidate(Language::Cpp, source, None);
        let (right, wrong) = (candidate(include_str!("cpu/right.cpp")), candidate(include_str!("cpu/wrong.cpp")));
        Self::of("cpu", include_str!("cpu/meaning.json"), right, wrong)
    }

    /// Triton, for a GPU.
    ///
    /// # Errors
    /// As [`Canary::cpu`].
    pub fn cuda() -> Result<Self, serde_json::Error> {
        let launch = Launch {
            entry: "softmax".into(),
            grid: [Expr::Int(256), Expr::Int(1), Expr::Int(1)],
            constants: BTreeMap::from([("R0_BLOCK".to_owned(), 1024)]),
            divisible_by_16: ["in_ptr0", "out_ptr0", "xnumel", "r0_numel"].map(str::to_owned).into(),
            num_warps: 4,
            num_stages: 1,
            arguments: Vec::new(),
        };
        let candidate = |source: &str| candidate(Language::Triton, source, Some(launch.clone()));
        let (right, wrong) = (candidate(include_str!("cuda/right.py")), candidate(include_str!("cuda/wrong.py")));
        Self::of("cuda", include_str!("cuda/meaning.json"), right, wrong)
    }

    fn of(kind: &str, meaning: &str, right: Candidate, wrong: Candidate) -> Result<Self, serde_json::Error> {
        let meaning: Meaning = serde_json::from_str(meaning)?;
        let target = Target {
            kernel: meaning.kernel.clone(),
            graph: 0,
            fingerprint: fingerprint(&meaning),
            traffic: traffic(&meaning, &BTreeSet::new()),
            baseline: right,
            scratch: BTreeSet::new(),
            calls: 1,
            distributions: BTreeMap::new(),
            meaning,
        };
        let manifest = Manifest {
            schema_version: BUNDLE_SCHEMA_VERSION,
            model: "canary".into(),
            versions: BTreeMap::new(),
            device: CapturedDevice { kind: kind.into(), name: String::new(), threads: 1, capability: None },
            precision: BTreeMap::new(),
            inductor: BTreeMap::new(),
            compile_command: Vec::new(),
            graphs: Vec::new(),
            files: BTreeMap::new(),
        };
        Ok(Self { manifest, target, wrong })
    }

    /// Runs the test on an agent that was made from [`Canary::manifest`]. `Err` says what the device got wrong.
    pub fn sing(&self, agent: &mut dyn Agent, seed: u64) -> Result<(), String> {
        let right = self.judge(agent, &self.target.baseline, seed)?;
        if !right.is_right() {
            return Err(format!("a kernel that is right was judged: {}", in_words(&right)));
        }
        match self.judge(agent, &self.wrong, seed)? {
            Verdict::Wrong { .. } => Ok(()),
            other => Err(format!("a kernel that is wrong was judged: {}", in_words(&other))),
        }
    }

    /// The first verdict that is not for want of steadiness.
    fn judge(&self, agent: &mut dyn Agent, candidate: &Candidate, seed: u64) -> Result<Verdict, String> {
        let mut look = 0;
        loop {
            let seed = seed.wrapping_add(look);
            let work = Evaluate { target: &self.target, candidate, depth: Depth::Screen, seed };
            let verdict = agent.evaluate(&work).map_err(|error| format!("it could not be judged: {error}"))?.verdict;
            look += 1;
            if look == LOOKS || !matches!(verdict, Verdict::Unstable { .. }) {
                return Ok(verdict);
            }
        }
    }
}

fn candidate(language: Language, source: &str, launch: Option<Launch>) -> Candidate {
    let origin = Origin { proposer: "canary".into(), note: String::new(), parent: None, round: 0 };
    let (further, scratch) = (Vec::new(), Vec::new());
    Candidate { language, source: source.into(), launch, further, scratch, precision: Precision::Baseline, origin }
}

/// A verdict with its reason.
fn in_words(verdict: &Verdict) -> String {
    let reason = match verdict {
        Verdict::Wrong { reason }
        | Verdict::BuildFailed { reason }
        | Verdict::Crashed { reason }
        | Verdict::Rejected { reason }
        | Verdict::Unstable { reason } => reason.as_str(),
        Verdict::Hung { .. } | Verdict::Accepted { .. } | Verdict::NoChange { .. } | Verdict::Slower { .. } => "",
    };
    format!("{} {reason}", verdict.kind()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_whole() {
        for canary in [Canary::cpu().unwrap(), Canary::cuda().unwrap()] {
            canary.target.meaning.validate().unwrap();
            assert_ne!(canary.target.baseline.id(), canary.wrong.id());
            assert!(canary.target.traffic.total_bytes() < 4 << 20, "a canary is small");
        }
    }
}
