//! The referee on a real GPU. Run by `tests/gpu/referee.py`, which captures the bundles and names them:
//! `KERNELOPT_GPU_BUNDLES` (a folder with `gelu`, `softmax`, ...), `KERNELOPT_BINARY`, `KERNELOPT_FIXTURES` (`tests/fixtures/gpu`) and
//! `KERNELOPT_GPU_RESULTS`, a folder for what was seen.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use kernelopt_coordinator::inspect::targets;
use kernelopt_coordinator::schedule::ScheduleProposer;
use kernelopt_coordinator::search::proposer::{Judged, Proposer as _, Scene};
use kernelopt_gpu_agent::cpu::child::Reexec;
use kernelopt_gpu_agent::cuda::{CudaAgent, CudaOptions};
use kernelopt_gpu_agent::python::Python;
use kernelopt_gpu_agent::service::Canary;
use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::candidate::{Candidate, Origin, Precision};
use kernelopt_shared::launch::{Launch, Scratch};
use kernelopt_shared::stop::Stop;
use kernelopt_shared::target::{Language, Target};
use kernelopt_shared::task::{Agent as _, Depth, Evaluate};
use kernelopt_shared::verdict::{Outcome, Verdict};
use serde::{Deserialize, Serialize};

/// Why these tests do not run by themselves.
macro_rules! on_a_gpu {
    ($(fn $name:ident() $body:block)+) => {
        $(#[test]
        #[ignore = "needs a GPU: tests/gpu/referee.py"]
        fn $name() $body)+
    };
}

fn named(variable: &str) -> PathBuf {
    std::env::var_os(variable).map(PathBuf::from).unwrap_or_else(|| panic!("{variable} is not set"))
}

fn agent() -> CudaAgent {
    let reexec = Reexec { program: named("KERNELOPT_BINARY"), words: vec!["runner".into()] };
    let cache = std::env::temp_dir().join("kernelopt-gpu-tests");
    CudaAgent::new(CudaOptions { reexec, cache, python: Python::find(), ordinal: 0 }, Stop::default()).expect("an agent")
}

/// The greatest kernel of a bundle.
fn target(bundle: &str) -> Target {
    let bundle = Bundle::open(&named("KERNELOPT_GPU_BUNDLES").join(bundle)).expect("a bundle");
    let (found, untouched) = targets(&bundle).expect("targets");
    found.into_iter().max_by_key(|target| target.traffic.total_bytes()).unwrap_or_else(|| panic!("no target: {untouched:?}"))
}

fn write(name: &str, seen: &impl Serialize) {
    let path = named("KERNELOPT_GPU_RESULTS").join(name).with_extension("json");
    fs::write(path, serde_json::to_vec_pretty(seen).expect("JSON")).expect("the results folder can be written");
}

/// One row of `candidates.json`.
#[derive(Deserialize)]
struct Row {
    file: String,
    language: Language,
    kernel: String,
    verdicts: Vec<String>,
    launch: Launch,
    #[serde(default)]
    further: Vec<Launch>,
    #[serde(default)]
    scratch: Vec<Scratch>,
}

fn rows(folder: &str) -> Vec<(Row, Candidate)> {
    let fixtures = named("KERNELOPT_FIXTURES");
    let rows: Vec<Row> = serde_json::from_slice(&fs::read(fixtures.join("candidates.json")).expect("a manifest")).expect("rows");
    let read = |row: Row| {
        let source = fs::read_to_string(fixtures.join(&row.file)).expect("a source");
        let candidate = candidate(row.language, source, row.launch.clone(), &row.file);
        let candidate = Candidate { further: row.further.clone(), scratch: row.scratch.clone(), ..candidate };
        (row, candidate)
    };
    rows.into_iter().filter(|row| Path::new(&row.file).starts_with(folder)).map(read).collect()
}

fn candidate(language: Language, source: String, launch: Launch, note: &str) -> Candidate {
    let origin = Origin { proposer: "test".into(), note: note.into(), parent: None, round: 0 };
    Candidate { language, source, launch: Some(launch), further: Vec::new(), scratch: Vec::new(), precision: Precision::Baseline, origin }
}

