//! The candidate contract: source and launch plan offered for a target. Data only.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::launch::{Launch, LaunchError, MAX_LAUNCHES, MAX_SCRATCH, Scratch};
use crate::meaning::Meaning;
use crate::target::Language;

/// Source offered in place of a target's generated code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Language of `source`.
    pub language: Language,
    /// One translation unit. C++: it defines `extern "C" void kernel(...)` with the target's own arguments; flags travel
    /// inside as `#pragma GCC optimize`, since the optimised file is built by the compiler's own command.
    ///
    /// Triton: a module of `@triton.jit` functions and constants, among which each [`Launch::entry`] is; its runtime
    /// parameters are what the launch passes, in order, followed by `tl.constexpr` ones. The baseline is the compiler's own
    /// text, decorator included; builders look at its `@triton.jit` function only.
    /// CUDA C++: it defines `extern "C" __global__ void ENTRY(...)` with what the launch passes.
    pub source: String,
    /// How it is launched; none for C++, which is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// Launched after it, in this order: each begins when the one before has ended. Their entries are in the same source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<Launch>,
    /// Temporary memory that launches take by name ([`Launch::arguments`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scratch: Vec<Scratch>,
    /// What it claims to keep; the default is the baseline's own precision.
    #[serde(default)]
    pub precision: Precision,
    /// Where it comes from.
    pub origin: Origin,
}

/// A promise about arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// As exact as the baseline: same element types, no fast-math, no narrower arithmetic.
    #[default]
    Baseline,
}

/// Who made a candidate, and from what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Proposer: `baseline`, `schedule`, `replay`, ...
    pub proposer: String,
    /// What it tried, for people: `rows per thread 1, two-pass, exp inlined`.
    pub note: String,
    /// Candidate that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Digest>,
    /// Round of the search in which it was proposed, from zero.
    #[serde(default)]
    pub round: u32,
}

