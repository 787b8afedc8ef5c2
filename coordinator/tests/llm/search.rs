//! Jobs whose proposer asks: what is asked when, what becomes of answers, and what a restart or another order changes (nothing).

use std::cell::Cell;
use std::collections::BTreeSet;

use kernelopt_coordinator::journal::Event;
use kernelopt_coordinator::llm::Part;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::language_model::{Answer, NanoUsd, Question, Role, StopReason, Unanswered};
use kernelopt_shared::verdict::Verdict;

use super::rig::{End, Rig, answer, faster, good_candidates, terms, text_of};

const ENOUGH: u64 = 10_000_000;

fn part(question: &Question) -> Part {
    Part::of_id(&question.id).unwrap()
}

/// A model that plans, writes one right kernel a lineage, and one lineage that is never right.
fn model(question: &Question) -> Result<Answer, Unanswered> {
    let good = good_candidates(6);
    let text = match part(question) {
        Part::Plan(_) => "IDEA: one\nIDEA: two\nIDEA: three\n".to_owned(),
        Part::Code(0) => "Here is prose, and no kernel.".to_owned(),
        Part::Code(lineage) => text_of(&good[lineage as usize % good.len()]),
        Part::Repair(0, 1) => text_of(&good[0]).replace("tl.store", "tl.inline_asm_elementwise"),
        Part::Repair(..) => text_of(&good[4]),
    };
    Ok(answer(&text))
}

fn referee(candidate: &Candidate) -> Verdict {
    let good = good_candidates(6);
    match good.iter().position(|other| other.id() == candidate.id()) {
        Some(4) => Verdict::Wrong { reason: "out_ptr2 is off by 3".into() },
        Some(at) => faster(1.2 + 0.1 * at as f64),
        None => Verdict::BuildFailed { reason: "no such function".into() },
    }
}

#[test]
fn answers_become_candidates_and_what_is_broken_is_repaired_twice_at_most() {
    let mut rig = Rig::new(terms(ENOUGH, NanoUsd::ZERO), false, model, referee);
    assert_eq!(rig.run(usize::MAX, |_| 0), End::Searched);
    let parts: Vec<String> = rig.asked.iter().map(|id| id.splitn(3, '.').nth(2).unwrap().to_owned()).collect();
    let of_first_round = parts.iter().filter(|part| !part.ends_with('3') || part.contains("repair"));
    let repairs_of_0: Vec<&String> = of_first_round.filter(|part| part.starts_with("repair.0.")).collect();
    assert_eq!(repairs_of_0, ["repair.0.1", "repair.0.2"], "{parts:?}");
    assert_eq!(parts[0], "plan.0");
    let unique: BTreeSet<&String> = parts.iter().collect();
    assert_eq!(unique.len(), parts.len(), "no question is asked twice: {parts:?}");
    // Prose and assembly never reach an agent; a wrong kernel does, and its verdict goes back.
    assert!(rig.candidates_by("llm") >= 3, "{parts:?}");
    let state = rig.job.search().unwrap().state();
    let winner = state.targets.values().next().unwrap().winner().unwrap().0;
    assert!(winner.candidate.origin.proposer == "llm" && !winner.candidate.origin.note.is_empty());
}

#[test]
fn complaints_go_back_into_the_same_conversation() {
    let mut conversations = Vec::new();
    {
        let ask = |question: &Question| {
            conversations.push(question.clone());
            model(question)
        };
        Rig::new(terms(ENOUGH, NanoUsd::ZERO), false, ask, referee).run(usize::MAX, |_| 0);
    }
    let find = |wanted: Part| conversations.iter().find(|question| part(question) == wanted).unwrap();
    let (first, second) = (find(Part::Repair(0, 1)), find(Part::Repair(0, 2)));
    assert_eq!(first.turns.iter().map(|turn| turn.role).collect::<Vec<_>>(), [Role::System, Role::User, Role::Assistant, Role::User]);
    assert!(first.turns[3].content.contains("there is no ```python block"), "{}", first.turns[3].content);
    assert!(second.turns[3].content.contains("inline_asm_elementwise is not allowed"), "{}", second.turns[3].content);
    // What is shared comes first, so that a provider's cache of prompts hits.
    assert_eq!(first.turns[..2], find(Part::Code(0)).turns[..]);
    assert_eq!(find(Part::Plan(0)).turns[0], first.turns[0]);
    assert!(find(Part::Code(1)).turns[1].content.contains("by this idea: two"));
}

/// Kernels that were tried and questions that were asked.
fn trace(rig: &Rig<'_>) -> (BTreeSet<kernelopt_shared::digest::Digest>, BTreeSet<String>) {
    let asked = rig.journal.iter().filter_map(|entry| match &entry.event {
        Event::Asked { question, .. } => Some(question.id.clone()),
        _ => None,
    });
    (rig.tried.clone(), asked.collect())
}

