//! The schedules of one target.

use std::collections::BTreeMap;

use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::Expr;
use kernelopt_shared::target::{Language, Target};

use super::super::Unsupported;
use super::super::walk::{Code, Space};
use super::facts::Facts;
use super::portfolio::{neighbours, portfolio};
use super::space::Schedule;
use super::split::{Stage, split};
use super::{ENTRY, kernel};
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

    /// A launch of `programs`; `arguments` are names, or nothing for the target's own.
    fn launch(&self, entry: &str, programs: Expr, constants: BTreeMap<String, i64>, arguments: Vec<String>) -> Launch {
        // What the compiler found divisible is so in every call, whichever code runs.
        let known = self.target.baseline.launch.as_ref().map(|launch| launch.divisible_by_16.clone()).unwrap_or_default();
        Launch {
            entry: entry.to_owned(),
            grid: [programs, Expr::Int(1), Expr::Int(1)],
            constants,
            divisible_by_16: known,
            num_warps: 1,
            num_stages: 1,
            arguments,
        }
    }

    fn split(&self, schedule: &Schedule) -> Result<Code, Unsupported> {
        let split = split(&self.target.meaning, &self.target.scratch, schedule)?;
        let launch = |stage: Stage| {
            let mut launch = self.launch(stage.entry, stage.programs, stage.constants, stage.arguments);
            launch.divisible_by_16.retain(|name| launch.arguments.contains(name));
            let scratch = split.scratch.iter().map(|scratch| &scratch.name);
            launch.divisible_by_16.extend(scratch.filter(|name| launch.arguments.contains(name)).cloned());
            Launch { num_warps: stage.warps, num_stages: schedule.stages, ..launch }
        };
        Ok(Code { source: split.source, launches: split.stages.map(launch).into(), scratch: split.scratch.clone() })
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

    fn code(&self, schedule: &Schedule) -> Result<Code, Unsupported> {
        if schedule.splits.is_some() {
            return self.split(schedule);
        }
        let kernel = kernel(&self.target.meaning, &self.target.scratch, schedule)?;
        let launch = self.launch(ENTRY, kernel.programs, kernel.constants, Vec::new());
        let launch = Launch { num_warps: schedule.warps, num_stages: schedule.stages, ..launch };
        Ok(Code { source: kernel.source, launches: vec![launch], scratch: Vec::new() })
    }
}