impl Candidate {
    /// Its launches, in order; none for C++.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.launch.iter().chain(&self.further)
    }

    /// True where more than one launch of the target's own arguments has to be made.
    pub fn has_sequence(&self) -> bool {
        !self.further.is_empty() || !self.scratch.is_empty() || self.launches().any(|launch| !launch.arguments.is_empty())
    }

    /// Looks at launches and scratch as far as no size has to be known.
    ///
    /// # Errors
    /// There are too many, a name is taken or no name, or a launch is passed what is not there.
    pub fn check_launches(&self, meaning: &Meaning) -> Result<(), LaunchError> {
        let launches = self.launches().count();
        if launches > MAX_LAUNCHES {
            return Err(LaunchError::Launches(launches));
        }
        if self.scratch.len() > MAX_SCRATCH {
            return Err(LaunchError::Buffers(self.scratch.len()));
        }
        for (at, scratch) in self.scratch.iter().enumerate() {
            let is_taken = meaning.arguments.iter().any(|argument| argument.name == scratch.name)
                || self.scratch[..at].iter().any(|other| other.name == scratch.name);
            if is_taken || !scratch.has_plain_name() {
                return Err(LaunchError::Name(scratch.name.clone()));
            }
        }
        self.launches().try_for_each(|launch| self.signature(launch, meaning).map(drop))
    }

    /// Name and Triton's type (`*bf16`, `i64`) of what `launch` passes, in order, for a target of that meaning.
    ///
    /// # Errors
    /// It names something that is neither an argument of the target nor scratch.
    pub fn signature<'a>(&'a self, launch: &'a Launch, meaning: &'a Meaning) -> Result<Vec<(&'a str, &'a str)>, LaunchError> {
        let targets = || meaning.arguments.iter().map(|argument| (argument.name.as_str(), argument.c_type.as_str()));
        if launch.arguments.is_empty() {
            return Ok(targets().collect());
        }
        let named = |name: &'a String| {
            let scratch = self.scratch.iter().map(|scratch| (scratch.name.as_str(), scratch.dtype.triton_pointer()));
            let found = targets().chain(scratch).find(|(other, _)| other == name);
            found.ok_or_else(|| LaunchError::Unknown { entry: launch.entry.clone(), name: name.clone() })
        };
        launch.arguments.iter().map(named).collect()
    }

    /// Identity: language, source, launches, scratch and precision. The origin is not part of it, so one source is measured once.
    pub fn id(&self) -> Digest {
        let launch = self.launch.as_ref().map(|launch| format!("{launch:?}")).unwrap_or_default();
        let precision = format!("{:?}", self.precision);
        let further = if self.further.is_empty() { String::new() } else { format!("{:?}", self.further) };
        let scratch = if self.scratch.is_empty() { String::new() } else { format!("{:?}", self.scratch) };
        let parts = [self.language.name(), &self.source, &precision, &launch, &further, &scratch];
        Digest::of(parts.into_iter().filter(|part| !part.is_empty()).map(str::as_bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::dtype::Dtype;
    use crate::meaning::Expr;

    fn candidate() -> Candidate {
        let launch =
            r#"{"entry": "k", "grid": ["(n + B - 1) // B", "1", "1"], "constants": {"B": 128}, "divisible_by_16": ["x"], "num_warps": 4}"#;
        let origin = Origin { proposer: "schedule".into(), note: "one".into(), parent: None, round: 0 };
        let row = serde_json::json!({
            "language": "triton", "source": "text", "launch": serde_json::from_str::<serde_json::Value>(launch).unwrap(), "origin": origin,
        });
        serde_json::from_value(row).unwrap()
    }

    /// Journals name candidates by their identities, and hold them as JSON.
    #[test]
    fn a_candidate_of_one_launch_is_what_it_was() {
        assert_eq!(candidate().id().to_string(), "9bc0a6d24633b6b2c6e126ba577a4b37");
        let text = serde_json::to_string(&candidate()).unwrap();
        assert!(!["arguments", "further", "scratch"].iter().any(|word| text.contains(word)), "{text}");
    }

    fn scratch(name: &str) -> Scratch {
        Scratch { name: name.into(), dtype: Dtype::Float32, elements: Expr::Int(4), zeroed: false }
    }

    fn meaning() -> Meaning {
        let pointer = |name: &str| serde_json::json!({"name": name, "type": "*bf16", "role": "in", "buffers": [name]});
        serde_json::from_value(serde_json::json!({"kernel": "k", "arguments": [pointer("x"), pointer("y")], "buffers": {}, "nodes": []}))
            .unwrap()
    }

    #[test]
    fn launches_and_scratch_are_part_of_the_identity() {
        let one = candidate();
        let second = Launch { arguments: vec!["parts".into(), "y".into()], ..one.launch.clone().unwrap() };
        let two = Candidate { further: vec![second.clone()], scratch: vec![scratch("parts")], ..one.clone() };
        let zeroed = Candidate { scratch: vec![Scratch { zeroed: true, ..scratch("parts") }], ..two.clone() };
        let ids: BTreeSet<Digest> = [&one, &two, &zeroed].into_iter().map(Candidate::id).collect();
        assert_eq!(ids.len(), 3);
        assert_eq!(serde_json::from_str::<Candidate>(&serde_json::to_string(&two).unwrap()).unwrap(), two);
        assert_eq!(two.signature(&second, &meaning()), Ok(vec![("parts", "*fp32"), ("y", "*bf16")]));
        assert_eq!(two.signature(two.launch.as_ref().unwrap(), &meaning()), Ok(vec![("x", "*bf16"), ("y", "*bf16")]));
        assert_eq!(two.check_launches(&meaning()), Ok(()));
    }

    #[test]
    fn names_that_are_taken_or_unknown_and_too_much_of_anything_are_refused() {
        let one = candidate();
        let launch = one.launch.clone().unwrap();
        let complaint = |further: Vec<Launch>, scratch: Vec<Scratch>| {
            Candidate { further, scratch, ..one.clone() }.check_launches(&meaning()).unwrap_err().to_string()
        };
        assert!(complaint(Vec::new(), vec![scratch("x")]).contains("taken"));
        assert!(complaint(Vec::new(), vec![scratch("p"), scratch("p")]).contains("taken"));
        assert!(complaint(Vec::new(), vec![scratch("x = 1;")]).contains("plain name"));
        assert!(complaint(vec![Launch { arguments: vec!["z".into()], ..launch.clone() }], Vec::new()).contains("passed z"));
        assert!(complaint(vec![launch; MAX_LAUNCHES], Vec::new()).contains("9 launches"));
        assert!(complaint(Vec::new(), (0..9).map(|i| scratch(&format!("p{i}"))).collect()).contains("9 scratch"));
    }
}
