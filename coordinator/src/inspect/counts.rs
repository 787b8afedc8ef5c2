//! How much of what a graph holds.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::inductor::ModelFile;
use crate::inductor::graph::{Function, Graph};
use crate::inductor::statement::StatementKind;
use crate::inductor::text::Span;
use crate::inductor::value::{Value, ViewKind};

/// Longest text of a statement that is shown, in characters.
const SHOWN_CHARACTERS: usize = 200;

/// Counts over one graph: `call` and the partitions and subgraphs that it may run. A statement counts once, however often it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GraphCounts {
    /// Number of the graph.
    pub graph: u32,
    /// `inference`, `forward` or `backward`, where known.
    pub kind: Option<String>,
    /// Calls of `extern_kernels.*`, `aten.*` and `torch.ops.*` that compute; copies and views are not among them.
    pub vendor_calls: usize,
    /// Kernels that the file defines. A choice between kernels is none itself.
    pub generated_kernels: usize,
    /// Launches of generated kernels.
    pub kernel_launches: usize,
    /// Buffers that the graph makes: allocations, and places in a pool; a pool itself is memory, no buffer.
    pub buffers: usize,
    /// Views, wherever they stand: `reinterpret_tensor(...)` and operators that give a view.
    pub views: usize,
    /// Inputs of `call`.
    pub inputs: usize,
    /// Outputs of `call`, `None` among them.
    pub outputs: usize,
    /// Size symbols.
    pub symbols: usize,
    /// Statements that are kept but not understood.
    pub opaque: Vec<OpaqueStatement>,
    /// Vendor calls by name.
    pub vendor: BTreeMap<String, usize>,
}

/// A statement that is kept but not understood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpaqueStatement {
    /// Line on which it starts, from one.
    pub line: u32,
    /// Its text; a long one is cut.
    pub text: String,
}

impl GraphCounts {
    /// Counts what `graph` of `file` holds.
    pub fn of(file: &ModelFile, graph: &Graph, number: u32) -> Self {
        let mut counts = Self { graph: number, kind: kind(file.text()), ..Self::default() };
        let kernels = graph.kernels.iter().filter_map(|index| file.kernels().get(*index));
        counts.generated_kernels = kernels.filter(|kernel| !kernel.is_choice()).count();
        for statement in &graph.opaque {
            counts.opaque.push(opaque(file, statement.line, statement.span));
        }
        let mut symbols = BTreeSet::new();
        let mut pools = BTreeSet::new();
        for function in file.functions_of(graph) {
            counts.add(file, function, &mut symbols, &mut pools);
        }
        counts.symbols = symbols.len();
        counts.buffers = counts.buffers.saturating_sub(pools.len());
        counts.vendor_calls = counts.vendor.values().sum();
        counts.opaque.sort_by_key(|statement| statement.line);
        counts
    }

    fn add<'a>(
        &mut self,
        file: &'a ModelFile,
        function: &'a Function,
        symbols: &mut BTreeSet<&'a str>,
        pools: &mut BTreeSet<(u32, &'a str)>,
    ) {
        if function.is_entry() {
            self.inputs = function.inputs().len();
        }
        for statement in &function.statements {
            for value in statement.kind.values() {
                value.visit(&mut |part| self.add_view(part, function, pools));
            }
            match &statement.kind {
                StatementKind::Symbol { name, .. } => {
                    symbols.insert(name);
                }
                StatementKind::Allocate { .. } => self.buffers += 1,
                StatementKind::Vendor(vendor) => *self.vendor.entry(vendor.callee.clone()).or_default() += 1,
                StatementKind::Launch(_) => self.kernel_launches += 1,
                StatementKind::Return { values } if function.is_entry() => self.outputs = values.len(),
                StatementKind::Opaque(_) => self.opaque.push(opaque(file, statement.line, statement.span)),
                _ => {}
            }
        }
    }

    fn add_view<'a>(&mut self, value: &'a Value, function: &Function, pools: &mut BTreeSet<(u32, &'a str)>) {
        let Value::View(view) = value else { return };
        match (&view.kind, &view.base) {
            (ViewKind::Pool { .. }, base) => {
                self.buffers += 1;
                if let Value::Name(pool) = base {
                    pools.insert((function.line, pool));
                }
            }
            _ => self.views += 1,
        }
    }
}

fn opaque(file: &ModelFile, line: u32, span: Span) -> OpaqueStatement {
    let text = span.of(file.text());
    let cut = text.char_indices().nth(SHOWN_CHARACTERS).map_or(text.len(), |(at, _)| at);
    let ellipsis = if cut < text.len() { "…" } else { "" };
    OpaqueStatement { line, text: format!("{}{ellipsis}", &text[..cut]) }
}

/// `inference` from the first line, `# AOT ID: ['0_inference']`.
fn kind(text: &str) -> Option<String> {
    let id = text.lines().next()?.strip_prefix("# AOT ID: ['")?.strip_suffix("']")?;
    let kind = id.split_once('_')?.1;
    matches!(kind, "inference" | "forward" | "backward").then(|| kind.to_owned())
}
