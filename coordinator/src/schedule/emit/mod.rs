//! C++ for a loop plan: one translation unit without torch headers.
//!
//! The innermost loop always has a constant, small number of iterations (the lanes) and carries `#pragma omp simd`, so that
//! one text vectorises for AVX2, AVX-512 and NEON alike; a reduction keeps one accumulator per lane. The compiler's
//! own command switches the loop vectoriser off, which the first line of the source takes back.

mod body;
mod index;
mod pass;
mod region;
mod runtime;
mod stage;
mod value;
mod writer;

use std::collections::BTreeMap;

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::{Argument, Expr, Meaning};

use super::Unsupported;
use super::loops::iterations;
use super::plan::RegionPlan;
use super::space::{Schedule, Threads};
use super::storage::Storage;
use super::symbols::symbols;
use writer::Writer;

/// Threads that a kernel is written for where the compiler's own code does not say.
const MAX_THREADS: u32 = 64;

/// The team of threads that the compiler's own code asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Team(pub Option<u32>);

impl Team {
    fn size(self) -> u32 {
        self.0.unwrap_or(MAX_THREADS)
    }

    fn clause(self) -> String {
        match self.0 {
            Some(size) => format!("num_threads({size})"),
            None => format!("num_threads(std::min(omp_get_max_threads(), {MAX_THREADS}))"),
        }
    }
}

/// The source of a kernel.
///
/// # Errors
/// Where a function, type or size of the meaning cannot be written.
pub fn kernel(
    meaning: &Meaning,
    storage: &Storage<'_>,
    plans: &[RegionPlan],
    schedule: &Schedule,
    team: Team,
) -> Result<String, Unsupported> {
    let mut out = Writer::default();
    let temporaries = temporaries(storage, plans);
    out.open(format!("extern \"C\" void kernel({}) {{", signature(&meaning.arguments)));
    for (symbol, value) in symbols(meaning)?.iter().filter(|(symbol, value)| **value != Expr::var(symbol.as_str())) {
        out.line(format!("const int64_t {symbol} = {};", index::plain(value)));
    }
    for (name, dtype, size) in &temporaries {
        let c_type = value::c_type(*dtype)?;
        out.line(format!("{c_type}* const {name} = new {c_type}[{}];", index::plain(size)));
    }
    let parallel = plans.iter().any(|plan| plan.threads != Threads::One);
    for (number, plan) in plans.iter().enumerate() {
        pass::partials(&mut out, plan, number, team)?;
    }
    if parallel {
        out.line(format!("#pragma omp parallel {}", team.clause()));
        out.open("{");
    }
    for (number, plan) in plans.iter().enumerate() {
        if parallel && plan.threads == Threads::One {
            out.line("#pragma omp single");
        }
        region::emit(&mut out, plan, storage, number, number + 1 == plans.len())?;
    }
    if parallel {
        out.close();
    }
    for (name, ..) in &temporaries {
        out.line(format!("delete[] {name};"));
    }
    out.close();
    Ok(format!("{}{}", runtime::prelude(schedule, &out.text, &meaning.arguments), out.text))
}

fn signature(arguments: &[Argument]) -> String {
    let one = |argument: &Argument| format!("{} {}", argument.c_type, argument.name);
    arguments.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Buffers inside the kernel that one region leaves for another, with their numbers of elements.
fn temporaries(storage: &Storage<'_>, plans: &[RegionPlan]) -> Vec<(String, Dtype, Expr)> {
    let stores = plans.iter().flat_map(|plan| &plan.steps).flat_map(|step| &step.stores);
    let mut found: BTreeMap<&str, (Dtype, Expr)> = BTreeMap::new();
    for store in stores {
        let name = store.target.buffer.as_str();
        if let (None, Some(buffer)) = (storage.written_through(name), storage.buffer(name)) {
            found.insert(name, (buffer.dtype, iterations(&buffer.size)));
        }
    }
    found.into_iter().map(|(name, (dtype, size))| (name.to_owned(), dtype, size)).collect()
}
