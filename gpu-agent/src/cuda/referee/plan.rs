//! What the arguments of a target are to the referee.

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::Role;
use kernelopt_shared::meaning::storage::{ArgumentPlace, Layout, reads_entry_value};
use kernelopt_shared::target::{Distribution, Target};
use kernelopt_shared::verdict::Verdict;

use super::Foul;
use crate::cuda::device::{Elements, Span, Value};

/// An argument that points to memory.
#[derive(Clone, Debug)]
pub struct Pointer {
    /// Name.
    pub name: String,
    /// Which storage.
    pub storage: usize,
    /// Where in it.
    pub offset_bytes: u64,
    /// Type of the elements.
    pub dtype: Dtype,
    /// How many, gaps included.
    pub elements: u64,
    /// True where the kernel writes it.
    pub written: bool,
    /// True where the kernel may read what is there at the start.
    pub read: bool,
    /// True where what is there at the start matters: the kernel reads it, through this argument or through another one.
    pub holds_entry: bool,
    /// False for an output that the graph never reads: it may hold anything afterwards.
    pub judged: bool,
    /// What it held at capture.
    pub captured: Distribution,
}

/// One argument of the kernel.
#[derive(Clone, Debug)]
pub enum Argument {
    /// Memory.
    Pointer(Pointer),
    /// A size, or another number.
    Size {
        /// Name.
        name: String,
        /// What is passed.
        value: Value,
    },
}

/// The arguments of a target and the memory that they need.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In call order.
    pub arguments: Vec<Argument>,
    /// Bytes of each storage.
    pub storages: Vec<u64>,
    /// Elements of the longest reduction; one for none.
    pub reduction: u64,
}

impl Argument {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Pointer(pointer) => &pointer.name,
            Self::Size { name, .. } => name,
        }
    }
}

impl Pointer {
    /// First byte in its storage, and the one behind the last.
    fn range(&self) -> (u64, u64) {
        (self.offset_bytes, self.offset_bytes + self.elements * self.dtype.size_bytes() as u64)
    }

    /// Its elements where its storage lies at `storage`.
    pub fn at(&self, storage: Span) -> Option<Elements> {
        let span = storage.part(self.offset_bytes, self.elements * self.dtype.size_bytes() as u64)?;
        Some(Elements { span, dtype: self.dtype })
    }
}

impl Plan {
    /// The plan of `target`.
    ///
    /// # Errors
    /// The meaning cannot be laid out, or its outputs lie in one another so that what one must leave alone, the other writes.
    pub fn of(target: &Target) -> Result<Self, Foul> {
        let layout = Layout::of(&target.meaning).map_err(|e| Foul::Baseline(format!("has a meaning that cannot be laid out: {e}")))?;
        let reads = reads_entry_value(&target.meaning, &layout);
        let arguments: Vec<Argument> = target
            .meaning
            .arguments
            .iter()
            .enumerate()
            .map(|(i, argument)| match layout.arguments[i] {
                ArgumentPlace::Int(value) if argument.c_type == "i32" => {
                    let value = i32::try_from(value).map_err(|_| Foul::Baseline(format!("has a size {value} that is no i32")))?;
                    Ok(Argument::Size { name: argument.name.clone(), value: Value::I32(value) })
                }
                ArgumentPlace::Int(value) => Ok(Argument::Size { name: argument.name.clone(), value: Value::I64(value) }),
                ArgumentPlace::Number(value) => {
                    let narrow = argument.c_type == "fp32";
                    let value = if narrow { Value::F32((value as f32).to_bits()) } else { Value::F64(value.to_bits()) };
                    Ok(Argument::Size { name: argument.name.clone(), value })
                }
                ArgumentPlace::Pointer { storage, offset_bytes, dtype, elements } => Ok(Argument::Pointer(Pointer {
                    name: argument.name.clone(),
                    storage,
                    offset_bytes: offset_bytes as u64,
                    dtype,
                    elements: elements as u64,
                    written: matches!(argument.role, Role::Out | Role::Inout),
                    read: argument.role != Role::Out && reads[i],
                    holds_entry: false,
                    judged: !target.scratch.contains(&argument.name),
                    captured: target.distributions.get(&argument.name).cloned().unwrap_or_default(),
                })),
            })
            .collect::<Result<_, Foul>>()?;
        let mut plan = Self {
            arguments,
            storages: layout.storages.iter().map(|storage| storage.bytes as u64).collect(),
            reduction: target.meaning.longest_reduction(),
        };
        plan.check_overlaps()?;
        plan.mark_entries();
        Ok(plan)
    }

    fn mark_entries(&mut self) {
        let read: Vec<usize> = self.inputs().map(|input| input.storage).collect();
        for argument in &mut self.arguments {
            if let Argument::Pointer(pointer) = argument {
                pointer.holds_entry = read.contains(&pointer.storage);
            }
        }
    }

