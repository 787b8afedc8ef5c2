//! Rows in several parts: two launches mean what the kernel means.

use std::collections::BTreeSet;

use kernelopt_coordinator::inductor::ModelFile;
use kernelopt_coordinator::inductor::sequence::Sequence;
use kernelopt_coordinator::inductor::triton::{kernel_name, render};
use kernelopt_coordinator::schedule::ScheduleProposer;
use kernelopt_coordinator::schedule::space::Statistics;
use kernelopt_coordinator::schedule::triton::space::{Schedule, Shape, Softmax};
use kernelopt_coordinator::schedule::triton::split::{Split, Stage, split};
use kernelopt_coordinator::search::proposer::{Proposer as _, Scene};
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::Expr;
use kernelopt_shared::target::Target;
use serde_json::{Value, json};

use super::fixtures::target;
use super::python::{check, job};

fn parts(splits: u32, x_block: u32, r_block: u32) -> Schedule {
    let statistics = Statistics::Running;
    Schedule { shape: Shape::Loop, splits: Some(splits), x_block, r_block, warps: 1, statistics, ..Schedule::default() }
}

fn candidate(target: &Target, schedule: &Schedule) -> Result<Candidate, String> {
    let Split { source, stages, scratch } = split(&target.meaning, &BTreeSet::new(), schedule).map_err(|why| why.to_string())?;
    let names: BTreeSet<String> = scratch.iter().map(|scratch| scratch.name.clone()).collect();
    let launch = |Stage { entry, arguments, constants, programs, warps }: Stage| Launch {
        entry: entry.to_owned(),
        grid: [programs, Expr::Int(1), Expr::Int(1)],
        constants,
        divisible_by_16: names.iter().filter(|name| arguments.contains(name)).cloned().collect(),
        num_warps: warps,
        num_stages: 1,
        arguments,
    };
    let [first, second] = stages.map(launch);
    let mut candidate = Candidate { source, launch: Some(first), further: vec![second], scratch, ..target.baseline.clone() };
    candidate.origin.note = schedule.note();
    candidate.check_launches(&target.meaning).unwrap();
    Ok(candidate)
}

/// Kernels and the ways in which their rows are cut: evenly, with a shorter last part, within a block; rows one by one and together.
fn cut() -> Vec<(&'static str, Vec<Schedule>)> {
    let along = |blocks: &[(u32, u32)]| blocks.iter().map(|(splits, block)| parts(*splits, 1, *block)).collect::<Vec<_>>();
    let softmax = || {
        let each = [Softmax::Lanes, Softmax::Block].map(|softmax| Schedule { softmax, ..parts(4, 1, 128) });
        each.into_iter().chain(along(&[(3, 256), (24, 64)])).collect::<Vec<_>>()
    };
    vec![
        ("softmax", softmax()),
        ("softmax_in_place", softmax()),
        ("cross_entropy", softmax()),
        ("rms_norm", along(&[(3, 64), (7, 128)])),
        ("residual_rms_norm", along(&[(4, 128)])),
        ("layer_norm_long", along(&[(2, 256), (4, 512)])),
        ("layer_norm_in_place", along(&[(3, 16), (2, 64)])),
        ("int_sum", along(&[(3, 64), (5, 16)])),
        ("amax_any", along(&[(2, 16), (3, 4)])),
        ("column_sum", vec![parts(2, 32, 8), parts(3, 64, 4), parts(5, 16, 1)]),
        ("bn_train", along(&[(3, 64), (6, 32)])),
    ]
}

#[test]
fn rows_in_parts_can_be_written() {
    for (name, schedules) in cut() {
        let target = target(name);
        for schedule in schedules {
            candidate(&target, &schedule).unwrap_or_else(|why| panic!("{name}, {}: {why}", schedule.note()));
        }
    }
}

/// Jobs of every third kernel from `part`, so that tests can share the work.
fn interpret(part: usize) {
    let one = |(name, schedules): (&str, Vec<Schedule>)| {
        let target = target(name);
        let candidates: Vec<Candidate> = schedules.iter().map(|schedule| candidate(&target, schedule).unwrap()).collect();
        // A product of large numbers is not finite.
        let regimes: &[&str] = if name == "amax_any" { &["usual", "special"] } else { &["usual", "large", "special"] };
        job(name, &target, &candidates, regimes)
    };
    let jobs: Vec<Value> = cut().into_iter().skip(part).step_by(3).map(one).collect();
    println!("{}", check("interpret", &jobs).unwrap_or_else(|why| panic!("{why}")));
}

