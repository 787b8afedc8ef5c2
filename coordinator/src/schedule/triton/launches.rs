//! The launches of a kernel that the model's author wrote. Its text stays, since nothing else says what it means.

use std::collections::BTreeSet;

use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::{Meaning, Role};
use kernelopt_shared::target::{Language, Target};

use super::super::Unsupported;
use super::super::walk::{Code, Space};
use crate::inductor::user_kernel::UserKernel;

/// Greatest block: what Triton takes for one tensor.
const MAX_BLOCK: i64 = 1 << 20;
/// Most warps of a program.
const MAX_WARPS: u32 = 32;
/// Most stages that are tried.
const MAX_STAGES: u32 = 5;

/// The launches of one target.
pub struct LaunchSpace<'a> {
    target: &'a Target,
    baseline: &'a Launch,
    kernel: UserKernel,
}

impl<'a> LaunchSpace<'a> {
    /// Of a target; none where its text is not in the compiler's form.
    pub fn new(target: &'a Target) -> Option<Self> {
        let kernel = UserKernel::read(&target.baseline.source).ok()?;
        Some(Self { target, baseline: target.baseline.launch.as_ref()?, kernel })
    }

    fn free(&self) -> BTreeSet<&str> {
        self.kernel.free_constants(self.baseline)
    }

    /// `centre` with the constant `name` times `2^steps` and the warps times `2^warps`.
    fn scaled(&self, centre: &Launch, name: Option<&str>, steps: i32, warps: i32) -> Launch {
        let mut launch = centre.clone();
        if let Some(value) = name.and_then(|name| launch.constants.get_mut(name)) {
            *value = if steps < 0 { (*value >> -steps).max(1) } else { (*value << steps).min(MAX_BLOCK) };
        }
        launch.num_warps = if warps < 0 { (launch.num_warps >> -warps).max(1) } else { (launch.num_warps << warps).min(MAX_WARPS) };
        launch
    }

    /// The author's configurations, each with its own grid where that is not made of its constants.
    fn listed(&self) -> Vec<Launch> {
        let is_known = !self.free().is_empty();
        let launch = |configuration: &crate::inductor::user_kernel::Configuration| {
            let grid = if is_known { self.baseline.grid.clone() } else { configuration.grid.clone()? };
            let mut constants = self.baseline.constants.clone();
            constants.extend(configuration.constants.clone());
            let (num_warps, num_stages) = (configuration.num_warps, configuration.num_stages);
            Some(Launch { grid, constants, num_warps, num_stages, ..self.baseline.clone() })
        };
        self.kernel.configurations.iter().filter_map(launch).collect()
    }

    fn staged(&self, centre: &Launch) -> Vec<Launch> {
        let stages = (1..=MAX_STAGES).filter(|_| self.kernel.has_loop);
        stages.map(|num_stages| Launch { num_stages, ..centre.clone() }).collect()
    }

    /// Without the launch that is there, and each once.
    fn distinct(&self, launches: Vec<Launch>, centre: &Launch) -> Vec<Launch> {
        let mut kept: Vec<Launch> = Vec::new();
        for launch in launches {
            if launch != *centre && launch != *self.baseline && !kept.contains(&launch) {
                kept.push(launch);
            }
        }
        kept
    }
}

impl Space for LaunchSpace<'_> {
    type Schedule = Launch;
    const LANGUAGE: Language = Language::Triton;

    fn portfolio(&self) -> Vec<Launch> {
        let centre = self.baseline;
        let mut all: Vec<Launch> = [1, 2, -1, 3, -2].into_iter().map(|warps| self.scaled(centre, None, 0, warps)).collect();
        for (steps, warps) in [(1, 0), (2, 1), (3, 2), (4, 2), (1, 1), (2, 2), (-1, 0), (2, 0), (4, 3), (-1, -1), (-2, 0)] {
            all.extend(self.free().into_iter().map(|name| self.scaled(centre, Some(name), steps, warps)));
        }
        all.extend(self.listed());
        all.extend(self.staged(centre));
        self.distinct(all, centre)
    }

    fn neighbours(&self, centre: &Launch) -> Vec<Launch> {
        let mut all: Vec<Launch> = [1, -1].into_iter().map(|warps| self.scaled(centre, None, 0, warps)).collect();
        for (steps, warps) in [(1, 0), (-1, 0), (1, 1), (-1, -1)] {
            all.extend(self.free().into_iter().map(|name| self.scaled(centre, Some(name), steps, warps)));
        }
        all.extend(self.staged(centre));
        self.distinct(all, centre)
    }

    /// `BLOCK 256, 4 warps, 3 stages`.
    fn note(&self, launch: &Launch) -> String {
        let changed = launch.constants.iter().filter(|(name, value)| self.baseline.constants.get(*name) != Some(value));
        let mut words: Vec<String> = changed.map(|(name, value)| format!("{name} {value}")).collect();
        words.push(format!("{} warps", launch.num_warps));
        if self.kernel.has_loop {
            words.push(format!("{} stages", launch.num_stages));
        }
        words.join(", ")
    }

    fn code(&self, launch: &Launch) -> Result<Code, Unsupported> {
        launch.grid(&|name| size(&self.target.meaning, name)).map_err(|error| Unsupported::new(error.to_string()))?;
        let source = &self.target.baseline.source;
        // What could not be put into the file is not worth a measurement.
        self.kernel.with_launch(source, launch, self.baseline).map_err(|error| Unsupported::new(error.to_string()))?;
        Ok(Code { source: source.clone(), launches: vec![launch.clone()], scratch: Vec::new() })
    }
}

/// Value of the size argument `name`.
fn size(meaning: &Meaning, name: &str) -> Option<i64> {
    let argument = meaning.arguments.iter().find(|argument| argument.role == Role::Size && argument.name == name)?;
    meaning.size(argument.value.as_ref()?)
}
