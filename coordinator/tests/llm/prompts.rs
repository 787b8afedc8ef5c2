//! What a model is told: small, and the same whenever it is told.

use kernelopt_coordinator::llm::{LLM, LlmProposer};
use kernelopt_coordinator::search::allowance::Most;
use kernelopt_coordinator::search::proposer::{Judged, Proposer, Scene};
use kernelopt_coordinator::search::rank::Weight;
use kernelopt_shared::verdict::Verdict;

use super::rig::{faster, good_candidates, target};

#[test]
fn a_prompt_says_what_is_known_and_stays_small() {
    let target = target();
    let good = good_candidates(3);
    let wrong = Verdict::Wrong { reason: "out_ptr2 is off".repeat(200) };
    let verdicts = [faster(1.31), wrong.clone(), wrong];
    let history: Vec<Judged> = good.iter().cloned().zip(verdicts).map(|(candidate, verdict)| Judged { candidate, verdict }).collect();
    let weight = Weight { model_us: 280.0, share: 0.9, floor_us: 130.0 };
    let ask = |history: &[Judged]| {
        let scene = Scene { weight, ..Scene::of(&target, history, 4) };
        let mut questions = LlmProposer::new(LLM, "m").propose(&scene).questions;
        assert_eq!(questions.len(), 1);
        questions.remove(0)
    };
    let question = ask(&history);
    assert_eq!(ask(&history), question);
    let told = &question.turns[1].content;
    for words in [
        "in_ptr0: *bf16, bfloat16 [4096, 32768]",
        "Bytes that one launch must move: 536870912",
        "280.0 us, 90 %",
        "(46 % of the roofline)",
        "1.31x",
        "Its results are wrong",
    ] {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
    assert!(!told.contains("triton_meta"), "the compiler's metadata is no code");
    assert_eq!(told.matches("Its results are wrong").count(), 1, "one failure of a kind");
    // The paper's prompts had 60,000 tokens of profile.
    let most = Most::of(&question).input;
    let first = Most::of(&ask(&[])).input;
    eprintln!("softmax in Triton: {first} tokens at most, {most} with the best so far and a failure");
    assert!(most < 4_000 && first < 3_000, "{first}, {most} tokens at most");
}

#[test]
fn nothing_is_asked_where_nothing_is_to_be_won() {
    let target = target();
    let asks = |weight| !LlmProposer::new(LLM, "m").propose(&Scene { weight, ..Scene::of(&target, &[], 4) }).questions.is_empty();
    assert!(asks(Weight { model_us: 280.0, share: 0.5, floor_us: 130.0 }));
    assert!(!asks(Weight { model_us: 133.0, share: 0.5, floor_us: 130.0 }), "at the roofline");
    assert!(!asks(Weight { model_us: 280.0, share: 0.004, floor_us: 130.0 }), "half a percent of the model");
}