/// The candidate with `$0`, `$1` among what it passes as the target names its arguments.
fn passing(candidate: &Candidate, target: &Target) -> Candidate {
    let mut candidate = candidate.clone();
    let named = |name: &String| {
        let position = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
        position.and_then(|at| target.meaning.arguments.get(at)).map_or_else(|| name.clone(), |argument| argument.name.clone())
    };
    for launch in candidate.launch.iter_mut().chain(&mut candidate.further) {
        launch.arguments = launch.arguments.iter().map(named).collect();
    }
    candidate
}

/// What was seen of one candidate.
#[derive(Serialize)]
struct Seen {
    name: String,
    verdict: Verdict,
    milliseconds: u64,
}

fn judge(agent: &mut CudaAgent, target: &Target, candidate: &Candidate, depth: Depth, seed: u64) -> (Seen, Outcome) {
    let started = Instant::now();
    let outcome = agent.evaluate(&Evaluate { target, candidate, depth, seed }).unwrap_or_else(|e| panic!("{}: {e}", candidate.origin.note));
    let milliseconds = started.elapsed().as_millis() as u64;
    eprintln!("{milliseconds:>6} ms {:<40} {:?}", candidate.origin.note, outcome.verdict);
    (Seen { name: candidate.origin.note.clone(), verdict: outcome.verdict.clone(), milliseconds }, outcome)
}

fn gpu_memory_bytes() -> u64 {
    let query = ["--query-gpu=memory.used", "--format=csv,noheader,nounits"];
    let output = std::process::Command::new("nvidia-smi").args(query).output().expect("nvidia-smi");
    String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum::<u64>() << 20
}

