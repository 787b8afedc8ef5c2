//! A meaning as plain C++ in double precision: every node's loops as they stand, every buffer in memory. Slow and obvious.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kernelopt_shared::meaning::{Axis, Expr, Function, Meaning, Node, Operation, ReductionKind, Scalar, Statement, StoreMode, ValueId};

/// A function `naive(memory)` over pointers to doubles by buffer name.
pub fn source(meaning: &Meaning) -> String {
    let mut out = String::from("static void naive(std::map<std::string, double*>& memory) {\n");
    for (name, value) in &meaning.symbols {
        let _ = writeln!(out, "  const int64_t {name} = {value}; (void){name};");
    }
    for node in &meaning.nodes {
        out.push_str("  {\n");
        emit(&mut out, node);
        out.push_str("  }\n");
    }
    out.push_str("}\n");
    out
}

fn open(out: &mut String, axes: &[Axis]) {
    for Axis { var, extent } in axes {
        let _ = writeln!(out, "for (int64_t {var} = 0; {var} < {}; ++{var}) {{", index(extent));
    }
}

fn close(out: &mut String, axes: &[Axis]) {
    axes.iter().for_each(|_| out.push_str("}\n"));
}

fn emit(out: &mut String, node: &Node) {
    let is_reduction = |s: &Statement| matches!(s.operation, Operation::Reduction { .. });
    let inside = node.body.iter().rposition(is_reduction).map_or(0, |last| last + 1);
    open(out, &node.iter);
    for statement in &node.body[..inside] {
        if let Operation::Reduction { kind, .. } = &statement.operation {
            let id = statement.id;
            let start = match kind {
                ReductionKind::Prod => "1",
                ReductionKind::Max | ReductionKind::OnlineSoftmaxReduce => "-INFINITY",
                ReductionKind::Min => "INFINITY",
                _ => "0",
            };
            let _ = writeln!(out, "double v{id} = {start}, v{id}_1 = 0, v{id}_2 = 0; (void)v{id}_1; (void)v{id}_2;");
        }
    }
    let mut items = BTreeMap::new();
    if inside > 0 {
        open(out, &node.reduce);
        statements(out, &node.body[..inside], &mut items);
        close(out, &node.reduce);
    }
    statements(out, &node.body[inside..], &mut items);
    close(out, &node.iter);
}

fn statements(out: &mut String, body: &[Statement], items: &mut BTreeMap<ValueId, String>) {
    for Statement { id, operation } in body {
        let v = |id: &ValueId, items: &BTreeMap<ValueId, String>| items.get(id).cloned().unwrap_or_else(|| format!("v{id}"));
        let line = match operation {
            Operation::Load { buffer, index: at } => format!("const double v{id} = memory[\"{buffer}\"][{}];", index(at)),
            Operation::Store { buffer, index: at, value, mode } => {
                let equals = if *mode == Some(StoreMode::AtomicAdd) { "+=" } else { "=" };
                format!("memory[\"{buffer}\"][{}] {equals} {};", index(at), v(value, items))
            }
            Operation::Constant { value, .. } => format!("const double v{id} = {};", scalar(*value)),
            Operation::Index { index: at, .. } => format!("const double v{id} = double({});", index(at)),
            Operation::Cast { value, dtype } if dtype.is_float() => format!("const double v{id} = {};", v(value, items)),
            Operation::Cast { value, dtype } => {
                format!("const double v{id} = double(static_cast<{}>({}));", super::harness::c_type(*dtype), v(value, items))
            }
            Operation::Bitcast { .. } => panic!("bitcast"),
            Operation::Pointwise { function, args } => {
                let args: Vec<String> = args.iter().map(|arg| v(arg, items)).collect();
                format!("const double v{id} = {};", call(*function, &args))
            }
            Operation::Reduction { kind, values, .. } => {
                reduction(*kind, *id, &values.iter().map(|value| v(value, items)).collect::<Vec<_>>())
            }
            Operation::Item { value, position } => {
                items.insert(*id, if *position == 0 { format!("v{value}") } else { format!("v{value}_{position}") });
                continue;
            }
            Operation::Masked { mask, other, body, result } => {
                let _ = writeln!(out, "double v{id} = {}; if ({} != 0) {{", scalar(*other), v(mask, items));
                statements(out, body, items);
                format!("v{id} = {}; }}", v(result, items))
            }
            Operation::Indirect { value, variable, size, wrap_negative, .. } => {
                let wrap = if *wrap_negative { format!("if ({variable} < 0) {variable} += {};", index(size)) } else { String::new() };
                format!("int64_t {variable} = int64_t({}); {wrap}", v(value, items))
            }
        };
        out.push_str(&line);
        out.push('\n');
    }
}

