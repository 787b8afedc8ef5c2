//! Kernels of the model's author: read from a bundle, searched by their launch, and written back with their own text.

use std::collections::BTreeSet;
use std::path::Path;

use kernelopt_coordinator::inductor::ModelFile;
use kernelopt_coordinator::inductor::triton::{TritonError, render};
use kernelopt_coordinator::inductor::user_kernel::UserKernel;
use kernelopt_coordinator::inspect::{Inspection, targets};
use kernelopt_coordinator::schedule::ScheduleProposer;
use kernelopt_coordinator::search::proposer::{Judged, Proposer, Scene};
use kernelopt_shared::bundle::Bundle;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::launch::Launch;
use kernelopt_shared::stats::Interval;
use kernelopt_shared::target::Target;
use kernelopt_shared::verdict::Verdict;

fn bundle() -> Bundle {
    Bundle::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/bundles/user_triton")).unwrap()
}

/// The kernel whose name begins so.
fn target(name: &str) -> Target {
    let (targets, untouched) = targets(&bundle()).unwrap();
    assert_eq!(untouched, []);
    targets.into_iter().find(|target| target.kernel.starts_with(name)).unwrap()
}

fn launch(candidate: &Candidate) -> &Launch {
    candidate.launch.as_ref().unwrap()
}

/// All that the proposer offers a judge for whom blocks of `best` and many warps are fast.
fn search(target: &Target, best: i64) -> Vec<Candidate> {
    let mut history: Vec<Judged> = Vec::new();
    loop {
        let offered = ScheduleProposer::new().propose(&Scene::of(target, &history, 8)).candidates;
        if offered.is_empty() {
            return history.into_iter().map(|judged| judged.candidate).collect();
        }
        history.extend(offered.into_iter().map(|candidate| {
            let block = launch(&candidate).constants["BLOCK"];
            let estimate = 8.0 - (block as f64 / best as f64).log2().abs() + f64::from(launch(&candidate).num_warps) / 64.0;
            let verdict = Verdict::Accepted { speedup: Interval { estimate, low: estimate, high: estimate } };
            Judged { candidate, verdict }
        }));
        assert!(history.len() < 300, "no end");
    }
}

#[test]
fn an_inspection_says_what_is_known() {
    insta::assert_snapshot!(Inspection::of_bundle(&bundle()).unwrap().table());
}

#[test]
fn the_roof_is_not_known_and_the_fingerprint_is_the_texts() {
    let gated = target("scale_and_gate");
    assert_eq!((gated.traffic.total_bytes(), gated.traffic.exact), (0, false));
    let other = |change: &dyn Fn(&mut kernelopt_shared::meaning::Meaning)| {
        let mut meaning = gated.meaning.clone();
        change(&mut meaning);
        kernelopt_shared::meaning::fingerprint::fingerprint(&meaning)
    };
    assert_eq!(other(&|meaning| meaning.kernel = "renamed".into()), gated.fingerprint);
    assert_ne!(other(&|meaning| meaning.program = target("softmax").meaning.program), gated.fingerprint);
    assert_ne!(other(&|meaning| meaning.arguments[4].number = Some(2.0)), gated.fingerprint);
}

#[test]
fn blocks_change_where_the_grid_says_how_it_follows() {
    let gated = target("scale_and_gate");
    let offered = search(&gated, 1024);
    let blocks: BTreeSet<i64> = offered.iter().map(|candidate| launch(candidate).constants["BLOCK"]).collect();
    assert!(blocks.contains(&1024) && blocks.contains(&2048), "the search goes where it is fast: {blocks:?}");
    for candidate in &offered {
        let (launch, block) = (launch(candidate), launch(candidate).constants["BLOCK"]);
        assert_eq!(candidate.source, gated.baseline.source);
        assert_eq!(launch.grid(&|_| None).unwrap(), [(2_097_152 / block) as u32, 1, 1]);
        assert_eq!(launch.num_stages, 3, "there is no loop to pipeline");
    }
    let distinct: BTreeSet<_> = offered.iter().map(Candidate::id).collect();
    assert_eq!(distinct.len(), offered.len());
    assert!(!distinct.contains(&gated.baseline.id()));
}

