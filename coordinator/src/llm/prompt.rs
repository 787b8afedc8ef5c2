//! What a model is told. What many questions share comes first, so that providers' prompt caches hit: the contract and the device are those of
//! a job, the target's description is that of all its questions, what was found so far that of a round, and the role's own words are last.

use kernelopt_shared::language_model::{Answer, Question, Role, Turn};
use kernelopt_shared::target::Language;

use super::facts;
use crate::search::proposer::Scene;

const CPP: &str = include_str!("prompts/contract_cpp.md");
const TRITON: &str = include_str!("prompts/contract_triton.md");
const PLANNER: &str = include_str!("prompts/planner.md");
const CODER: &str = include_str!("prompts/coder.md");
const REPAIR: &str = include_str!("prompts/repair.md");

/// Longest answer that is repeated in a repair, in bytes.
const REPEATED: usize = 32 << 10;
/// Longest complaint, in characters.
const COMPLAINT: usize = 2_000;

/// For the planner: `count` ideas.
pub(super) fn plan(scene: &Scene<'_>, count: u32) -> Vec<Turn> {
    question(scene, &fill(PLANNER, &[("count", &count.to_string())]))
}

/// For the coder: a kernel by an idea of the planner's, or by its own.
pub(super) fn code(scene: &Scene<'_>, idea: Option<&str>) -> Vec<Turn> {
    question(scene, &fill(CODER, &[("idea", idea.unwrap_or("your own best one, and another than what was tried"))]))
}

/// For the coder again: what is wrong with what it said.
pub(super) fn repair(code: &Question, answer: &Answer, why: &str) -> Vec<Turn> {
    let complaint: String = why.chars().take(COMPLAINT).collect();
    let mut turns = code.turns.clone();
    turns.push(Turn { role: Role::Assistant, content: cut(&answer.text, REPEATED).to_owned() });
    turns.push(Turn { role: Role::User, content: fill(REPAIR, &[("why", &complaint)]) });
    turns
}

fn question(scene: &Scene<'_>, task: &str) -> Vec<Turn> {
    let contract = match scene.target.baseline.language {
        Language::Triton => TRITON,
        Language::Cpp | Language::Cuda => CPP,
    };
    let standing = fill(contract, &[("device", &facts::device(scene))]);
    let (target, progress) = (facts::target(scene), facts::progress(scene));
    let content = [target.as_str(), progress.as_str(), task].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
    vec![Turn { role: Role::System, content: standing }, Turn { role: Role::User, content }]
}

/// `{{name}}` becomes its value; in one pass, so that nothing in a value is taken for a name.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        text.push_str(before);
        let named = after.split_once("}}").and_then(|(name, after)| Some((values.iter().find(|(n, _)| *n == name)?.1, after)));
        match named {
            Some((value, after)) => {
                text.push_str(value);
                rest = after;
            }
            None => {
                text.push_str("{{");
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_no_template() {
        assert_eq!(fill("a {{x}} {{y}} {{z}}", &[("x", "{{y}}"), ("y", "1")]), "a {{y}} 1 {{z}}");
        assert_eq!(fill("{{", &[]), "{{");
    }

    #[test]
    fn templates_name_nothing_that_is_not_given() {
        let given =
            [(CPP, vec!["device"]), (TRITON, vec!["device"]), (PLANNER, vec!["count"]), (CODER, vec!["idea"]), (REPAIR, vec!["why"])];
        for (template, names) in given {
            let values: Vec<(&str, &str)> = names.iter().map(|name| (*name, "")).collect();
            assert!(!fill(template, &values).contains("{{"), "{template}");
            names.iter().for_each(|name| assert!(template.contains(&format!("{{{{{name}}}}}")), "{name}"));
        }
    }
}