on_a_gpu! {
    fn a_sound_gpu_passes_its_own_test() {
        let canary = Canary::cuda().expect("a canary");
        for seed in 0..3 {
            canary.sing(&mut agent(), seed).expect("right is right and wrong is wrong");
        }
        let reversed = Canary { wrong: canary.target.baseline.clone(), ..canary };
        assert!(reversed.sing(&mut agent(), 1).is_err());
    }

    fn planted_kernels_get_their_verdicts() {
        let mut agent = agent();
        let (mut seen, mut missed) = (Vec::new(), Vec::new());
        for (i, (row, candidate)) in rows("planted").iter().enumerate() {
            let target = target(&row.kernel);
            let (found, _) = judge(&mut agent, &target, &passing(candidate, &target), Depth::Full, i as u64);
            if !row.verdicts.iter().any(|wanted| wanted == found.verdict.kind()) {
                missed.push(format!("{}: {:?} instead of {:?}", row.file, found.verdict, row.verdicts));
            }
            seen.push(found);
        }
        write("planted", &seen);
        assert!(missed.is_empty(), "{}", missed.join("\n"));
    }

    fn honest_kernels_are_right() {
        let mut agent = agent();
        let mut seen = Vec::new();
        for (i, (row, candidate)) in rows("honest").iter().enumerate() {
            let target = target(&row.kernel);
            seen.push(judge(&mut agent, &target, &passing(candidate, &target), Depth::Full, i as u64).0);
        }
        for bundle in ["softmax", "gelu", "layer_norm", "transposed", "few_rows"] {
            let target = target(bundle);
            for candidate in ScheduleProposer::new().propose(&Scene::of(&target, &[], 12)).candidates {
                seen.push(judge(&mut agent, &target, &candidate, Depth::Full, 7).0);
            }
        }
        let right = seen.iter().filter(|seen| seen.verdict.is_right()).count();
        write("honest", &seen);
        assert!(seen.len() >= 40 && right * 100 >= seen.len() * 98, "{right} of {} were called right", seen.len());
    }

    fn the_baseline_never_beats_itself() {
        let mut agent = agent();
        let targets = ["softmax", "gelu", "layer_norm"].map(target);
        let mut seen = Vec::new();
        for run in 0..100u64 {
            let target = &targets[run as usize % targets.len()];
            let source = format!("{}\n# twin {run}\n", target.baseline.source);
            let launch = target.baseline.launch.clone().expect("a launch");
            let twin = candidate(Language::Triton, source, launch, &target.kernel);
            seen.push(judge(&mut agent, target, &twin, Depth::Full, run).0);
        }
        write("baseline_against_itself", &seen);
        let wins: Vec<&Verdict> = seen.iter().map(|seen| &seen.verdict).filter(|v| matches!(v, Verdict::Accepted { .. })).collect();
        assert!(wins.is_empty(), "{wins:?}");
        assert!(seen.iter().all(|seen| seen.verdict.is_right()));
    }

    fn a_winner_is_measured_alike_in_fresh_processes() {
        let mut agent = agent();
        let target = target("softmax_large");
        let mut history = Vec::new();
        for candidate in ScheduleProposer::new().propose(&Scene::of(&target, &[], 8)).candidates {
            let (found, _) = judge(&mut agent, &target, &candidate, Depth::Screen, 3);
            history.push(Judged { candidate, verdict: found.verdict });
        }
        let estimate = |judged: &Judged| judged.verdict.speedup().map_or(0.0, |speedup| speedup.estimate);
        let winner = history.iter().max_by(|a, b| estimate(a).total_cmp(&estimate(b))).expect("a candidate");
        // Every confirmation is a process of its own.
        let runs: Vec<Seen> = (0..3).map(|seed| judge(&mut agent, &target, &winner.candidate, Depth::Confirm, seed).0).collect();
        let speedups: Vec<f64> = runs.iter().filter_map(|run| Some(run.verdict.speedup()?.estimate)).collect();
        let (least, greatest) = speedups.iter().fold((f64::MAX, 0.0f64), |(least, greatest), s| (least.min(*s), greatest.max(*s)));
        write("fresh_processes", &runs);
        assert!(speedups.len() == 3 && greatest / least < 1.01, "{speedups:?}");
    }

    fn faults_among_many_disturb_nobody() {
        let before = gpu_memory_bytes();
        let mut agent = agent();
        let target = target("gelu");
        let honest: Vec<Candidate> = rows("honest").into_iter().filter(|(row, _)| row.kernel == "gelu").map(|(_, c)| c).collect();
        let faulty = ["illegal_address", "misaligned", "trap", "far_away", "neighbours_overwritten", "past_the_end"];
        let planted: Vec<(Row, Candidate)> =
            rows("planted").into_iter().filter(|(row, _)| faulty.iter().any(|name| row.file.contains(name))).collect();
        let hanging: Vec<(Row, Candidate)> = rows("planted").into_iter().filter(|(row, _)| row.file.contains("endless")).collect();
        let (mut times, mut seen, mut missed) = (BTreeMap::<String, Vec<f64>>::new(), Vec::new(), 0);
        for i in 0..200usize {
            if i % 10 == 9 {
                let faults = if i % 100 == 99 { &hanging } else { &planted };
                let (row, candidate) = &faults[(i / 10) % faults.len()];
                let (found, _) = judge(&mut agent, &target, candidate, Depth::Screen, i as u64);
                missed += usize::from(!row.verdicts.iter().any(|wanted| wanted == found.verdict.kind()));
                seen.push(found);
                continue;
            }
            let candidate = &honest[i % honest.len()];
            let (found, outcome) = judge(&mut agent, &target, candidate, Depth::Screen, i as u64);
            missed += usize::from(!found.verdict.is_right());
            let mut candidates: Vec<f64> = outcome.evidence.pairs_ns.iter().map(|(_, candidate)| *candidate).collect();
            candidates.sort_by(f64::total_cmp);
            times.entry(found.name.clone()).or_default().extend(candidates.get(candidates.len() / 2));
            seen.push(found);
        }
        drop(agent);
        let spread = |times: &Vec<f64>| times.iter().fold(0.0f64, |a, b| a.max(*b)) / times.iter().fold(f64::MAX, |a, b| a.min(*b));
        let widest = times.values().map(spread).fold(0.0, f64::max);
        let left = gpu_memory_bytes().saturating_sub(before);
        eprintln!("{missed} missed; the same kernel's times differ by {widest:.3}x at most; {left} bytes left on the GPU");
        write("two_hundred", &serde_json::json!({ "seen": seen, "times_ns": times, "left_bytes": left }));
        assert!(missed == 0 && widest < 1.15 && left == 0, "{missed} missed, {widest}, {left} bytes left");
    }
}
