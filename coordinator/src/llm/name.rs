//! Ids of questions: they stay the same when a job is resumed, and say what the question is for.

use std::fmt;

use kernelopt_shared::digest::Digest;

/// Digits of a target's digest in an id.
const DIGITS: usize = 8;

/// Which question about a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// For the ideas of a round.
    Plan(u32),
    /// For a kernel: the beginning of a lineage.
    Code(u32),
    /// For the repair of a lineage's last kernel: the lineage, and which repair of it, from one.
    Repair(u32, u32),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(round) => write!(f, "plan.{round}"),
            Self::Code(lineage) => write!(f, "code.{lineage}"),
            Self::Repair(lineage, number) => write!(f, "repair.{lineage}.{number}"),
        }
    }
}

impl Part {
    /// Reads one as it is written.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split('.');
        let role = words.next()?;
        let numbers: Vec<u32> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        match (role, numbers.as_slice()) {
            ("plan", [round]) => Some(Self::Plan(*round)),
            ("code", [lineage]) => Some(Self::Code(*lineage)),
            ("repair", [lineage, number]) => Some(Self::Repair(*lineage, *number)),
            _ => None,
        }
    }

    /// Of the question with this id.
    pub fn of_id(id: &str) -> Option<Self> {
        Self::parse(id.splitn(3, '.').nth(2)?)
    }
}

/// The id of a question about the kernel of this name in this graph: `0.1a2b3c4d.code.2`.
pub fn question_id(graph: u32, kernel: &str, part: Part) -> String {
    let digest = Digest::of([kernel.as_bytes()]).to_string();
    format!("{graph}.{}.{part}", &digest[..DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_what_it_is_for() {
        for part in [Part::Plan(0), Part::Code(11), Part::Repair(4, 2)] {
            let id = question_id(3, "triton_red_fused_0", part);
            assert_eq!(Part::of_id(&id), Some(part));
            assert!(id.len() <= 64 && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b)), "{id}");
        }
        for bad in ["", "0.1a2b3c4d", "0.1a2b3c4d.code", "0.1a2b3c4d.code.x", "0.1a2b3c4d.judge.1", "0.1a2b3c4d.repair.1"] {
            assert_eq!(Part::of_id(bad), None, "{bad}");
        }
    }
}
