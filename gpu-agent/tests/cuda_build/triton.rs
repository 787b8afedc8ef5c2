//! Triton: the compiler's own kernels, their twins, the cache, several threads.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kernelopt_gpu_agent::cuda::build::image::Image;
use kernelopt_gpu_agent::cuda::build::{BuildError, BuildLimits, Kind, Limiter, Order, occupancy};
use kernelopt_gpu_agent::service::Canary;

use crate::bench::*;

#[test]
fn a_captured_kernel_and_its_twins_are_built() {
    let Some((_folder, builder)) = builder(1, BuildLimits::default()) else { return };
    let source = captured("cuda-h200/rms", "triton_red");
    let launch = launch(entry_of(&source), &[("XBLOCK", 1), ("R0_BLOCK", 2048)]);
    let signature = [("in_ptr0", "*bf16"), ("in_ptr1", "*bf16"), ("out_ptr1", "*bf16"), ("xnumel", "i32"), ("r0_numel", "i32")];
    let order = triton(&source, &signature, &launch);
    let built = builder.build(&order).unwrap();
    let binary = &built.binary;
    assert_eq!((binary.entry.as_str(), binary.threads, binary.hidden_pointers), (launch.entry.as_str(), 128, 2));
    assert!(binary.registers > 8 && binary.spill_bytes == 0 && !built.cached && built.twin.is_none());
    assert_eq!(Image::read(&binary.cubin).unwrap().kernels[&binary.entry].parameters, [8, 8, 8, 4, 4, 8, 8]);
    let found = occupancy(binary, 90).unwrap();
    assert!(found.blocks_per_sm >= 1 && found.warps > 0.0 && found.limiter != Limiter::Shared, "{found:?}");

    for rounded in [false, true] {
        let twin = builder.build(&Order { kind: Kind::Twin { rounded }, ..order }).unwrap();
        let facts = twin.twin.unwrap();
        assert_eq!((facts.widened, facts.inouts, facts.roundings), (vec!["out_ptr1".to_owned()], vec![], 0));
        assert_eq!(facts.constants["XBLOCK"], 1);
        assert_eq!(Image::read(&twin.binary.cubin).unwrap().kernels[&binary.entry].parameters.len(), 7);
    }
}

/// Two entries of one source, each with arguments of its own: one cubin for each.
#[test]
fn every_entry_of_a_source_is_built() {
    let Some((_folder, builder)) = builder(1, BuildLimits::default()) else { return };
    let source = include_str!("../../../tests/fixtures/gpu/honest/two_launches.py");
    let constants = [("BLOCK", 1024), ("PARTS", 2)];
    let launches = [launch("partial", &constants), launch("combine", &constants)];
    let signatures: [&[(&str, &str)]; 2] = [
        &[("in_ptr0", "*fp32"), ("maxima", "*fp32"), ("sums", "*fp32"), ("r0_numel", "i32")],
        &[("in_ptr0", "*fp32"), ("out_ptr0", "*fp32"), ("maxima", "*fp32"), ("sums", "*fp32"), ("r0_numel", "i32")],
    ];
    for (launch, signature) in launches.iter().zip(signatures) {
        let binary = builder.build(&triton(source, signature, launch)).unwrap().binary;
        let image = Image::read(&binary.cubin).unwrap();
        assert_eq!((binary.entry.as_str(), image.kernels.len()), (launch.entry.as_str(), 1));
        assert_eq!(image.kernels[&binary.entry].parameters.len(), signature.len() + 2);
    }
    let other = builder.build(&triton(source, signatures[0], &launches[1]));
    assert!(matches!(&other, Err(BuildError::Compiler { reason, .. }) if reason.contains("takes 5 arguments")), "{other:?}");
}

#[test]
fn a_kernel_that_reads_back_its_rounded_store_has_two_twins() {
    let Some((_folder, builder)) = builder(1, BuildLimits::default()) else { return };
    let source = captured("cuda-h200/llama", "mean_mul_pow_rsqrt_15");
    let head = source.split("'signature': {").nth(1).unwrap().split('}').next().unwrap();
    let words: Vec<&str> = head.split('\'').collect();
    let signature: Vec<(&str, &str)> = words.chunks(4).filter(|c| c.len() == 4 && c[3] != "constexpr").map(|c| (c[1], c[3])).collect();
    let launch = launch(entry_of(&source), &[("XBLOCK", 1), ("R0_BLOCK", 1024)]);
    let twin = |rounded| builder.build(&Order { kind: Kind::Twin { rounded }, ..triton(&source, &signature, &launch) }).unwrap();
    let (exact, rounded) = (twin(false), twin(true));
    let facts = exact.twin.unwrap();
    assert!(facts.roundings > 0, "{facts:?}");
    assert!(facts.inouts.iter().all(|name| facts.widened.contains(name)), "{facts:?}");
    assert!(exact.binary.cubin != rounded.binary.cubin);
}

