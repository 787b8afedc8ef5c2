//! Budgets: at no instant can what is spent and what is out exceed them.

use kernelopt_coordinator::search::allowance::Most;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::language_model::{Answer, NanoUsd, Question, TokenUsage, Unanswered};
use kernelopt_shared::verdict::Verdict;

use super::rig::{End, Rig, answer, faster, good_candidates, terms, text_of};

fn good(_: &Candidate) -> Verdict {
    faster(1.5)
}

/// An answer that takes all that it may.
fn greedy(question: &Question) -> Result<Answer, Unanswered> {
    let most = Most::of(question);
    let usage = TokenUsage { input_tokens: most.input, cached_input_tokens: 0, output_tokens: most.output };
    Ok(Answer { usage, ..answer(&text_of(&good_candidates(1)[0])) })
}

#[test]
fn tokens_are_never_overrun() {
    let all = {
        let mut rig = Rig::new(terms(u64::MAX, NanoUsd::ZERO), false, greedy, good);
        rig.run(usize::MAX, |_| 0);
        rig.spent().tokens
    };
    assert!(all > 60_000, "{all}");
    for max_tokens in [0, 1, 1_000, 5_000, 20_000, 24_000, 45_000, 50_000, 66_000, 100_000, all - 1, all] {
        for pick in [(|_| 0) as fn(usize) -> usize, |count| count - 1] {
            let mut rig = Rig::new(terms(max_tokens, NanoUsd::ZERO), false, greedy, good);
            assert_eq!(rig.run(usize::MAX, pick), End::Searched);
            assert!(rig.most_tokens <= max_tokens, "{} of {max_tokens}", rig.most_tokens);
            assert_eq!(rig.asked.is_empty(), max_tokens < 7_000, "{max_tokens}: {:?}", rig.asked);
        }
    }
}

#[test]
fn money_is_never_overrun_by_more_than_the_first_question() {
    // Three dollars a million tokens of prompt, fifteen a million of answers.
    let priced = |question: &Question| {
        let said = greedy(question)?;
        Ok(Answer { cost: NanoUsd(said.usage.input_tokens * 3_000 + said.usage.output_tokens * 15_000), ..said })
    };
    for cents in [1_u64, 10, 30, 40, 60, 100] {
        let max_cost = NanoUsd(cents * 10_000_000);
        let mut rig = Rig::new(terms(u64::MAX, max_cost), false, priced, good);
        assert_eq!(rig.run(usize::MAX, |_| 0), End::Searched);
        let first = NanoUsd(100_000_000);
        assert!(rig.spent().cost <= max_cost.max(first), "{} of {max_cost}", rig.spent().cost);
        assert!(!rig.asked.is_empty());
    }
    // Where nothing is known of the price, one question is out at a time; with one that costs nothing, all are.
    let mut rig = Rig::new(terms(u64::MAX, NanoUsd(1)), false, greedy, good);
    rig.run(usize::MAX, |_| 0);
    assert_eq!((rig.most_in_flight, rig.spent().cost), (3, NanoUsd::ZERO));
}

#[test]
fn a_provider_that_lies_about_its_usage_is_stopped_by_what_it_says() {
    let lying =
        |question: &Question| Ok(Answer { usage: TokenUsage { output_tokens: u64::MAX, ..TokenUsage::default() }, ..greedy(question)? });
    let mut rig = Rig::new(terms(1_000_000, NanoUsd::ZERO), false, lying, good);
    assert_eq!(rig.run(usize::MAX, |_| 0), End::Searched);
    assert_eq!(rig.asked.len(), 1);
}

#[test]
fn when_the_time_is_up_what_is_out_is_dropped() {
    let mut short = terms(u64::MAX, NanoUsd::ZERO);
    short.max_candidates = 1;
    let mut rig = Rig::new(short, false, greedy, good);
    assert_eq!(rig.run(usize::MAX, |count| count - 1), End::Searched);
    assert!(rig.hushed > 0, "one candidate is all that may be judged, and two questions were out");
}