#[test]
fn blocks_change_where_the_authors_configurations_share_one_grid() {
    let softmax = target("softmax_rows");
    let offered = search(&softmax, 4096);
    assert!(offered.iter().all(|candidate| launch(candidate).grid(&|_| None).unwrap() == [512, 1, 1]));
    let found = |block: i64, warps: u32| offered.iter().any(|c| launch(c).constants["BLOCK"] == block && launch(c).num_warps == warps);
    assert!(found(4096, 8), "the author's other configuration");
    assert!(found(2048, 8) && found(8192, 16));
    let stages: BTreeSet<u32> = offered.iter().map(|candidate| launch(candidate).num_stages).collect();
    assert!(stages.len() > 2, "there are loops: {stages:?}");
}

#[test]
fn blocks_stay_where_the_grid_is_a_number() {
    let mut gated = target("scale_and_gate");
    gated.baseline.launch.as_mut().unwrap().grid[0] = "32768".parse().unwrap();
    let offered = search(&gated, 1024);
    assert!((2..8).contains(&offered.len()), "{}", offered.len());
    assert!(offered.iter().all(|candidate| launch(candidate).constants["BLOCK"] == 64));
}

#[test]
fn configurations_with_grids_of_their_own_are_all_that_there_is() {
    let mut softmax = target("softmax_rows");
    softmax.baseline.source = softmax.baseline.source.replace(
        "'python': ['512', '1', '1'], 'cpp': ['512L', '1L', '1L'], 'python_slow': ['512', '1', '1']}]",
        "'python': ['128', '1', '1']}]",
    );
    let offered = search(&softmax, 4096);
    let pairs: BTreeSet<(i64, u32)> =
        offered.iter().map(|c| (launch(c).constants["BLOCK"], launch(c).grid(&|_| None).unwrap()[0])).collect();
    assert_eq!(pairs, BTreeSet::from([(1024, 512), (4096, 128)]));
}

#[test]
fn the_authors_text_stands_in_the_file_with_another_launch() {
    let file = ModelFile::parse(&bundle().text("output_code_0.py").unwrap()).unwrap();
    for name in ["scale_and_gate", "softmax_rows"] {
        let target = target(name);
        for candidate in search(&target, 1024) {
            let [text] = <[String; 1]>::try_from(render(&candidate, &target).unwrap()).expect("one launch");
            let body = |text: &str| text[text.find("@triton.jit").unwrap()..].to_owned();
            assert_eq!(body(&text), body(&target.baseline.source), "the function is the author's");
            let written = file.write(&[(target.kernel.clone(), text.clone())].into()).unwrap();
            assert_eq!(written.lines().count(), file.text().lines().count());
            let again = UserKernel::read(&text).unwrap();
            let [config] = again.configurations.as_slice() else { panic!("one configuration: {text}") };
            assert_eq!((config.num_warps, config.num_stages), (launch(&candidate).num_warps, launch(&candidate).num_stages));
            let block = launch(&candidate).constants["BLOCK"];
            assert_eq!(config.constants.get("BLOCK").copied().unwrap_or(64), block);
            let extent = if name == "softmax_rows" { "'512'".to_owned() } else { format!("'(-1 * (-2097152 // {block}))'") };
            let is_passed = name == "scale_and_gate" && block == 64;
            assert_eq!(text.contains("'fixed_grid': ['_grid_0', '_grid_1', '_grid_2']"), is_passed, "{text}");
            assert!(is_passed || text.contains(&format!("'grid_type': 'FixedGrid', 'fixed_grid': [{extent}, '1', '1']")), "{text}");
            assert!(!text.contains("precomputed_grids"));
        }
    }
}

#[test]
fn other_text_and_unknown_grids_are_refused() {
    let gated = target("scale_and_gate");
    let mut candidate = search(&gated, 64).remove(0);
    candidate.source.push('\n');
    assert_eq!(render(&candidate, &gated), Err(TritonError::AuthorsText));
    candidate.source.pop();
    candidate.launch.as_mut().unwrap().grid[0] = "7".parse().unwrap();
    assert!(matches!(render(&candidate, &gated), Err(TritonError::NotUnderstood(_))));
    let softmax = target("softmax_rows");
    let text = softmax.baseline.source.replace("'extra_launcher_args': []", "'extra_launcher_args': ['_launcher_s0']");
    let (kernel, launch) = (UserKernel::read(&text).unwrap(), softmax.baseline.launch.as_ref().unwrap());
    assert!(matches!(kernel.with_launch(&text, launch, launch), Err(TritonError::NotUnderstood(_))), "a grid of sizes that may change");
    for source in
        ["", "@triton.jit\ndef k(x): pass", "@triton_heuristics.user_autotune(configs=3, inductor_meta={}, triton_meta={})\ndef k(x): pass"]
    {
        assert!(UserKernel::read(source).is_err(), "{source:?}");
    }
}
