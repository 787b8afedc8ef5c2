//! Inductor's own code behind Inductor's own command, with torch's libraries. Needs torch:
//! `KERNELOPT_TORCH=.../site-packages/torch cargo test -p kernelopt-gpu-agent --test cpu_torch -- --ignored`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cpu_bench;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use cpu_bench::*;
use kernelopt_gpu_agent::cpu::arena::Arena;
use kernelopt_gpu_agent::cpu::build::{BuildLimits, Builder, BuilderOptions, Toolchain, screen};
use kernelopt_gpu_agent::cpu::runner::{ArgumentPlan, Plan, Runner, Zygote, ZygoteOptions};
use kernelopt_shared::meaning::{Argument, Role};

/// As `torch._inductor.cpp_builder.CppBuilder` prints it (torch 2.11.0), with its libraries, for a processor with AVX2.
const FLAGS: &str = "-D TORCH_INDUCTOR_CPP_WRAPPER -D STANDALONE_TORCH_HEADER -D C10_USING_CUSTOM_GENERATED_MACROS -D CPU_CAPABILITY_AVX2 -O3 -DNDEBUG \
    -fno-trapping-math -funsafe-math-optimizations -ffinite-math-only -fno-signed-zeros -fno-math-errno -fno-finite-math-only \
    -fno-unsafe-math-optimizations -ffp-contract=off -fexcess-precision=fast -fno-tree-loop-vectorize -march=native -shared -fPIC -Wall -std=c++17 \
    -Wno-unused-variable -Wno-unknown-pragmas -pedantic -fopenmp -mavx2 -mfma -mf16c -ltorch -ltorch_cpu -ltorch_python -lgomp";

fn torch() -> PathBuf {
    std::env::var_os("KERNELOPT_TORCH").map(PathBuf::from).expect("KERNELOPT_TORCH names torch's folder")
}

fn toolchain() -> Toolchain {
    let include = torch().join("include");
    let words = ["g++".into(), "{source}".into()].into_iter().chain(FLAGS.split_ascii_whitespace().map(String::from));
    let words = words.chain([format!("-I{}", include.display()), format!("-I{}/torch/csrc/api/include", include.display())]);
    Toolchain::from_template(&words.chain(["-o".into(), "{output}".into()]).collect::<Vec<_>>()).unwrap()
}

fn torch_builder() -> Builder {
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("torch-builds");
    let options =
        BuilderOptions { reexec: reexec(), toolchain: toolchain(), cache, limits: BuildLimits::default(), permit_weak_sandbox: false };
    Builder::new(options).unwrap()
}

fn torch_zygote() -> Arc<Zygote> {
    let preload = ["libgomp.so.1", "libtorch_cpu.so"].map(|name| torch().join("lib").join(name)).to_vec();
    Arc::new(Zygote::new(ZygoteOptions { reexec: reexec(), preload, threads: 2, permit_weak_sandbox: false }))
}

fn baseline(target: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/targets").join(target);
    fs::read_to_string(folder.join("baseline.cpp")).unwrap()
}

#[test]
#[ignore = "needs torch: set KERNELOPT_TORCH"]
fn inductors_softmax_runs_with_torchs_vector_functions() {
    let builder = torch_builder();
    let began = Instant::now();
    let built = builder.build(&baseline("softmax"), &softmax_signature()).unwrap();
    println!("built: cached {}, {:?} (with the prefix header {:?})", built.cached, built.elapsed, began.elapsed());
    let zygote = torch_zygote();
    let mut arena = arena(4);
    let mut runner = Runner::start(&zygote, &plan(built.library.clone()), &arena).unwrap();
    for _ in 0..20 {
        (0..4).for_each(|slot| refill(&mut arena, slot));
        runner.run(&[0, 1, 2, 3], PATIENCE).unwrap();
        assert!((0..4).all(|slot| error(&arena, slot) < TOLERANCE));
        assert_eq!(arena.check_guards(0..4), Ok(()));
    }
    // Without torch's library, the same kernel cannot be loaded, and the loader says what is missing.
    let bare = Runner::start(&cpu_bench::zygote(2), &plan(built.library), &arena).unwrap_err();
    assert!(bare.to_string().contains("Sleef_"), "{bare}");
}

#[test]
#[ignore = "needs torch: set KERNELOPT_TORCH"]
fn inductors_layer_norm_runs() {
    let pointer = |name: &str, c_type: &str, role| argument(name, c_type, role);
    let signature: Vec<Argument> = (0..3)
        .map(|i| pointer(&format!("in_ptr{i}"), "const float*", Role::In))
        .chain((0..3).map(|i| pointer(&format!("out_ptr{i}"), "float*", Role::Out)))
        .collect();
    let library = torch_builder().build(&baseline("layer_norm"), &signature).unwrap().library;
    let mut arena = Arena::new(1, &[65536, 1024, 1024, 256, 256, 65536], 16 << 20).unwrap();
    for storage in 0..3 {
        for (index, bytes) in arena.bytes_mut(0, storage).chunks_exact_mut(4).enumerate() {
            bytes.copy_from_slice(&input(storage as u32, index).to_le_bytes());
        }
    }
    let arguments = (0..6).map(|storage| ArgumentPlan::Pointer { storage, offset_bytes: 0 }).collect();
    let plan = Plan { library, arguments, flush_denormal: false, limits: limits() };
    Runner::start(&torch_zygote(), &plan, &arena).unwrap().run(&[0], PATIENCE).unwrap();
    let x: Vec<f64> = (0..256).map(|column| f64::from(input(0, column))).collect();
    let mean = x.iter().sum::<f64>() / 256.0;
    let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 256.0;
    for (column, bytes) in arena.bytes(0, 5)[..1024].chunks_exact(4).enumerate() {
        let found = f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
        let truth = (x[column] - mean) / (variance + 1e-5).sqrt() * f64::from(input(1, column)) + f64::from(input(2, column));
        assert!((found - truth).abs() < TOLERANCE, "column {column}: {found} against {truth}");
    }
}

#[test]
#[ignore = "needs sources: set KERNELOPT_SOURCES to a folder of C++ kernels"]
fn a_folder_of_kernels_passes_the_rules() {
    let folder = std::env::var_os("KERNELOPT_SOURCES").expect("KERNELOPT_SOURCES names a folder");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "cpp") {
            assert_eq!(screen(&fs::read_to_string(&path).unwrap()), Ok(()), "{}", path.display());
            count += 1;
        }
    }
    println!("{count} kernels pass");
}
