//! The schedules of one target.

use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::Expr;
use kernelopt_shared::target::{Language, Target};

use super::super::Unsupported;
use super::super::walk::Space;
use super::facts::Facts;
use super::portfolio::{neighbours, portfolio};
use super::space::Schedule;
use super::{ENTRY, Kernel, kernel};
use crate::inductor::triton::Definition;

/// The schedules of a target whose compiler wrote Triton.
pub struct TritonSpace<'a> {
    target: &'a Target,
    facts: Facts,
}

impl<'a> TritonSpace<'a> {
    /// Of a target.
    pub fn new(target: &'a Target) -> Self {
        let multiprocessors = Definition::read(&target.baseline.source).ok().and_then(|definition| definition.multiprocessors());
        Self { target, facts: Facts::of(&target.meaning, &target.scratch, multiprocessors) }
    }

    fn launch(&self, schedule: &Schedule, kernel: &Kernel) -> Launch {
        // What the compiler found divisible is so in every call, whichever code runs.
        let divisible_by_16 = self.target.baseline.launch.as_ref().map(|launch| launch.divisible_by_16.clone()).unwrap_or_default();
        Launch {
            entry: ENTRY.to_owned(),
            grid: [kernel.programs.clone(), Expr::Int(1), Expr::Int(1)],
            constants: self.target.fixed_arguments().into_iter().chain(kernel.constants.clone()).collect(),
            divisible_by_16,
            num_warps: schedule.warps,
            num_stages: schedule.stages,
        }
    }
}

impl Space for TritonSpace<'_> {
    type Schedule = Schedule;
    const LANGUAGE: Language = Language::Triton;

    fn portfolio(&self) -> Vec<Schedule> {
        portfolio(&self.facts)
    }

    fn neighbours(&self, centre: &Schedule) -> Vec<Schedule> {
        neighbours(centre, &self.facts)
    }

    fn note(&self, schedule: &Schedule) -> String {
        schedule.note()
    }

    fn code(&self, schedule: &Schedule) -> Result<(String, Option<Launch>), Unsupported> {
        let kernel = kernel(&self.target.meaning, &self.target.scratch, schedule)?;
        let launch = self.launch(schedule, &kernel);
        Ok((kernel.source, Some(launch)))
    }
}
