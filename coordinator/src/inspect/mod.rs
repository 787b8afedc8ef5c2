//! What a compiled model is made of: vendor calls, generated kernels, and which of them can be searched.
//!
//! The serialised form is the contract of `kernelopt inspect --json`: `{"graphs": [...], "targets": [...]}`. Fields are only
//! added, never renamed.

mod counts;
mod error;
mod row;
mod table;
mod targets;

use std::io::Read;
use std::path::Path;

use kernelopt_shared::bundle::Bundle;
use serde::Serialize;

use crate::inductor::ModelFile;
use crate::inductor::dataflow::Dataflow;
use crate::inductor::kernel::Author;
use crate::inductor::limits::MAX_BYTES;
pub use counts::{GraphCounts, OpaqueStatement};
pub use error::InspectError;
pub use row::{ArgumentShape, Extent, TargetRow};
pub use targets::targets;

/// What a compiled model is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// The graphs, in order.
    pub graphs: Vec<GraphCounts>,
    /// Every generated kernel, searchable or not, in order of definition.
    pub targets: Vec<TargetRow>,
}

/// Why a kernel of a file without a manifest cannot be searched, when nothing else stands in the way.
const NO_MANIFEST: &str = "no manifest, so no meaning";
/// The same of a kernel that the compiler did not write.
const AUTHORS: &str = "a Triton kernel of the model's author";

impl Inspection {
    /// Inspects the bundle or the `output_code.py` at `path`.
    pub fn of(path: &Path) -> Result<Self, InspectError> {
        if path.is_dir() { Self::of_bundle(&Bundle::open(path)?) } else { Self::of_text(&read(path)?).map_err(|e| e.at(path)) }
    }

    /// Inspects the text of an `output_code.py`. No kernel has a meaning, so none is searchable.
    pub fn of_text(text: &str) -> Result<Self, InspectError> {
        let file = ModelFile::parse(text)?;
        let flow = Dataflow::of(&file);
        let mut inspection = Self { graphs: Vec::new(), targets: Vec::new() };
        for graph in file.graphs() {
            let number = u32::try_from(graph.index).unwrap_or(u32::MAX);
            inspection.graphs.push(GraphCounts::of(&file, graph, number));
            let all = graph.kernels.iter().filter_map(|index| Some((file.kernels().get(*index)?, flow.kernels.get(*index)?)));
            let kernels = all.filter(|(kernel, _)| !kernel.is_choice());
            inspection.targets.extend(kernels.map(|(kernel, facts)| {
                let is_authors = kernel.source().is_some_and(|source| source.author == Author::User);
                let otherwise = if is_authors { AUTHORS } else { NO_MANIFEST };
                let reason = facts.left_alone.as_ref().map_or_else(|| otherwise.to_owned(), ToString::to_string);
                TargetRow::left_alone(kernel, facts, &flow, number, reason)
            }));
        }
        Ok(inspection)
    }

    /// Inspects an opened bundle.
    pub fn of_bundle(bundle: &Bundle) -> Result<Self, InspectError> {
        let mut inspection = Self { graphs: Vec::new(), targets: Vec::new() };
        for entry in &bundle.manifest.graphs {
            let graph = targets::BundleGraph::open(bundle, entry)?;
            let counts = graph.file.graphs().iter().map(|inner| GraphCounts::of(&graph.file, inner, entry.index));
            inspection.graphs.extend(counts.map(|counts| GraphCounts { kind: Some(entry.kind.clone()), ..counts }));
            inspection.targets.extend(graph.rows());
        }
        Ok(inspection)
    }

    /// The same for people: aligned columns, one line each.
    pub fn table(&self) -> String {
        table::render(self)
    }
}

/// The text of a file of at most [`MAX_BYTES`].
fn read(path: &Path) -> Result<String, InspectError> {
    let io = |source| InspectError::Io { path: path.into(), source };
    let file = std::fs::File::open(path).map_err(io)?;
    let mut text = String::new();
    // One byte more than is parsed, so that a greater file is refused and not cut.
    file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text).map_err(io)?;
    Ok(text)
}
