//! Everything that an answer may be: a candidate, or a sentence that says why not.

use kernelopt_coordinator::llm::{Reading, read};
use kernelopt_shared::candidate::Origin;
use kernelopt_shared::language_model::StopReason;
use kernelopt_shared::target::{Language, Target};
use proptest::prelude::*;

use super::rig::{answer, good_candidates, target, text_of};

fn origin() -> Origin {
    Origin { proposer: "llm".into(), note: String::new(), parent: None, round: 0 }
}

fn refusal(text: &str, target: &Target) -> String {
    match read(&answer(text), target, origin()) {
        Reading::Refused(why) => why.to_string(),
        Reading::Candidate(candidate) => panic!("taken: {}", candidate.source),
    }
}

#[test]
fn what_the_schedule_writes_is_read_back_as_it_was() {
    let target = target();
    let all = good_candidates(usize::MAX);
    assert!(all.len() > 20, "{}", all.len());
    for candidate in all {
        match read(&answer(&text_of(candidate)), &target, origin()) {
            Reading::Candidate(read) => {
                assert_eq!(
                    (read.launch.as_ref(), &read.further, &read.scratch),
                    (candidate.launch.as_ref(), &candidate.further, &candidate.scratch)
                );
                assert_eq!(read.source.trim(), candidate.source.trim());
            }
            Reading::Refused(why) => panic!("{}: {why}", candidate.origin.note),
        }
    }
}

#[test]
fn what_is_not_asked_for_is_refused_with_a_reason() {
    let target = target();
    let good = text_of(&good_candidates(1)[0]);
    let (python, json) = good.split_once("```json").unwrap();
    let with_body = |line: &str| good.replacen("):\n", &format!("):\n    {line}\n"), 1);
    let before = |line: &str| good.replacen("@triton.jit", &format!("{line}\n@triton.jit"), 1);
    let cases = [
        (String::new(), "no ```python block"),
        (python.to_owned(), "no ```json block"),
        (format!("{good}\n```python\nx = 1\n```"), "several ```python blocks"),
        (format!("{good}\n```sh\nrm -rf /\n```"), "3 fenced blocks"),
        (format!("{python}```json{}", json.replace("```", "")), "has no end"),
        (good.replace("\"num_warps\"", "\"warps\""), "not what was asked for"),
        (good.replace("\"launches\"", "\"launch\""), "not what was asked for"),
        (good.replacen("\"num_warps\":", "\"num_warps\":3, \"x\":", 1), "not what was asked for"),
        (before("import os"), "import of os"),
        (before("from triton.runtime import driver"), "import of triton.runtime.driver"),
        (before("from torch._inductor.runtime import triton_heuristics"), "import of torch._inductor.runtime.triton_heuristics"),
        (before("from . import x"), "import of"),
        (before("print(1)"), "only imports, constants"),
        (before("A = [1, 2]"), "made of numbers"),
        (before("A = __import__('os')"), "made of numbers"),
        (before("class A: pass"), "only imports, constants"),
        (before("@triton.autotune(configs=[], key=[])"), "@triton.jit and nothing else"),
        (good.replacen("@triton.jit", "@triton.jit(debug=True)", 1), "@triton.jit and nothing else"),
        (with_body("import os"), "an import within"),
        (with_body("x = tl.inline_asm_elementwise('', '', [], tl.int32, True, 1)"), "inline_asm_elementwise is not allowed"),
        (with_body("x = tl.__class__"), "__class__ is not allowed"),
        (with_body("eval('1')"), "eval is not allowed"),
        (with_body("def f(): pass"), "a function within"),
        (good.replacen("def kernel(in_ptr0, ", "def kernel(", 1), "its launch passes (in_ptr0"),
        (good.replacen("def kernel(in_ptr0", "def kernel(*args, in_ptr0", 1), "plain parameters only"),
        (good.replacen("def kernel", "def other", 1), "no function kernel"),
        (good.replacen("import triton\n", "import triton\n\u{7}", 1), "control character U+0007"),
        (good.replacen("@triton.jit", &format!("# {}\n@triton.jit", "x".repeat(140_000)), 1), "bytes; at most"),
        ("x".repeat(300_000), "bytes; at most"),
    ];
    for (text, words) in cases {
        let why = refusal(&text, &target);
        assert!(why.contains(words), "{words:?} is not in {why:?}");
    }
}

#[test]
fn a_launch_that_cannot_be_made_is_refused() {
    let target = target();
    let candidate = &good_candidates(1)[0];
    let with = |change: fn(&mut kernelopt_shared::launch::Launch)| {
        let mut changed = candidate.clone();
        changed.launch.as_mut().map(change).unwrap();
        refusal(&text_of(&changed), &target)
    };
    assert!(with(|launch| launch.num_warps = 3).contains("3 warps"));
    assert!(with(|launch| launch.grid[0] = "0".parse().unwrap()).contains("extent is 0"));
    assert!(with(|launch| launch.grid[1] = "nobody".parse().unwrap()).contains("has no value"));
    assert!(with(|launch| launch.arguments = vec!["nobody".into()]).contains("neither an argument"));
    assert!(with(|launch| launch.constants.clear()).contains("no value"));
}

#[test]
fn an_answer_in_cpp_is_one_block_with_the_entry() {
    let mut target = target();
    target.baseline.language = Language::Cpp;
    let good = "IDEA: short\n```cpp\nextern \"C\" void kernel(const float* x, float* y) { *y = *x; }\n```\n";
    assert!(matches!(read(&answer(good), &target, origin()), Reading::Candidate(c) if c.origin.note == "short" && c.launch.is_none()));
    assert!(refusal(&good.replace("cpp\n", "c\n"), &target).contains("no ```cpp block"));
    assert!(refusal(&good.replace("*y = *x;", "asm(\"nop\");"), &target).contains("asm is not allowed"));
    assert!(refusal(&format!("{good}{good}"), &target).contains("several"));
    for stop in [StopReason::Length, StopReason::Refusal] {
        let cut = kernelopt_shared::language_model::Answer { stop, ..answer(good) };
        assert!(matches!(read(&cut, &target, origin()), Reading::Refused(_)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_is_read_or_refused(text in "(```(python|json|cpp)?\n|@triton.jit|def kernel\\(|[{}\\[\\]:\"',a-z0-9 \n()=.+*]){0,80}") {
        let target = target();
        let _ = read(&answer(&text), &target, origin());
    }

    #[test]
    fn any_damage_is_read_or_refused(at in 0_usize..4000, junk in "\\PC{0,6}") {
        let target = target();
        let mut text = text_of(&good_candidates(1)[0]);
        let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        text.insert_str(at, &junk);
        let _ = read(&answer(&text), &target, origin());
    }
}
