//! What plans look like: passes over a row, stores, memory.

use std::collections::BTreeSet;

use kernelopt_coordinator::schedule::emit::Team;
use kernelopt_coordinator::schedule::space::{Algebra, Keep, Threads};
use kernelopt_coordinator::schedule::{self, Schedule};
use kernelopt_shared::meaning::Meaning;

use super::kernels::fixture;

fn source(meaning: &Meaning, scratch: &[&str], schedule: &Schedule) -> String {
    let scratch: BTreeSet<String> = scratch.iter().map(|name| (*name).to_owned()).collect();
    schedule::source(meaning, &scratch, schedule, Team(Some(2))).unwrap()
}

/// Loops over blocks of the row, a remainder's loop aside.
fn passes(source: &str) -> usize {
    source.matches("for (int64_t i0_ = ").count()
}

#[test]
fn token_loss_takes_three_passes_as_written_and_two_with_factored_sums() {
    let meaning = fixture("token_loss");
    let written = Schedule::default();
    assert_eq!(passes(&source(&meaning, &[], &written)), 3);
    let factored = Schedule { algebra: Algebra { factors: true, shifts: false, exponents: true, sums: true }, ..written };
    assert_eq!(passes(&source(&meaning, &[], &factored)), 2);
}

#[test]
fn an_exponential_is_kept_or_computed_again() {
    let meaning = fixture("softmax");
    let again = source(&meaning, &[], &Schedule { keep: Keep::Nothing, ..Schedule::default() });
    let kept = source(&meaning, &[], &Schedule { keep: Keep::Costly, ..Schedule::default() });
    let calls = |source: &str| source.rsplit("extern").next().unwrap().matches("exp_low_f32(").count();
    assert_eq!((calls(&again), calls(&kept)), (2, 1));
    assert!(kept.contains("alignas(64) float row"));
}

#[test]
fn scratch_is_not_written_and_everything_else_is() {
    let meaning = fixture("softmax");
    let all = source(&meaning, &[], &Schedule::default());
    let some = source(&meaning, &["out_ptr0", "out_ptr1"], &Schedule::default());
    for name in ["out_ptr0", "out_ptr1"] {
        assert!(all.contains(&format!("{name}[")) && !some.contains(&format!("{name}[")), "{name}");
    }
    assert!(some.contains("out_ptr2["));
}

#[test]
fn zeros_are_written_before_they_are_added_to() {
    let text = source(&fixture("scatter_add"), &[], &Schedule::default());
    let (zero, add) = (text.find("out_ptr0[r0] = 0.0f").or(text.find("= 0.0f;")), text.find("+= v"));
    assert!(zero.unwrap() < add.unwrap(), "{text}");
}

#[test]
fn a_batch_norm_channel_is_a_lane() {
    let text = source(&fixture("bn_relu_mean_channels_last"), &[], &Schedule { threads: Threads::One, ..Schedule::default() });
    assert!(text.contains("r1_ + l"), "{text}");
}

#[test]
fn a_size_that_no_argument_holds_is_refused() {
    let mut meaning = fixture("layer_norm_dynamic");
    meaning.arguments.retain(|argument| argument.value.is_none());
    assert!(schedule::source(&meaning, &BTreeSet::new(), &Schedule::default(), Team(None)).is_err());
}