#[test]
fn the_canary_is_built_with_its_twin() {
    let Some((_folder, builder)) = builder(1, BuildLimits::default()) else { return };
    let canary = Canary::cuda().unwrap();
    let (target, wrong) = (&canary.target, &canary.wrong);
    let signature: Vec<(&str, &str)> = target.meaning.arguments.iter().map(|a| (a.name.as_str(), a.c_type.as_str())).collect();
    let order = triton(&target.baseline.source, &signature, target.baseline.launch.as_ref().unwrap());
    let right = builder.build(&order).unwrap();
    let twin = builder.build(&Order { kind: Kind::Twin { rounded: false }, ..order }).unwrap();
    assert_eq!(twin.twin.unwrap().widened, ["out_ptr0"]);
    let wrong = builder.build(&triton(&wrong.source, &signature, wrong.launch.as_ref().unwrap())).unwrap();
    assert!(wrong.binary.cubin != right.binary.cubin);
}

#[test]
fn answers_are_kept_failures_too_and_shared_between_builders() {
    let Some((folder, builder)) = builder(1, BuildLimits::default()) else { return };
    let launch = launch("copy", &[("BLOCK", 256)]);
    let order = triton(COPY, COPIES, &launch);
    let first = builder.build(&order).unwrap();
    let again = builder.build(&order).unwrap();
    assert!(!first.cached && again.cached);
    assert!(first.binary == again.binary);
    let wrong = COPY.replace("tl.load(source", "tl.load(sauce");
    let failed = || builder.build(&triton(&wrong, COPIES, &launch)).unwrap_err().to_string();
    let kept = || files_in(&folder.path().join("cache")).len();
    let before = kept();
    assert_eq!(failed(), failed());
    assert_eq!(kept(), before + 1, "the failure is kept");

    let other =
        kernelopt_gpu_agent::cuda::build::Builder::new(options(builder.options().python.clone(), folder.path(), 1, BuildLimits::default()));
    assert!(other.unwrap().build(&order).unwrap().cached);
    files_in(&folder.path().join("cache")).iter().for_each(|file| fs::write(file, "torn").unwrap());
    let anew = builder.build(&order).unwrap();
    assert!(!anew.cached && anew.binary == first.binary, "the same source gives the same bytes");
}

/// What another build may have again is asked for again: a limit that was hit, a process that was killed, no room on a disk.
#[test]
fn what_ran_out_is_not_kept() {
    let limits = BuildLimits { wall: Duration::from_secs(40), file_bytes: 64 << 10, ..BuildLimits::default() };
    let Some((folder, builder)) = builder(1, limits) else { return };
    let kept = || files_in(&folder.path().join("cache")).len();
    let launch = launch("copy", &[("BLOCK", 256)]);
    let store = "    tl.store(target";
    // More than a file may hold: to the compiler, and to its assembler, a disk that is full.
    let long = COPY.replace(store, &format!("{}{store}", "    value = value * 1.5 + 0.25\n".repeat(1000)));
    let large = format!("x = [0] * (1 << 40)\n{COPY}");
    for source in [&long, &large] {
        for _ in 0..2 {
            let error = builder.build(&triton(source, COPIES, &launch)).unwrap_err();
            assert!(matches!(&error, BuildError::Stopped(_)), "{error}");
        }
    }
    assert_eq!(kept(), 0);
    assert!(matches!(builder.build(&triton("def copy(:", COPIES, &launch)), Err(BuildError::Refused { .. })));
    assert_eq!(kept(), 1);
}

#[test]
fn a_build_that_cannot_be_kept_serves_all_the_same() {
    let Some((folder, builder)) = builder(1, BuildLimits::default()) else { return };
    let launch = launch("copy", &[("BLOCK", 256)]);
    let cache = folder.path().join("cache");
    fs::remove_dir_all(&cache).unwrap();
    fs::write(&cache, "no folder").unwrap();
    assert!(!builder.build(&triton(COPY, COPIES, &launch)).unwrap().cached);
    assert!(!builder.build(&triton(COPY, COPIES, &launch)).unwrap().cached);
}

