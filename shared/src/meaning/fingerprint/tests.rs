use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::fixtures;
use super::super::mutate::mutants;
use super::*;

/// A copy with other names, other value numbers and the terms of every sum and product turned by `turn`.
fn renamed(meaning: &Meaning, salt: &str, turn: usize) -> Meaning {
    let buffer = |name: &str| format!("{salt}_{name}");
    let symbol = |name: &str| format!("q{salt}{}", name.bytes().map(|b| format!("{b:x}")).collect::<String>());
    let expr = |e: &Expr| {
        turned(&e.map_vars(&mut |name| Expr::var(if meaning.symbols.contains_key(name) { symbol(name) } else { buffer(name) })), turn)
    };
    let mut copy = meaning.clone();
    copy.kernel = buffer(&meaning.kernel);
    copy.symbols = meaning.symbols.iter().map(|(name, value)| (symbol(name), *value)).collect();
    for argument in &mut copy.arguments {
        argument.name = buffer(&argument.name);
        argument.buffers.iter_mut().for_each(|name| *name = buffer(name));
        argument.value = argument.value.as_ref().map(expr);
    }
    copy.buffers = meaning.buffers.iter().map(|(name, b)| (buffer(name), b.clone())).collect();
    for b in copy.buffers.values_mut() {
        b.size.iter_mut().chain(&mut b.stride).chain([&mut b.offset]).for_each(|e| *e = expr(e));
        b.mutates = b.mutates.as_deref().map(buffer);
        b.alias.iter_mut().for_each(|alias| (alias.of, alias.offset) = (buffer(&alias.of), expr(&alias.offset)));
    }
    for node in &mut copy.nodes {
        node.name = buffer(&node.name);
        for axis in node.iter.iter_mut().chain(&mut node.reduce) {
            (axis.var, axis.extent) = (buffer(&axis.var), expr(&axis.extent));
        }
        walk::each_mut(&mut node.body, &mut |statement| {
            statement.id = 7 * statement.id + 3;
            statement.operation.values_mut().into_iter().for_each(|value| *value = 7 * *value + 3);
            statement.operation.buffer_mut().into_iter().for_each(|name| *name = buffer(name));
            statement.operation.expr_mut().into_iter().for_each(|e| *e = expr(e));
            if let Operation::Indirect { variable, .. } = &mut statement.operation {
                *variable = buffer(variable);
            }
        });
    }
    copy
}

fn turned(expr: &Expr, turn: usize) -> Expr {
    let all = |items: &[Expr]| {
        let mut items: Vec<Expr> = items.iter().map(|item| turned(item, turn)).collect();
        let by = turn % items.len();
        items.rotate_left(by);
        items
    };
    match expr {
        Expr::Add(items) => Expr::Add(all(items)),
        Expr::Mul(items) => Expr::Mul(all(items)),
        Expr::FloorDiv(a, b) => Expr::FloorDiv(Box::new(turned(a, turn)), Box::new(turned(b, turn))),
        Expr::Mod(a, b) => Expr::Mod(Box::new(turned(a, turn)), Box::new(turned(b, turn))),
        other => other.clone(),
    }
}

#[test]
fn names_and_the_order_of_terms_are_left_out() {
    for (name, meaning) in fixtures::all() {
        for (salt, turn) in [("a", 0), ("zz", 1), ("m", 2)] {
            let copy = renamed(&meaning, salt, turn);
            assert_eq!(copy.validate(), Ok(()), "{name}");
            assert_eq!(fingerprint(&copy), fingerprint(&meaning), "{name} {salt}");
        }
    }
}

#[test]
fn different_kernels_differ() {
    let all = fixtures::all();
    let prints: BTreeSet<Digest> = all.iter().map(|(_, meaning)| fingerprint(meaning)).collect();
    assert_eq!(prints.len(), all.len());
}

#[test]
fn every_mutant_differs() {
    let mut count = 0;
    for (name, meaning) in fixtures::all() {
        let own = fingerprint(&meaning);
        for mutant in mutants(&meaning) {
            assert_ne!(fingerprint(&mutant.meaning), own, "{name}: {}", mutant.description);
            count += 1;
        }
    }
    assert!(count > 1000, "only {count} mutants");
}

#[test]
fn types_roles_sizes_and_storage_count() {
    let meaning = fixtures::one("layer_norm_dynamic");
    let own = fingerprint(&meaning);
    let differs = |change: &dyn Fn(&mut Meaning)| {
        let mut copy = meaning.clone();
        change(&mut copy);
        assert_ne!(fingerprint(&copy), own);
    };
    differs(&|m| m.arguments[0].c_type = "const double*".into());
    differs(&|m| m.arguments.swap(0, 1));
    differs(&|m| m.arguments[0].role = super::super::Role::Out);
    differs(&|m| m.buffers.values_mut().for_each(|b| b.dtype = crate::dtype::Dtype::Float64));
    differs(&|m| m.symbols.values_mut().for_each(|value| *value += 1));
    differs(&|m| m.nodes.swap(0, 1));
}

proptest! {
    #[test]
    fn symbols_are_numbered_whatever_their_names(values in prop::collection::btree_map("[a-z]{1,3}", 1i64..9, 3..6), turn in 0usize..5) {
        let names: Vec<&String> = values.keys().collect();
        // Terms that no symbol's name, only its place, tells apart.
        let terms = names.iter().enumerate().map(|(k, name)| Expr::mul(vec![Expr::Int(k as i64 + 2), Expr::var(name.as_str())]));
        let sum = Expr::add(terms.collect());
        let mut meaning = fixtures::one("gelu");
        meaning.symbols = values.clone();
        meaning.nodes[0].iter[0].extent = sum.clone();
        let mut copy = meaning.clone();
        // The reverse of the names' order.
        let other = |name: &str| format!("x{}", names.len() - names.iter().position(|n| *n == name).unwrap());
        copy.symbols = values.iter().map(|(name, value)| (other(name), *value)).collect();
        copy.nodes[0].iter[0].extent = turned(&sum.map_vars(&mut |name| Expr::var(other(name))), turn);
        prop_assert_eq!(fingerprint(&copy), fingerprint(&meaning));
    }
}
