//! A loaded program, and what a launch of it does to memory.

use std::collections::HashMap;
use std::time::Duration;

use half::bf16;
use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::Role;
use kernelopt_shared::meaning::storage::ArgumentPlace;

use super::memory::{Memory, Unmapped};
use super::program::{Fault, Program, Stores};
use crate::cuda::device::{Binary, DeviceError, Done, Elements, Span, Value};
use crate::cuda::ops::element;
use crate::truth::{Output, Rounding, Truth, TruthError, Values};

/// An address that nobody has.
const NOWHERE: u64 = 8;

/// A program ready to be launched.
#[derive(Debug)]
pub(super) struct Kernel {
    program: Program,
    truth: Truth,
    launches: u64,
    first: Option<Vec<Output>>,
    /// Arguments of the launch before.
    last: Vec<Value>,
    /// Results by address and size of the inputs.
    by_input: HashMap<Vec<(u64, u64)>, Vec<Output>>,
}

/// One pointer of a launch.
#[derive(Clone, Copy)]
struct Pointer {
    argument: usize,
    storage: usize,
    offset_bytes: usize,
    elements: Elements,
    /// Type in the meaning; the memory's is wider where a twin stores.
    dtype: Dtype,
    role: Role,
}

impl Kernel {
    /// Compiles a binary's program.
    pub(super) fn load(binary: &Binary) -> Done<Self> {
        let program = Program::read(&binary.cubin)?;
        if program.meaning.kernel != binary.entry {
            return Err(DeviceError::Image(format!("it has no kernel {:?}", binary.entry)));
        }
        let truth = Truth::compile(&program.meaning).map_err(|error| DeviceError::Image(error.to_string()))?;
        Ok(Self { program, truth, launches: 0, first: None, last: Vec::new(), by_input: HashMap::new() })
    }

    /// Time of the next launch in nanoseconds, for a `normal` random number.
    pub(super) fn time_ns(&self, normal: f64) -> f64 {
        self.program.time_ns * (1.0 + self.program.noise * normal).max(0.1)
    }

    /// Runs once. A fault is one of the device: its context is lost.
    pub(super) fn run(&mut self, arguments: &[Value], memory: &mut Memory) -> Done<()> {
        let pointers = self.pointers(arguments)?;
        self.launches += 1;
        self.before(&pointers, memory).map_err(illegal)?;
        let storages = self.read(&pointers, memory).map_err(illegal)?;
        let mut outputs = self.compute(&storages)?;
        for fault in self.program.faults.clone() {
            self.spoil(fault, &mut outputs);
            self.remember(fault, arguments, &pointers, &mut outputs);
        }
        for output in &outputs {
            if let Some(pointer) = pointers.iter().find(|pointer| pointer.argument == output.argument) {
                self.store(*pointer, output, memory).map_err(illegal)?;
            }
        }
        self.after(&pointers, memory).map_err(illegal)
    }

    /// The launch's pointers; refused where its arguments are not the meaning's.
    fn pointers(&self, arguments: &[Value]) -> Done<Vec<Pointer>> {
        let expected = &self.truth.layout().arguments;
        if arguments.len() != expected.len() {
            return Err(DeviceError::Refused(format!("{} arguments for {} parameters", arguments.len(), expected.len())));
        }
        let mut pointers = Vec::new();
        for (argument, (value, place)) in arguments.iter().zip(expected).enumerate() {
            match (*value, *place) {
                (Value::Pointer(address), ArgumentPlace::Pointer { storage, offset_bytes, dtype, elements }) => {
                    let role = self.program.meaning.arguments[argument].role;
                    let wide = self.program.stores != Stores::Rounded && dtype.is_float() && role != Role::In;
                    let stored = if wide { Dtype::Float64 } else { dtype };
                    let span = Span { address, bytes: (elements * stored.size_bytes()) as u64 };
                    let elements = Elements { span, dtype: stored };
                    pointers.push(Pointer { argument, storage, offset_bytes, elements, dtype, role });
                }
                (Value::I32(_) | Value::I64(_), ArgumentPlace::Int(_)) => {}
                _ => return Err(DeviceError::Refused(format!("argument {argument} is {value:?}, which the kernel does not take there"))),
            }
        }
        Ok(pointers)
    }

    /// What the program does before it computes.
    fn before(&self, pointers: &[Pointer], memory: &mut Memory) -> Result<(), Unmapped> {
        let mut inputs = pointers.iter().filter(|pointer| pointer.role == Role::In);
        for fault in &self.program.faults {
            match fault {
                Fault::ReadsPast => inputs.try_for_each(|input| memory.read(behind(input.elements)).map(drop))?,
                Fault::IllegalAddress => memory.write(Span { address: NOWHERE, bytes: 1 })?.fill(0),
                Fault::Hangs(millis) => std::thread::sleep(Duration::from_millis(*millis)),
                _ => {}
            }
        }
        Ok(())
    }