fn reduction(kind: ReductionKind, id: ValueId, values: &[String]) -> String {
    let x = &values[0];
    match kind {
        ReductionKind::Sum => format!("v{id} += {x};"),
        ReductionKind::Prod => format!("v{id} *= {x};"),
        ReductionKind::Max => format!("v{id} = maximum(v{id}, {x});"),
        ReductionKind::Min => format!("v{id} = minimum(v{id}, {x});"),
        ReductionKind::Any => format!("v{id} = v{id} != 0 || {x} != 0;"),
        ReductionKind::WelfordReduce => {
            format!("{{ v{id}_2 += 1; const double d = {x} - v{id}; v{id} += d / v{id}_2; v{id}_1 += d * ({x} - v{id}); }}")
        }
        ReductionKind::OnlineSoftmaxReduce => {
            format!(
                "{{ const double m = maximum(v{id}, {x}); v{id}_1 = (v{id} == -INFINITY ? 0 : v{id}_1 * std::exp(v{id} - m)) + std::exp({x} - m); v{id} = m; }}"
            )
        }
        other => panic!("{other:?}"),
    }
}

fn scalar(value: Scalar) -> String {
    match value {
        Scalar::Int(value) => format!("{value}.0"),
        Scalar::Float(value) if value.is_nan() => "NAN".into(),
        Scalar::Float(value) if value.is_infinite() => if value > 0.0 { "INFINITY" } else { "-INFINITY" }.into(),
        Scalar::Float(value) => format!("{value:?}"),
    }
}

/// C++ of an index expression.
pub fn index(expr: &Expr) -> String {
    let join = |items: &[Expr], separator: &str| items.iter().map(index).collect::<Vec<_>>().join(separator);
    let nest = |f: &str, items: &[Expr]| {
        items[1..].iter().fold(index(&items[0]), |so_far, item| format!("std::{f}<int64_t>({so_far}, {})", index(item)))
    };
    match expr {
        Expr::Int(value) => format!("int64_t({value})"),
        Expr::Var(name) => name.clone(),
        Expr::Add(items) => format!("({})", join(items, " + ")),
        Expr::Mul(items) => format!("({})", join(items, " * ")),
        Expr::FloorDiv(a, b) => format!("int64_t(std::floor(double({}) / double({})))", index(a), index(b)),
        Expr::Mod(a, b) => format!("python_mod({}, {})", index(a), index(b)),
        Expr::Min(items) => nest("min", items),
        Expr::Max(items) => nest("max", items),
        Expr::Where(c, a, b) => format!("({} {} {} ? {} : {})", index(&c.left), c.comparison.symbol(), index(&c.right), index(a), index(b)),
    }
}

fn call(function: Function, args: &[String]) -> String {
    use Function::*;
    let (a, b) = (args[0].as_str(), args.get(1).map_or("", String::as_str));
    match function {
        Add => format!("{a} + {b}"),
        Sub => format!("{a} - {b}"),
        Mul => format!("{a} * {b}"),
        Truediv => format!("{a} / {b}"),
        Maximum => format!("maximum({a}, {b})"),
        Minimum => format!("minimum({a}, {b})"),
        Eq => format!("{a} == {b}"),
        Ne => format!("{a} != {b}"),
        Lt => format!("{a} < {b}"),
        Gt => format!("{a} > {b}"),
        Le => format!("{a} <= {b}"),
        Ge => format!("{a} >= {b}"),
        LogicalAnd | BitwiseAnd => format!("({a} != 0) && ({b} != 0)"),
        LogicalOr | BitwiseOr => format!("({a} != 0) || ({b} != 0)"),
        LogicalNot | BitwiseNot => format!("!({a} != 0)"),
        Where => format!("{a} != 0 ? {b} : {}", args[2]),
        Fma => format!("{a} * {b} + {}", args[2]),
        Neg => format!("-{a}"),
        Abs => format!("std::fabs({a})"),
        Square => format!("{a} * {a}"),
        Reciprocal => format!("1 / {a}"),
        Relu => format!("({a} < 0 ? 0 : {a})"),
        Identity => a.to_owned(),
        Sigmoid => format!("1 / (1 + std::exp(-{a}))"),
        Rsqrt => format!("1 / std::sqrt({a})"),
        Round => format!("std::nearbyint({a})"),
        Isnan => format!("std::isnan({a})"),
        other => format!("std::{}({})", other.name(), args.join(", ")),
    }
}
