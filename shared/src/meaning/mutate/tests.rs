use std::collections::BTreeSet;

use super::super::fixtures;
use super::*;

#[test]
fn mutants_validate_and_differ_from_the_original_and_each_other() {
    for (name, meaning) in fixtures::all() {
        let mut seen = BTreeSet::new();
        for mutant in mutants(&meaning) {
            assert_ne!(mutant.meaning, meaning, "{name}: {}", mutant.description);
            assert_eq!(mutant.meaning.validate(), Ok(()), "{name}: {}", mutant.description);
            assert!(seen.insert(mutant.description.clone()), "{name}: {} twice", mutant.description);
        }
        assert!(!seen.is_empty(), "{name}");
    }
}

#[test]
fn one_statement_changes_at_a_time() {
    let meaning = fixtures::one("softmax");
    for mutant in mutants(&meaning) {
        let changed = |(old, new): (&super::super::Node, &super::super::Node)| {
            let statements = old.body.iter().zip(&new.body).filter(|(a, b)| a != b).count();
            statements + usize::from((&old.iter, &old.reduce) != (&new.iter, &new.reduce))
        };
        let changes: usize = meaning.nodes.iter().zip(&mutant.meaning.nodes).map(changed).sum();
        assert_eq!(changes, 1, "{}", mutant.description);
    }
}

#[test]
fn the_kinds_that_a_referee_must_notice_are_there() {
    let descriptions: Vec<String> =
        fixtures::all().iter().flat_map(|(_, meaning)| mutants(meaning).map(|m| m.description).collect::<Vec<_>>()).collect();
    let kinds = [
        "add -> sub",
        "exp -> exp2",
        "arguments of sub swapped",
        "second argument of add dropped",
        "constant 0.5 -> 0.505",
        "Sum -> Max",
        "Argmax -> Argmin",
        "reversed in",
        "is one too far",
        "is one short",
        "lt -> le",
        "branches of where swapped",
        "mask does not hold",
        "overwrites where it should add",
        "result 0 -> 1",
    ];
    for kind in kinds {
        assert!(descriptions.iter().any(|d| d.contains(kind)), "no mutant of kind {kind:?}");
    }
}