    /// What it does afterwards, besides storing its results.
    fn after(&self, pointers: &[Pointer], memory: &mut Memory) -> Result<(), Unmapped> {
        let first = |wanted: bool| pointers.iter().find(|pointer| (pointer.role == Role::In) == wanted);
        for fault in &self.program.faults {
            let span = match fault {
                Fault::WritesPast => first(false).map(|output| behind(output.elements)),
                Fault::ChangesInput => {
                    first(true).map(|input| Span { bytes: input.elements.dtype.size_bytes() as u64, ..input.elements.span })
                }
                _ => None,
            };
            if let Some(span) = span {
                memory.write(span)?.iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        Ok(())
    }

    /// The bytes of each storage of the meaning, from where the launch's pointers point.
    fn read(&self, pointers: &[Pointer], memory: &Memory) -> Result<Vec<Vec<u8>>, Unmapped> {
        let mut storages: Vec<Vec<u8>> = self.truth.layout().storages.iter().map(|storage| vec![0; storage.bytes]).collect();
        for pointer in pointers.iter().filter(|pointer| pointer.elements.span.bytes > 0) {
            let found = memory.read(pointer.elements.span)?;
            let to = &mut storages[pointer.storage][pointer.offset_bytes..];
            if pointer.elements.dtype == pointer.dtype {
                to[..found.len()].copy_from_slice(found);
                continue;
            }
            // A twin's: the host widened what was there, so that narrowing it loses nothing.
            for i in 0..pointer.elements.count() {
                let value = element::number(pointer.elements.dtype, element::bits(found, pointer.elements.dtype, i));
                element::put(to, pointer.dtype, i, element::stored(pointer.dtype, value));
            }
        }
        Ok(storages)
    }

    fn compute(&self, storages: &[Vec<u8>]) -> Done<Vec<Output>> {
        let storages: Vec<&[u8]> = storages.iter().map(Vec::as_slice).collect();
        let rounding = if self.program.stores == Stores::WideRounding { Rounding::ArgumentStores } else { Rounding::None };
        self.truth.run(&storages, rounding).map_err(|error| match error {
            TruthError::OutOfRange { .. } => DeviceError::Fault(format!("an illegal memory access: {error}")),
            other => DeviceError::Device(other.to_string()),
        })
    }

    /// What the program does to its results.
    fn spoil(&self, fault: Fault, outputs: &mut [Output]) {
        match fault {
            Fault::Tail => outputs.iter_mut().filter_map(|output| output.written.last_mut()).for_each(|last| *last = false),
            Fault::Zero => outputs.iter_mut().for_each(zero),
            Fault::WorksFirst(times) if self.launches > times => outputs.iter_mut().for_each(zero),
            Fault::LowPrecision => outputs.iter_mut().for_each(|output| {
                if let Values::Float(values) = &mut output.values {
                    values.iter_mut().for_each(|value| *value = bf16::from_f32(*value as f32).to_f64());
                }
            }),
            _ => {}
        }
    }

    /// What it takes from launches before.
    fn remember(&mut self, fault: Fault, arguments: &[Value], pointers: &[Pointer], outputs: &mut Vec<Output>) {
        match fault {
            Fault::RemembersFirst => outputs.clone_from(self.first.get_or_insert_with(|| outputs.clone())),
            Fault::SkipsLastAddresses if self.last == arguments => outputs.clear(),
            Fault::SkipsLastAddresses => self.last = arguments.to_vec(),
            Fault::RemembersByInput => {
                let inputs = pointers.iter().filter(|pointer| pointer.role != Role::Out);
                let places = inputs.map(|input| (input.elements.span.address, input.elements.span.bytes)).collect();
                outputs.clone_from(self.by_input.entry(places).or_insert_with(|| outputs.clone()));
            }
            _ => {}
        }
    }

    fn store(&self, pointer: Pointer, output: &Output, memory: &mut Memory) -> Result<(), Unmapped> {
        if pointer.elements.span.bytes == 0 {
            return Ok(());
        }
        let dtype = pointer.elements.dtype;
        let to = memory.write(pointer.elements.span)?;
        for i in (0..output.values.len()).filter(|i| output.written[*i]) {
            let bits = match &output.values {
                Values::Float(values) => element::stored(dtype, values[i]),
                Values::Int(values) => element::cut(dtype, values[i]),
                Values::Bool(values) => u64::from(values[i]),
            };
            element::put(to, dtype, i as u64, bits);
        }
        Ok(())
    }
}

/// The element behind the last.
fn behind(elements: Elements) -> Span {
    Span { address: elements.span.address + elements.span.bytes, bytes: elements.dtype.size_bytes() as u64 }
}

fn zero(output: &mut Output) {
    match &mut output.values {
        Values::Float(values) => values.fill(0.0),
        Values::Int(values) => values.fill(0),
        Values::Bool(values) => values.fill(false),
    }
}

fn illegal(Unmapped(address): Unmapped) -> DeviceError {
    DeviceError::Fault(format!("an illegal memory access at {address:#x}"))
}
