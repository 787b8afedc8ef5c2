//! Maximum and sum of exponentials in one pass over a row.

use std::collections::BTreeMap;

use kernelopt_shared::meaning::Function;

use super::super::graph::{Fold, Graph, Id, Op};
use super::super::region::Region;
use super::super::rewrite::rebuilt;

/// The region with every `sum(exp(x - max x))` as one reduction of `x`, which needs no maximum first.
pub fn fuse(region: &Region) -> Region {
    let old = &region.graph;
    let (mut new, mut map) = (old.emptied(), BTreeMap::<Id, Id>::new());
    for id in old.ids() {
        let value = old.value(id).clone();
        let rebuilt = match (&value.op, value.args.as_slice()) {
            (Op::Reduce { fold: Fold::Sum, domain }, [exp]) => exponent(old, *exp, *domain).map(|x| (*domain, x)),
            _ => None,
        };
        let made = match rebuilt {
            Some((domain, x)) => new.reduce(Fold::SumExp, domain, map[&x]),
            None => new.add(value.op, value.args.iter().map(|arg| map[arg]).collect(), value.dtype),
        };
        map.insert(id, made);
    }
    rebuilt(region, new, &map)
}

/// `x` where `id` is `exp(x - max x)`, the maximum over `domain`.
fn exponent(graph: &Graph, id: Id, domain: usize) -> Option<Id> {
    let args_of = |id: Id, op: Op| Some(graph.value(id)).filter(|value| value.op == op).map(|value| value.args.as_slice());
    let [difference] = args_of(id, Op::Call(Function::Exp))? else { return None };
    let [x, max] = args_of(*difference, Op::Call(Function::Sub))? else { return None };
    let of = args_of(*max, Op::Reduce { fold: Fold::Max, domain })?;
    (of == [*x]).then_some(*x)
}