#[test]
fn the_order_of_answers_changes_nothing() {
    let run = |pick: fn(usize) -> usize| {
        let mut rig = Rig::new(terms(ENOUGH, NanoUsd::ZERO), false, model, referee);
        rig.run(usize::MAX, pick);
        trace(&rig)
    };
    let first = run(|_| 0);
    assert_eq!(run(|count| count - 1), first);
    assert_eq!(run(|count| count / 2), first);
}

#[test]
fn a_job_that_is_stopped_anywhere_goes_on_where_it_was() {
    let mut whole = Rig::new(terms(ENOUGH, NanoUsd::ZERO), false, model, referee);
    whole.run(usize::MAX, |_| 0);
    let events = whole.journal.len();
    for stop in (1..events).step_by(2) {
        let mut rig = Rig::new(terms(ENOUGH, NanoUsd::ZERO), false, model, referee);
        rig.run(stop, |_| 0);
        rig.restart(false);
        rig.run(usize::MAX, |_| 0);
        assert_eq!(trace(&rig), trace(&whole), "stopped after {stop} of {events} events");
    }
}

#[test]
fn a_busy_host_costs_no_repair() {
    let unstable = |_: &Candidate| Verdict::Unstable { reason: "the host is busy".into() };
    let good = |question: &Question| Ok(answer(&text_of(&good_candidates(6)[question.sample as usize])));
    let mut rig = Rig::new(terms(ENOUGH, NanoUsd::ZERO), false, good, unstable);
    assert_eq!(rig.run(usize::MAX, |_| 0), End::Searched);
    assert_eq!((rig.tried.len(), rig.asked.len()), (3, 4), "a plan and three kernels: {:?}", rig.asked);
}

#[test]
fn waiting_for_a_model_does_not_stop_the_search() {
    let (mut evaluated, asked) = (0, Cell::new(false));
    let ask = |question: &Question| {
        asked.set(true);
        model(question)
    };
    let judge = |candidate: &Candidate| {
        if !asked.get() {
            evaluated += 1;
        }
        referee(candidate)
    };
    let mut rig = Rig::new(terms(ENOUGH, NanoUsd::ZERO), true, ask, judge);
    assert_eq!(rig.run(usize::MAX, |_| 0), End::Searched);
    drop(rig);
    assert!(evaluated > 10, "schedules are tried before a model costs anything: {evaluated}");
}

#[test]
fn whoever_does_not_answer_is_left_alone() {
    let refusals: [(fn() -> Unanswered, usize); 3] = [
        (|| Unanswered::Refused { what: "no such model".into() }, 4),
        (|| Unanswered::Unavailable { what: "connection refused".into(), retry_after: None }, 4),
        (|| Unanswered::Spent { what: "the key's budget".into() }, 1),
    ];
    for (why, most) in refusals {
        let mut rig = Rig::new(terms(ENOUGH, NanoUsd::ZERO), true, |_| Err(why()), referee);
        assert_eq!(rig.run(usize::MAX, |_| 0), End::Searched, "the search ends well");
        assert!(rig.asked.len() <= most, "{} after {} questions", why(), rig.asked.len());
        assert!(rig.candidates_by("schedule") > 10);
    }
}

#[test]
fn answers_that_are_no_kernels_end_with_the_repairs() {
    let bad = ["", "no", "```python\n", "```python\nx = 1\n```", "```json\n{}\n```\n```python\nimport os\n```"];
    for text in bad {
        let mut rig = Rig::new(terms(ENOUGH, NanoUsd::ZERO), false, |_| Ok(answer(text)), referee);
        assert_eq!(rig.run(usize::MAX, |_| 0), End::Searched);
        assert_eq!((rig.tried.len(), rig.asked.len()), (0, 1 + 3 * 3), "{text:?}: a plan, three kernels, two repairs of each");
    }
    let cut = |_: &Question| Ok(Answer { stop: StopReason::Length, ..answer(&text_of(&good_candidates(1)[0])) });
    let mut rig = Rig::new(terms(ENOUGH, NanoUsd::ZERO), false, cut, referee);
    rig.run(usize::MAX, |_| 0);
    assert!(rig.tried.is_empty(), "half a kernel is none");
}

#[test]
fn answers_of_another_time_pause_the_job_and_are_asked_for_again() {
    let mut rig = Rig::new(terms(ENOUGH, NanoUsd::ZERO), false, |_| Err(Unanswered::Later), referee);
    assert_eq!(rig.run(usize::MAX, |_| 0), End::Paused);
    assert_eq!(rig.asked.len(), 1);
    rig.restart(false);
    assert_eq!(rig.run(usize::MAX, |_| 0), End::Paused);
    assert_eq!(rig.asked[0], rig.asked[1], "the same question under the same id");
    rig.restart(false);
    rig.model = Box::new(model);
    assert_eq!(rig.run(usize::MAX, |_| 0), End::Searched);
    assert!(rig.candidates_by("llm") > 0);
}
