//! The proposer: the search of schedules in the language of the target.

use kernelopt_shared::target::{Language, Target};

use crate::search::proposer::{Offer, Proposer, Scene};

use super::emit::Team;
use super::space::Schedule;
use super::triton::{LaunchSpace, TritonSpace};
use super::walk::{Code, NAME, Space, walk};
use super::{Unsupported, portfolio, source};

/// Generates code from a target's meaning.
#[derive(Debug, Default)]
pub struct ScheduleProposer;

impl ScheduleProposer {
    /// A proposer without state: everything follows from target and history.
    pub fn new() -> Self {
        Self
    }
}

impl Proposer for ScheduleProposer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn propose(&mut self, scene: &Scene<'_>) -> Offer {
        let Scene { target, history, want, .. } = *scene;
        Offer::of(match target.baseline.language {
            Language::Cpp => walk(&CppSpace { target }, history, want),
            Language::Triton if target.meaning.program.is_some() => {
                LaunchSpace::new(target).map_or_else(Vec::new, |space| walk(&space, history, want))
            }
            Language::Triton => walk(&TritonSpace::new(target), history, want),
            Language::Cuda => Vec::new(),
        })
    }
}

/// The schedules of a target in C++.
struct CppSpace<'a> {
    target: &'a Target,
}

impl Space for CppSpace<'_> {
    type Schedule = Schedule;
    const LANGUAGE: Language = Language::Cpp;

    fn portfolio(&self) -> Vec<Schedule> {
        portfolio::portfolio(is_parallel(self.target))
    }

    fn neighbours(&self, centre: &Schedule) -> Vec<Schedule> {
        portfolio::neighbours(centre, has_wide_vectors(self.target))
    }

    fn note(&self, schedule: &Schedule) -> String {
        schedule.note()
    }

    fn code(&self, schedule: &Schedule) -> Result<Code, Unsupported> {
        let source = source(&self.target.meaning, &self.target.scratch, schedule, team(self.target))?;
        Ok(Code { source, ..Code::default() })
    }
}

/// Threads of the compiler's own code, which bakes their number in.
fn team(target: &Target) -> Team {
    let text = &target.baseline.source;
    let digits = text.split("num_threads(").nth(1).map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    Team(digits.and_then(|digits| digits.parse().ok()).filter(|size| (1..=1024).contains(size)))
}

fn is_parallel(target: &Target) -> bool {
    target.baseline.source.contains("omp parallel")
}

/// True where the compiler's own loops take sixteen elements at a time: the processor has vectors of 512 bits.
fn has_wide_vectors(target: &Target) -> bool {
    target.baseline.source.contains("+=static_cast<int64_t>(16L)")
}
