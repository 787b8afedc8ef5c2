//! Figures of the runner on this machine: `cargo run --release -p kernelopt-gpu-agent --example runner_figures -- RUNNER [PRELOAD...]`
//! where RUNNER is the `kernelopt-runner` executable and PRELOAD are libraries such as torch's `libgomp.so.1` and `libtorch_cpu.so`.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernelopt_gpu_agent::cpu::arena::Arena;
use kernelopt_gpu_agent::cpu::build::{BuildLimits, Builder, BuilderOptions, Toolchain};
use kernelopt_gpu_agent::cpu::child::Reexec;
use kernelopt_gpu_agent::cpu::runner::{ArgumentPlan, Limits, Plan, Runner, Zygote, ZygoteOptions};
use kernelopt_shared::meaning::{Argument, Role};

const SOURCE: &str =
    "extern \"C\" void kernel(float* out) {\n#pragma omp parallel num_threads(2)\n{ volatile int busy = 0; (void)busy; }\nout[0] += 1; }";
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let program = arguments.next().ok_or("usage: runner_figures RUNNER [PRELOAD...]")?;
    let reexec = Reexec { program, words: Vec::new() };
    let cache = std::env::temp_dir().join("kernelopt-runner-figures");
    let options = BuilderOptions {
        reexec: reexec.clone(),
        toolchain: Toolchain::plain()?,
        cache,
        limits: BuildLimits::default(),
        permit_weak_sandbox: false,
    };
    let out = Argument { name: "out".into(), c_type: "float*".into(), role: Role::Inout, buffers: Vec::new(), value: None, number: None };
    let library = Builder::new(options)?.build(SOURCE, &[out])?.library;
    let zygote = Arc::new(Zygote::new(ZygoteOptions { reexec, preload: arguments.collect(), threads: 2, permit_weak_sandbox: false }));
    let began = Instant::now();
    zygote.warm_up()?;
    println!("zygote started in {:?}", began.elapsed());

    let arena = Arena::new(8, &[1 << 20], 1 << 30)?;
    let plan = Plan {
        library,
        arguments: vec![ArgumentPlan::Pointer { storage: 0, offset_bytes: 0 }],
        flush_denormal: false,
        limits: Limits::default(),
    };
    let starts = sample(30, || {
        let began = Instant::now();
        let runner = Runner::start(&zygote, &plan, &arena)?;
        let started = began.elapsed();
        drop(runner);
        Ok((started, began.elapsed() - started))
    })?;
    report("runner start", starts.iter().map(|pair| pair.0));
    report("runner end", starts.iter().map(|pair| pair.1));

    let mut runner = Runner::start(&zygote, &plan, &arena)?;
    let trips = sample(300, || {
        let began = Instant::now();
        let elapsed = runner.run(&[], PATIENCE)?;
        Ok((elapsed, began.elapsed()))
    })?;
    report("empty command, by the clock", trips.iter().map(|pair| pair.0));
    report("empty command, with resume, ping and stop", trips.iter().map(|pair| pair.1));
    for launches in [1usize, 10, 100, 1000, 10_000] {
        let slots: Vec<u32> = (0..launches).map(|i| (i % 8) as u32).collect();
        let warm = &slots[..launches.min(4)];
        let times = sample(50, || Ok(runner.measure(warm, &slots, PATIENCE)?))?;
        report(&format!("{launches} launches of an empty parallel region, per launch"), times.iter().map(|time| *time / launches as u32));
    }
    Ok(())
}

fn sample<T>(count: usize, mut take: impl FnMut() -> Result<T, Box<dyn Error>>) -> Result<Vec<T>, Box<dyn Error>> {
    (0..count).map(|_| take()).collect()
}

fn report(what: &str, times: impl Iterator<Item = Duration>) {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{what}: median {:?}, 10% {:?}, 90% {:?}", at(0.5), at(0.1), at(0.9));
}