#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn two_launches_mean_what_the_kernel_means() {
    interpret(0);
}

#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn two_launches_of_others_mean_what_their_kernels_mean() {
    interpret(1);
}

#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn two_launches_of_the_rest_mean_what_their_kernels_mean() {
    interpret(2);
}

/// Statistics of parts are as exact as those of whole rows, where the mean is a thousand deviations too.
#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn statistics_of_parts_are_exact() {
    // An output of three digits would show nothing.
    let mut target = target("layer_norm_long");
    let text = serde_json::to_string(&target.meaning).unwrap().replace("bfloat16", "float32");
    target.meaning = serde_json::from_str(&text).unwrap();
    let candidates: Vec<Candidate> = [parts(2, 1, 256), parts(5, 1, 128)].iter().map(|cut| candidate(&target, cut).unwrap()).collect();
    // At a thousand, a float32 mean is known to 3e-5.
    for (regimes, tolerance) in [(&["usual", "large"][..], 0.04), (&["far"][..], 3.0)] {
        let mut job = job("layer_norm_long", &target, &candidates, regimes);
        job["tolerance"] = json!(tolerance);
        check("interpret", &[job]).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn what_reads_scratch_that_nobody_wrote_is_caught() {
    let target = target("cross_entropy");
    let whole = candidate(&target, &parts(4, 1, 128)).unwrap();
    let last = Candidate { launch: whole.further.first().cloned(), further: Vec::new(), ..whole.clone() };
    assert!(check("interpret", &[job("cross_entropy", &target, &[last], &["usual"])]).is_err());
    let mut short = whole;
    short.scratch[0].elements = Expr::Int(5);
    assert!(check("interpret", &[job("cross_entropy", &target, &[short], &["usual"])]).unwrap_err().contains("behind scratch"));
}

#[test]
#[ignore = "needs triton: set KERNELOPT_PYTHON"]
fn two_launches_compile_and_load() {
    let (mut compiled, mut loaded) = (Vec::new(), Vec::new());
    for name in ["softmax", "cross_entropy_h200", "layer_norm_long", "column_mean_h200", "rms_norm_h200"] {
        let target = target(name);
        let (x_block, r_block) = if name.starts_with("column") { (32, 8) } else { (1, 256) };
        let one = candidate(&target, &Schedule { warps: 4, ..parts(4, x_block, r_block) }).unwrap();
        for (number, text) in render(&one, &target).unwrap().into_iter().enumerate() {
            let launch = one.launches().nth(number).cloned();
            let mut alone = job(name, &target, &[Candidate { source: text, launch, further: Vec::new(), ..one.clone() }], &[]);
            alone["candidates"][0]["kernel"] = json!(kernel_name(&target.kernel, number));
            loaded.push(alone);
        }
        compiled.push(job(name, &target, &[one], &[]));
    }
    println!("{}", check("compile", &compiled).unwrap_or_else(|why| panic!("{why}")));
    println!("{}", check("load", &loaded).unwrap_or_else(|why| panic!("{why}")));
}

#[test]
fn log_sum_exp_in_parts_reads() {
    insta::assert_snapshot!(candidate(&target("cross_entropy_h200"), &parts(4, 1, 2048)).unwrap().source);
}

#[test]
fn softmax_in_parts_reads() {
    insta::assert_snapshot!(candidate(&target("softmax"), &parts(4, 1, 256)).unwrap().source);
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let refused = |name: &str, schedule: &Schedule| candidate(&target(name), schedule).unwrap_err();
    assert!(refused("softmax_dynamic", &parts(4, 1, 128)).contains("not known"));
    assert!(refused("softmax", &parts(1, 1, 128)).contains("1 parts"));
    assert!(refused("softmax", &Schedule { softmax: Softmax::TwoPass, ..parts(4, 1, 128) }).contains("several passes"));
    assert!(refused("logsumexp", &parts(4, 1, 64)).contains("several passes"));
    assert!(refused("softmax", &Schedule { resident: Some(132), ..parts(4, 1, 128) }).contains("stay"));
    assert!(refused("softmax", &Schedule { shape: Shape::Row, ..parts(4, 1, 4096) }).contains("loop"));
}

/// The target with so many rows in place of those of its fixture.
fn with_rows(name: &str, before: &str, rows: &str) -> Target {
    let mut target = target(name);
    let text = serde_json::to_string(&target.meaning).unwrap().replace(&format!("\"{before}\""), &format!("\"{rows}\""));
    target.meaning = serde_json::from_str(&text).unwrap();
    target
}

/// Few rows are cut so that every multiprocessor has something to do, and many are left alone.
#[test]
fn parts_are_offered_where_the_device_would_be_idle() {
    let offered = |target: &Target| -> Vec<Candidate> {
        let all = ScheduleProposer::new().propose(&Scene::of(target, &[], usize::MAX)).candidates;
        all.into_iter().filter(Candidate::has_sequence).collect()
    };
    for name in ["softmax_h200", "cross_entropy_h200"] {
        assert_eq!(offered(&target(name)).len(), 0, "{name}");
        let few = offered(&with_rows(name, "4096", "32"));
        assert!(few.len() >= 4, "{name}: {}", few.len());
        for candidate in &few {
            let first = candidate.launch.as_ref().unwrap();
            let programs = first.grid(&|_| None).unwrap()[0];
            assert!((100..=1200).contains(&programs), "{}: {programs} programs", candidate.origin.note);
            assert!(candidate.scratch.iter().all(|scratch| first.divisible_by_16.contains(&scratch.name)));
        }
    }
}

/// A file with one kernel, launched in two places.
fn file(target: &Target, calls: [&str; 2]) -> String {
    let Target { kernel, baseline, .. } = target;
    format!(
        "from torch._inductor.async_compile import AsyncCompile
import torch
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
from torch._C import _cuda_getCurrentRawStream as get_raw_stream
async_compile = AsyncCompile()

{kernel} = async_compile.triton('{kernel}', '''{}''', device_str='cuda')

def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((5, 1), (1, 5), torch.float32)
        buf1 = empty_strided_cuda((5, 1), (1, 5), torch.float32)
        # Topologically Sorted Source Nodes: [x], Original ATen: []
        stream0 = get_raw_stream(0)
        {kernel}.run({}, stream=stream0)
        {kernel}.run({}, stream=stream0)
        del arg0_1
    return (buf0, buf1, )
",
        baseline.source, calls[0], calls[1]
    )
}

const CALLS: [&str; 2] = ["arg0_1, buf0, buf1, 5, 2100", "reinterpret_tensor(arg1_1, (5, 2100), (2100, 1), 0), buf0, buf1, 5, 2100"];

#[test]
fn a_sequence_stands_where_the_launch_was() {
    let target = target("cross_entropy");
    let mut candidate = candidate(&target, &parts(4, 1, 128)).unwrap();
    candidate.scratch[0].zeroed = true;
    let mut sources = render(&candidate, &target).unwrap();
    let first = sources.remove(0);
    let text = ModelFile::parse(&file(&target, CALLS)).unwrap().write(&[(target.kernel.clone(), first)].into()).unwrap();
    let sequence = Sequence { kernel: &target.kernel, meaning: &target.meaning, candidate: &candidate, sources: &sources };
    let written = ModelFile::parse(&text).unwrap().with_sequence(&sequence).unwrap();
    insta::assert_snapshot!("a_sequence_in_call", &written[written.find("def call").unwrap()..]);
    insta::assert_snapshot!("a_further_kernel", sources[0]);
    // A second time the names are taken.
    let again = ModelFile::parse(&written).unwrap().with_sequence(&sequence).unwrap_err().to_string();
    assert!(again.contains("is taken"), "{again}");
}

#[test]
fn a_launch_of_another_form_has_no_room_for_a_sequence() {
    let target = target("cross_entropy");
    let candidate = candidate(&target, &parts(4, 1, 128)).unwrap();
    let sources = render(&candidate, &target).unwrap();
    let sequence = Sequence { kernel: &target.kernel, meaning: &target.meaning, candidate: &candidate, sources: &sources[1..] };
    for call in ["arg0_1, buf0, buf1, 5", "arg0_1, buf0, buf1, 5, xnumel=2100", "what(arg0_1), buf0, buf1, 5, 2100"] {
        let calls = [call, CALLS[1]];
        let model = ModelFile::parse(&file(&target, calls)).unwrap();
        let refused = model.with_sequence(&sequence).unwrap_err().to_string();
        assert!(refused.contains("cannot be replaced"), "{refused}");
    }
}