    fn check_overlaps(&self) -> Result<(), Foul> {
        let outputs: Vec<&Pointer> = self.outputs().collect();
        let shared = outputs.iter().enumerate().find(|(i, output)| outputs[..*i].iter().any(|other| other.storage == output.storage));
        match shared {
            None => Ok(()),
            Some((_, output)) => {
                Err(Foul::Baseline(format!("writes {} and another output into one buffer, which is not judged yet", output.name)))
            }
        }
    }

    /// The value of a size argument.
    pub fn size(&self, wanted: &str) -> Option<i64> {
        self.arguments.iter().find_map(|argument| match argument {
            Argument::Size { name, value: Value::I32(value) } if name == wanted => Some(i64::from(*value)),
            Argument::Size { name, value: Value::I64(value) } if name == wanted => Some(*value),
            _ => None,
        })
    }

    /// Extents of the grid of `launch` on this target.
    pub fn grid(&self, launch: &Launch) -> Result<[u32; 3], Foul> {
        launch.grid(&|name: &str| self.size(name)).map_err(|e| Foul::Candidate(Verdict::Rejected { reason: e.to_string() }))
    }

    /// Arguments that point to memory.
    pub fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        self.arguments.iter().filter_map(|argument| match argument {
            Argument::Pointer(pointer) => Some(pointer),
            Argument::Size { .. } => None,
        })
    }

    /// Those that the kernel reads at the start.
    pub fn inputs(&self) -> impl Iterator<Item = &Pointer> {
        self.pointers().filter(|pointer| pointer.read)
    }

    /// Those that it writes.
    pub fn outputs(&self) -> impl Iterator<Item = &Pointer> {
        self.pointers().filter(|pointer| pointer.written)
    }

    /// Storages that hold inputs only.
    pub fn read_only_storages(&self) -> impl Iterator<Item = usize> {
        (0..self.storages.len()).filter(|&storage| !self.outputs().any(|output| output.storage == storage))
    }

    /// What no output covers, as `(storage, offset, bytes)`: not a byte of it may change.
    pub fn untouchable(&self) -> Vec<(usize, u64, u64)> {
        let mut ranges = Vec::new();
        for (storage, &bytes) in self.storages.iter().enumerate() {
            let mut written: Vec<(u64, u64)> = self.outputs().filter(|output| output.storage == storage).map(Pointer::range).collect();
            written.push((bytes, bytes));
            written.sort_unstable();
            let mut from = 0;
            for (start, end) in written {
                if from < start {
                    ranges.push((storage, from, start - from));
                }
                from = from.max(end);
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kernelopt_shared::bundle::Bundle;
    use kernelopt_shared::candidate::{Candidate, Origin, Precision};
    use kernelopt_shared::digest::Digest;
    use kernelopt_shared::meaning::traffic::Traffic;
    use kernelopt_shared::target::Language;

    use super::*;

    /// The element-wise kernel of `examples/triton_kernels.py`, its number of the type `c_type`.
    fn authors(c_type: &str) -> Target {
        let bundle = Bundle::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/bundles/user_triton")).unwrap();
        let entry = bundle.kernels(&bundle.manifest.graphs[0]).unwrap().remove(0);
        let mut meaning = entry.decoded().unwrap();
        meaning.arguments[4].c_type = c_type.into();
        let origin = Origin { proposer: "baseline".into(), note: String::new(), parent: None, round: 0 };
        let precision = Precision::Baseline;
        Target {
            kernel: entry.kernel,
            graph: 0,
            fingerprint: Digest::of([]),
            meaning,
            baseline: Candidate {
                language: Language::Triton,
                source: String::new(),
                launch: entry.launch,
                further: Vec::new(),
                scratch: Vec::new(),
                precision,
                origin,
            },
            scratch: Default::default(),
            calls: 1,
            traffic: Traffic::default(),
            distributions: entry.distributions,
        }
    }

    #[test]
    fn an_authors_kernel_is_passed_pointers_sizes_and_numbers() {
        let target = authors("fp64");
        let plan = Plan::of(&target).unwrap();
        let values: Vec<Value> =
            plan.arguments.iter().filter_map(|a| if let Argument::Size { value, .. } = a { Some(*value) } else { None }).collect();
        assert_eq!(values, [Value::I32(2_097_152), Value::F64(1.5f64.to_bits())]);
        let names = |pointers: &mut dyn Iterator<Item = &Pointer>| pointers.map(|p| p.name.clone()).collect::<Vec<_>>();
        assert_eq!((names(&mut plan.inputs()), names(&mut plan.outputs())), (vec!["x".into(), "gate".into()], vec!["y".into()]));
        assert_eq!(plan.reduction, 4096, "it may reduce over its longest extent");
        assert_eq!(plan.grid(target.baseline.launch.as_ref().unwrap()).unwrap(), [32_768, 1, 1]);
        let narrow = Plan::of(&authors("fp32")).unwrap();
        assert!(matches!(narrow.arguments[4], Argument::Size { value: Value::F32(bits), .. } if f32::from_bits(bits) == 1.5));
    }
}