/// Every file of a cache.
fn files_in(cache: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(cache).unwrap().flatten();
    folders.flat_map(|folder| fs::read_dir(folder.path()).unwrap().flatten()).map(|file| file.path()).collect()
}

#[test]
fn errors_have_a_line_and_a_reason() {
    let Some((_folder, builder)) = builder(1, BuildLimits::default()) else { return };
    let block = launch("copy", &[("BLOCK", 256)]);
    let fails = |source: &str| builder.build(&triton(source, COPIES, &block)).unwrap_err();
    let type_error = fails(&COPY.replace("value = tl.load(source + index, index < n)", "value = tl.arange(0, 3)"));
    assert!(matches!(&type_error, BuildError::Compiler { line: Some(8), reason } if reason.contains("power of 2")), "{type_error}");
    assert_eq!(type_error.verdict().unwrap().kind(), "build_failed");
    let import = fails(&format!("import os\n{COPY}"));
    assert!(matches!(&import, BuildError::Refused { line: Some(1), reason } if reason.contains("os")), "{import}");
    assert_eq!(import.verdict().unwrap().kind(), "rejected");
    assert!(matches!(fails("def copy(:"), BuildError::Refused { line: Some(1), .. }));
    assert!(fails("import triton").to_string().contains("no @triton.jit function copy"));
    assert!(fails(&COPY.replace(", n, BLOCK", ", n, m, BLOCK")).to_string().contains("takes 4 arguments"));
    let unset = launch("copy", &[]);
    assert!(builder.build(&triton(COPY, COPIES, &unset)).unwrap_err().to_string().contains("BLOCK has no value"));
    let huge = launch("copy", &[("BLOCK", 1 << 22)]);
    assert_eq!(builder.build(&triton(COPY, COPIES, &huge)).unwrap_err().verdict().unwrap().kind(), "build_failed");
}

#[test]
fn arguments_that_a_constant_fixes_are_none_of_the_binary() {
    let Some((_folder, builder)) = builder(1, BuildLimits::default()) else { return };
    let source = COPY.replace("target, n,", "target, xnumel,").replace("< n", "< xnumel");
    let fixed = launch("copy", &[("BLOCK", 256), ("xnumel", 1)]);
    let built = builder.build(&triton(&source, COPIES, &fixed)).unwrap();
    assert_eq!(Image::read(&built.binary.cubin).unwrap().kernels["copy"].parameters, [8, 8, 8, 8]);
}

/// As the compiler does with a size of one.
#[test]
fn an_argument_that_the_compiler_fixed_is_one_that_the_launch_must_fix() {
    let Some((_folder, builder)) = builder(1, BuildLimits::default()) else { return };
    let source = COPY.replace("target, n,", "target, xnumel,").replace("< n", "< xnumel");
    let signature = [COPIES[0], COPIES[1], ("xnumel", "constexpr")];
    let error = builder.build(&triton(&source, &signature, &launch("copy", &[("BLOCK", 256)]))).unwrap_err();
    assert!(matches!(&error, BuildError::Compiler { .. }), "{error}");
    let fixed = launch("copy", &[("BLOCK", 256), ("xnumel", 1)]);
    let built = builder.build(&triton(&source, &signature, &fixed)).unwrap();
    assert_eq!(Image::read(&built.binary.cubin).unwrap().kernels["copy"].parameters, [8, 8, 8, 8]);
}

#[test]
fn threads_build_side_by_side_and_one_order_is_built_once() {
    let Some((_folder, builder)) = builder(2, BuildLimits::default()) else { return };
    builder.warm_up().unwrap();
    let began = Instant::now();
    let launches: Vec<_> = (5..9).map(|bits| launch("copy", &[("BLOCK", 1 << bits)])).collect();
    let built: Vec<_> = std::thread::scope(|scope| {
        let orders = launches.iter().flat_map(|launch| [launch, launch]);
        let builds: Vec<_> = orders.map(|launch| scope.spawn(|| builder.build(&triton(COPY, COPIES, launch)).unwrap())).collect();
        builds.into_iter().map(|build| build.join().unwrap()).collect()
    });
    assert_eq!(built.iter().filter(|built| !built.cached).count(), launches.len());
    println!("{} warm builds with 2 workers took {:?}", launches.len(), began.elapsed());
}
