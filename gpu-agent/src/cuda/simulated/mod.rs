//! A device in host memory, for machines without a GPU and for faults that a GPU would not survive.
//!
//! Its machine code is a [`Program`]: a meaning, run through [`crate::truth`], and a list of faults. Its clock is virtual: a launch takes
//! the time that its program names. It passes the conformance suite that the driver's device passes.

mod kernel;
mod memory;
mod program;

use std::collections::HashMap;

use super::device::{
    Allowance, Binary, Block, Compared, Comparison, Device, DeviceError, DeviceFacts, DeviceState, Done, Draw, Elements, KernelId, Run,
    Span, Step,
};
use super::ops::launch::{ERROR_LANES, has_room, same};
use super::ops::random::{normal, stream_word};
use super::ops::reference::{self, Truths};
use crate::referee::Errors;
use kernel::Kernel;
use memory::Memory;
pub use program::{Fault, Program, Stores};

/// Copy bandwidth from and to the simulated cache, in bytes per nanosecond.
const CACHE_RATE: f64 = 8000.0;
/// And from and to its memory.
const MEMORY_RATE: f64 = 4000.0;
/// Time that a launch takes on top, in nanoseconds.
const LAUNCH_NS: f64 = 1000.0;

/// A simulated GPU.
#[derive(Debug)]
pub struct SimDevice {
    facts: DeviceFacts,
    memory: Memory,
    kernels: HashMap<KernelId, Kernel>,
    next: u64,
    /// Position in the stream of clock noise.
    ticks: u64,
    seed: u64,
    /// Why the context is lost.
    lost: Option<String>,
}

impl SimDevice {
    /// A device with 1 GiB of memory; `seed` is that of its clock's noise.
    pub fn new(seed: u64) -> Self {
        let facts = DeviceFacts {
            name: "simulated".into(),
            uuid: format!("SIM-{seed:016x}"),
            architecture: 90,
            multiprocessors: 132,
            l2_bytes: 1 << 20,
            memory_bytes: 1 << 30,
            shared_bytes: 227 << 10,
            driver: env!("CARGO_PKG_VERSION").into(),
        };
        let memory = Memory::new(facts.memory_bytes);
        Self { facts, memory, kernels: HashMap::new(), next: 0, ticks: 0, seed, lost: None }
    }

    /// An error where the context is lost, as a driver answers from then on.
    fn alive(&self) -> Done<()> {
        self.lost.clone().map_or(Ok(()), |why| Err(DeviceError::Fault(why)))
    }

    /// Takes a step, and gives its time in nanoseconds.
    fn step(&mut self, step: &Step) -> Done<f64> {
        self.alive()?;
        match step {
            Step::Launch(run) => self.start(run),
            Step::Zero(span) => {
                self.memory.own_mut(*span)?.fill(0);
                Ok(LAUNCH_NS + span.bytes as f64 / MEMORY_RATE)
            }
        }
    }

    fn start(&mut self, run: &Run) -> Done<f64> {
        let noise = normal(stream_word(self.seed, self.ticks));
        self.ticks += 1;
        let kernel = self.kernels.get_mut(&run.kernel).ok_or_else(unknown)?;
        if run.grid.contains(&0) {
            return Err(DeviceError::Refused(format!("a grid of {:?}", run.grid)));
        }
        let result = kernel.run(&run.arguments, &mut self.memory);
        if let Err(DeviceError::Fault(why)) = &result {
            self.lost = Some(why.clone());
        }
        result.map(|()| kernel.time_ns(noise))
    }

    fn truths(&self, exact: Span, rounded: Option<Span>, poison: u64) -> Done<Truths<'_>> {
        let rounded = rounded.map(|span| self.memory.own(span)).transpose()?;
        Ok(Truths { exact: self.memory.own(exact)?, rounded, poison })
    }
}

fn unknown() -> DeviceError {
    DeviceError::Device("no such kernel is loaded".into())
}

impl Device for SimDevice {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn state(&mut self) -> DeviceState {
        DeviceState { sm_mhz: 1980, memory_mhz: 3201, power_mw: 100_000, celsius: 40, throttle: 0 }
    }

    fn allocate(&mut self, bytes: u64) -> Done<Span> {
        self.alive()?;
        self.memory.allocate(bytes)
    }

    fn free(&mut self, memory: Span) -> Done<()> {
        self.alive()?;
        self.memory.free(memory)
    }

    fn allocated_bytes(&self) -> u64 {
        self.memory.allocated_bytes()
    }

    fn upload(&mut self, to: Span, bytes: &[u8]) -> Done<()> {
        self.alive()?;
        same(to.bytes, bytes.len() as u64)?;
        self.memory.own_mut(to)?.copy_from_slice(bytes);
        Ok(())
    }

