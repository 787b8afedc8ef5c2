use super::super::concrete::concrete;
use super::super::storage::reads_entry_value;
use super::super::{Expr, Node, Operation, Statement, StoreMode, fixtures, walk};
use super::*;

fn of(name: &str, scratch: &[&str]) -> Traffic {
    traffic(&fixtures::one(name), &scratch.iter().map(|s| (*s).to_owned()).collect())
}

#[test]
fn layer_norm_moves_its_input_parameters_and_outputs() {
    let meaning = fixtures::one("layer_norm");
    let all = traffic(&meaning, &BTreeSet::new());
    assert_eq!(all.read_bytes, 4 * (6 * 40 + 2 * 40));
    // Mean, reciprocal deviation and the result.
    assert_eq!(all.write_bytes, 4 * (6 + 6 + 6 * 40));
    assert!(all.exact);
}

#[test]
fn scratch_costs_no_write_and_rereading_no_read() {
    let all = of("softmax", &[]);
    assert_eq!((all.read_bytes, all.exact), (4 * 7 * 33, true));
    let meaning = fixtures::one("softmax");
    let outputs: Vec<&str> = meaning.arguments.iter().filter(|a| a.role != super::super::Role::In).map(|a| a.name.as_str()).collect();
    let last = outputs[outputs.len() - 1];
    let scratch: Vec<&str> = outputs.iter().copied().filter(|name| *name != last).collect();
    assert_eq!(of("softmax", &scratch).write_bytes, 4 * 7 * 33);
    assert_eq!(of("softmax", &outputs).write_bytes, 0);
}

#[test]
fn halves_of_a_concatenation_are_one_storage() {
    let meaning = fixtures::one("cat");
    let layout = Layout::of(&meaning).unwrap();
    assert_eq!(layout.storages.len(), 4, "two inputs, the concatenation, the sum");
    let moved = of("cat", &[]);
    assert_eq!((moved.read_bytes, moved.write_bytes, moved.exact), (4 * 6 * 17, 4 * 2 * 6 * 17, true));
}

#[test]
fn an_input_that_is_changed_is_read_and_written() {
    let meaning = fixtures::one("in_place");
    let moved = traffic(&meaning, &BTreeSet::new());
    assert_eq!((moved.read_bytes, moved.write_bytes), (4 * 9 * 30, 4 * (9 * 30 + 30)));
    let layout = Layout::of(&meaning).unwrap();
    let reads = reads_entry_value(&meaning, &layout);
    let changed = meaning.arguments.iter().position(|a| a.buffers == ["arg0_1"]).unwrap();
    assert!(reads[changed]);
}

#[test]
fn data_dependent_access_is_a_lower_bound() {
    let moved = of("embedding", &[]);
    assert_eq!((moved.read_bytes, moved.write_bytes, moved.exact), (8 * 20, 4 * 20 * 18, false));
}

#[test]
fn what_is_read_anyway_costs_no_more_by_index() {
    let meaning = fixtures::one("token_loss");
    let moved = traffic(&meaning, &BTreeSet::new());
    assert_eq!((moved.read_bytes, moved.exact), (2 * 4 * 3 * 70 + 8 * 3 + 2 * 4 * 3, true));
}

#[test]
fn what_an_output_holds_at_entry_is_not_read() {
    for name in ["layer_norm", "softmax", "token_loss", "gelu", "var_columns"] {
        let meaning = fixtures::one(name);
        let layout = Layout::of(&meaning).unwrap();
        for (argument, reads) in meaning.arguments.iter().zip(reads_entry_value(&meaning, &layout)) {
            assert_eq!(reads, argument.role == super::super::Role::In, "{name} {}", argument.name);
        }
    }
}

/// Bytes moved, found by walking every iteration; `None` where an access is masked or data-dependent.
fn walked(meaning: &Meaning) -> Option<(u64, u64)> {
    let layout = Layout::of(meaning).unwrap();
    let (mut read, mut written, mut stored) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut known = true;
    for node in &meaning.nodes {
        walk::each(&node.body, false, &mut |statement, masked| {
            let (buffer, index, loads, stores) = match &statement.operation {
                Operation::Load { buffer, index } => (buffer, index, true, false),
                Operation::Store { buffer, index, mode, .. } => (buffer, index, *mode == Some(StoreMode::AtomicAdd), true),
                _ => return,
            };
            let place = layout.buffers[buffer];
            let region = &layout.regions[place.region];
            let Some(home) = region.home else { return };
            let Some(elements) = (!masked).then(|| every(meaning, node, index)).flatten() else {
                known = false;
                return;
            };
            for element in elements {
                let element = place.offset as i64 + element;
                let address = (home.storage, home.offset_bytes as i64 + element * region.dtype.size_bytes() as i64);
                let size = region.dtype.size_bytes() as u64;
                if loads && !stored.contains(&(place.region, element)) {
                    read.insert((address, size));
                }
                if stores {
                    stored.insert((place.region, element));
                    written.insert((address, size));
                }
            }
        });
    }
    let bytes = |set: &BTreeSet<((usize, i64), u64)>| set.iter().map(|(_, size)| size).sum();
    known.then(|| (bytes(&read), bytes(&written)))
}

/// The value of `index` in every iteration.
fn every(meaning: &Meaning, node: &Node, index: &Expr) -> Option<Vec<i64>> {
    let axes: Vec<(&str, i64)> =
        node.iter.iter().chain(&node.reduce).map(|axis| (axis.var.as_str(), meaning.size(&axis.extent).unwrap())).collect();
    let total: i64 = axes.iter().map(|(_, extent)| extent).product();
    let value = |mut number: i64| {
        let mut at = Vec::new();
        for (name, extent) in axes.iter().rev() {
            at.push((*name, number % extent));
            number /= extent;
        }
        index.eval(&|name| at.iter().find(|(axis, _)| *axis == name).map(|(_, v)| *v).or(meaning.symbols.get(name).copied()))
    };
    (0..total).map(value).collect()
}

#[test]
fn counting_agrees_with_walking_over_every_iteration() {
    let (mut exact, mut covered) = (0, Vec::new());
    for (name, meaning) in fixtures::all() {
        let found = traffic(&meaning, &BTreeSet::new());
        match walked(&meaning) {
            Some(bytes) => {
                assert_eq!((found.read_bytes, found.write_bytes), bytes, "{name}");
                assert!(found.exact, "{name}");
                exact += 1;
            }
            None if found.exact => covered.push(name),
            None => {}
        }
    }
    assert_eq!(covered, ["cross_entropy/0", "scatter_add/0", "token_loss/0"], "gathers and scatters within what is touched anyway");
    assert!(exact >= 30, "only {exact} kernels were counted whole");
}

#[test]
fn splitting_loops_leaves_no_division_in_a_transposed_read() {
    let divisions = |node: &Node| {
        let mut count = 0;
        walk::each(&node.body, false, &mut |statement: &Statement, _| {
            let text = statement.operation.expr().map(Expr::to_string).unwrap_or_default();
            count += usize::from(text.contains("Div") || text.contains("Mod"));
        });
        count
    };
    let mut seen = 0;
    for name in ["transpose", "dynamic_view"] {
        let meaning = fixtures::one(name);
        for node in &meaning.nodes {
            seen += divisions(node);
            assert_eq!(divisions(&concrete(&meaning, node)), 0, "{name}");
        }
    }
    assert!(seen > 0, "no fixture divides");
}
