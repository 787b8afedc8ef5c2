//! What can be said of a candidate before anything is built. The wall is the agent's sandbox, and its own screen is the stricter one; what is
//! refused here costs no device and no builder, and the sentence goes back to the model.

mod cpp;
mod python;

use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::meaning::Role;
use kernelopt_shared::target::{Language, Target};

use super::answer::Refusal;

/// Largest source, in bytes: kernels that won had less than a tenth of it.
pub const MAX_SOURCE_BYTES: usize = 128 << 10;

/// Checks everything.
///
/// # Errors
/// The first rule that is broken.
pub(super) fn check(candidate: &Candidate, target: &Target) -> Result<(), Refusal> {
    let source = candidate.source.as_str();
    if source.len() > MAX_SOURCE_BYTES {
        return Err(Refusal::new(format!("the source has {} bytes; at most {MAX_SOURCE_BYTES} are built", source.len())));
    }
    if let Some(odd) = source.chars().find(|c| c.is_control() && !"\n\r\t".contains(*c)) {
        return Err(Refusal::new(format!("the source holds the control character U+{:04X}", u32::from(odd))));
    }
    match candidate.language {
        Language::Cpp => cpp::check(source),
        Language::Triton => {
            launches(candidate, target)?;
            python::check(candidate, target)
        }
        Language::Cuda => Ok(()),
    }
}

/// Launches and scratch, with the sizes that the target has.
fn launches(candidate: &Candidate, target: &Target) -> Result<(), Refusal> {
    let refuse = |error: &dyn std::fmt::Display| Refusal::new(format!("the launch cannot be made: {error}"));
    let size = |name: &str| {
        let is_it = |argument: &&kernelopt_shared::meaning::Argument| argument.role == Role::Size && argument.name == name;
        let value = target.meaning.arguments.iter().find(is_it)?.value.as_ref()?;
        target.meaning.size(value)
    };
    candidate.check_launches(&target.meaning).map_err(|error| refuse(&error))?;
    for launch in candidate.launches() {
        launch.grid(&size).map_err(|error| refuse(&error))?;
    }
    let constants = candidate.launch.as_ref().map(|launch| &launch.constants);
    let of_first = |name: &str| constants.and_then(|constants| constants.get(name).copied()).or_else(|| size(name));
    candidate.scratch.iter().try_for_each(|scratch| scratch.bytes(&of_first).map(drop).map_err(|error| refuse(&error)))
}