    fn download(&mut self, from: Span, bytes: &mut [u8]) -> Done<()> {
        self.alive()?;
        same(from.bytes, bytes.len() as u64)?;
        bytes.copy_from_slice(self.memory.own(from)?);
        Ok(())
    }

    fn copy(&mut self, from: Span, to: Span) -> Done<()> {
        self.alive()?;
        same(from.bytes, to.bytes)?;
        let bytes = self.memory.own(from)?.to_vec();
        self.memory.own_mut(to)?.copy_from_slice(&bytes);
        Ok(())
    }

    fn load(&mut self, binary: &Binary) -> Done<KernelId> {
        self.alive()?;
        binary.fits(&self.facts)?;
        let kernel = Kernel::load(binary)?;
        let id = KernelId(self.next);
        self.next += 1;
        self.kernels.insert(id, kernel);
        Ok(id)
    }

    fn unload(&mut self, kernel: KernelId) -> Done<()> {
        self.alive()?;
        self.kernels.remove(&kernel).map(drop).ok_or_else(unknown)
    }

    fn run(&mut self, steps: &[Step]) -> Done<()> {
        steps.iter().try_for_each(|step| self.step(step).map(drop))
    }

    fn time(&mut self, blocks: &[Block]) -> Done<Vec<f64>> {
        let block = |block: &Block| block.steps.iter().map(|step| self.step(step)).sum();
        blocks.iter().map(block).collect()
    }

    fn sweep(&mut self, from: Span, to: Option<Span>, passes: u32) -> Done<f64> {
        self.alive()?;
        let length = self.memory.own(from)?.len();
        if let Some(to) = to {
            same(from.bytes, to.bytes)?;
            self.memory.own(to)?;
        }
        let bytes = (length * if to.is_some() { 2 } else { 1 }) as f64;
        let rate = if bytes <= self.facts.l2_bytes as f64 { CACHE_RATE } else { MEMORY_RATE };
        if let Some(to) = to {
            self.copy(from, to)?;
        }
        Ok(LAUNCH_NS + f64::from(passes) * bytes / rate)
    }

    fn draw(&mut self, to: Elements, draw: &Draw<'_>) -> Done<()> {
        self.alive()?;
        has_room(&draw.captured.quantiles)?;
        reference::draw(self.memory.own_mut(to.span)?, to.dtype, draw);
        Ok(())
    }

    fn poison(&mut self, to: Span, seed: u64) -> Done<()> {
        self.alive()?;
        reference::poison(self.memory.own_mut(to)?, seed);
        Ok(())
    }

    fn first_unpoisoned(&mut self, span: Span, seed: u64) -> Done<Option<u64>> {
        self.alive()?;
        Ok(reference::first_unpoisoned(self.memory.own(span)?, seed))
    }

    fn digest(&mut self, span: Span) -> Done<u64> {
        self.alive()?;
        Ok(reference::digest(self.memory.own(span)?))
    }

    fn widen(&mut self, from: Elements, to: Span) -> Done<()> {
        self.alive()?;
        same(from.count() * 8, to.bytes)?;
        let narrow = self.memory.own(from.span)?.to_vec();
        reference::widen(&narrow, from.dtype, self.memory.own_mut(to)?);
        Ok(())
    }

    fn errors(&mut self, values: Elements, truth: Span, rounded: Option<Span>, truth_poison: u64) -> Done<Errors> {
        self.alive()?;
        same(values.count() * 8, truth.bytes)?;
        rounded.map_or(Ok(()), |rounded| same(truth.bytes, rounded.bytes))?;
        let truths = self.truths(truth, rounded, truth_poison)?;
        Ok(reference::errors(self.memory.own(values.span)?, values.dtype, &truths, ERROR_LANES))
    }

    fn compare(&mut self, what: &Compared, allowance: &Allowance) -> Done<Comparison> {
        self.alive()?;
        same(what.values.span.bytes, what.baseline.span.bytes)?;
        same(what.values.count() * 8, what.truth.bytes)?;
        what.rounded.map_or(Ok(()), |rounded| same(what.truth.bytes, rounded.bytes))?;
        let truths = self.truths(what.truth, what.rounded, what.truth_poison)?;
        let [values, baseline] = [what.values, what.baseline].map(|elements| self.memory.own(elements.span));
        Ok(reference::compare(values?, what.values_poison, baseline?, what.values.dtype, &truths, allowance))
    }

    fn first_difference(&mut self, a: Elements, b: Elements) -> Done<Option<u64>> {
        self.alive()?;
        same(a.span.bytes, b.span.bytes)?;
        let offset = reference::first_difference(self.memory.own(a.span)?, self.memory.own(b.span)?);
        Ok(offset.map(|offset| offset / a.dtype.size_bytes() as u64))
    }
}
