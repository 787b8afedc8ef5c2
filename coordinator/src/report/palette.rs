//! Which target has which colour and which name, the same in every picture.

use kernelopt_shared::result::{TargetResult, TuneResult};

/// Classes of the style sheet, one colour each; targets with the greatest shares have their own, all others share `OTHERS`.
const SERIES: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];
/// Class of everything that has no colour of its own.
pub(super) const OTHERS: &str = "s0";

/// Names and colours of a result's targets.
pub(super) struct Palette<'a> {
    targets: &'a [TargetResult],
    several_graphs: bool,
}

impl<'a> Palette<'a> {
    /// The palette of `result`, whose targets stand in order of share.
    pub(super) fn of(result: &'a TuneResult) -> Self {
        let several_graphs = result.targets.windows(2).any(|pair| pair[0].graph != pair[1].graph);
        Self { targets: &result.targets, several_graphs }
    }

    /// Class of the target at `index`.
    pub(super) fn class(index: usize) -> &'static str {
        SERIES.get(index).copied().unwrap_or(OTHERS)
    }

    /// Name of `target` as people see it: with its graph only where there are several.
    pub(super) fn name(&self, target: &TargetResult) -> String {
        if self.several_graphs { label(target) } else { target.name.clone() }
    }

    /// Name of the target that `label` means; the label itself where none does.
    pub(super) fn shown(&self, label: &str) -> String {
        self.find(label).map_or_else(|| label.to_owned(), |index| self.name(&self.targets[index]))
    }

    /// Index of the target that `name` means: a label, or a bare kernel name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.find_of(name, |_| true)
    }

    /// The same among the targets that `is_open` lets pass.
    pub(super) fn find_of(&self, name: &str, is_open: impl Fn(usize) -> bool) -> Option<usize> {
        let first = |means: &dyn Fn(&TargetResult) -> bool| (0..self.targets.len()).find(|i| is_open(*i) && means(&self.targets[*i]));
        first(&|target| label(target) == name).or_else(|| first(&|target| target.name == name))
    }
}

/// Label across graphs, as of `Target::label`.
fn label(target: &TargetResult) -> String {
    format!("{}/{}", target.graph, target.name)
}
