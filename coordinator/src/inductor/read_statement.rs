//! Statements of the Python tree to [`StatementKind`]s.

use ruff_python_ast::{Arguments, Expr, ExprCall, Stmt, StmtAssert, StmtAssign, StmtIf, StmtWith};
use ruff_text_size::Ranged;

use super::operators::{self, Operator, Runtime};
use super::read_value::span_of;
use super::reader::{Local, Reader};
use super::scope::Binding;
use super::statement::{CallResults, Callee, CopyTarget, Launch, StatementKind, Vendor};
use super::text::Span;
use super::value::{Scalar, Value};

impl Reader<'_> {
    /// Reads one statement; what is not understood is kept as opaque.
    pub(super) fn statement(&mut self, statement: &Stmt) {
        let read = match statement {
            Stmt::Assign(assign) => self.assign(assign),
            Stmt::Expr(expr) => match &*expr.value {
                Expr::Call(call) => self.call(call, None),
                _ => None,
            },
            Stmt::Delete(delete) => self.delete(&delete.targets),
            Stmt::Return(ret) => self.returned(ret.value.as_deref()),
            Stmt::Assert(assert) => self.assertion(assert),
            Stmt::If(check) => self.raising_check(check),
            Stmt::Pass(_) => Some(StatementKind::Host { name: None }),
            Stmt::Import(_) | Stmt::ImportFrom(_) => return self.import(statement),
            Stmt::With(with) if self.guard(with) => return,
            _ => None,
        };
        match read {
            Some(kind) => {
                self.note(&kind);
                self.push(span_of(statement), kind);
            }
            None => self.opaque(statement),
        }
    }

    /// Notes what the statement makes of its names.
    fn note(&mut self, kind: &StatementKind) {
        match kind {
            StatementKind::Unpack { names } => names.iter().for_each(|name| self.set(name, Local::Input)),
            StatementKind::Symbol { name, .. } | StatementKind::Scalar { name, .. } | StatementKind::Host { name: Some(name) } => {
                self.set(name, Local::Number);
            }
            StatementKind::Allocate { name, .. } => self.set(name, Local::Buffer),
            StatementKind::Copy { target: CopyTarget::New(name), .. } => self.set(name, Local::Buffer),
            StatementKind::Assertion { layout: Some((name, _)), .. } => self.set(name, Local::Buffer),
            StatementKind::Bind { name, value } => {
                let local = match value {
                    Value::View(_) => Local::Buffer,
                    Value::Name(source) => self.local(source).unwrap_or(Local::Result),
                    _ => Local::Result,
                };
                self.set(name, local);
            }
            StatementKind::Nothing { name } => self.set(name, Local::Nothing),
            StatementKind::Free { names } => names.iter().for_each(|name| self.unset(name)),
            StatementKind::Vendor(Vendor { result: Some(name), .. }) => self.set(name, Local::Result),
            StatementKind::Pack { name, .. } => self.set(name, Local::List),
            StatementKind::Call { results: CallResults::Tuple(name), .. } => self.set(name, Local::Result),
            StatementKind::Call { results: CallResults::Each(names), .. } => names.iter().for_each(|name| self.set(name, Local::Result)),
            _ => {}
        }
    }

    fn assign(&self, assign: &StmtAssign) -> Option<StatementKind> {
        let [target] = assign.targets.as_slice() else { return None };
        match target {
            Expr::Tuple(tuple) => self.assign_each(&tuple.elts, &assign.value),
            Expr::List(list) => self.assign_each(&list.elts, &assign.value),
            Expr::Name(name) => self.assign_name(name.id.as_str(), &assign.value),
            _ => None,
        }
    }

    /// `a, b = args` or `(a, b) = self.partitions[0](partition0_args)`.
    fn assign_each(&self, targets: &[Expr], value: &Expr) -> Option<StatementKind> {
        let names = names_of(targets)?;
        match value {
            Expr::Name(source) if source.id.as_str() == self.arguments => Some(StatementKind::Unpack { names }),
            Expr::Call(call) => self.function_call(call, CallResults::Each(names)),
            _ => None,
        }
    }

    fn assign_name(&self, name: &str, value: &Expr) -> Option<StatementKind> {
        let name = name.to_owned();
        if let Expr::Call(call) = value
            && let Some(kind) = self.call(call, Some(&name))
        {
            return Some(kind);
        }
        // `buf1 = [None] * 2` makes room for what a subgraph gives.
        if let Expr::BinOp(product) = value
            && let Some(Value::List(items)) = self.value(&product.left)
            && items.iter().all(|item| *item == Value::None)
            && matches!(self.value(&product.right), Some(Value::Scalar(_)))
        {
            return Some(StatementKind::Pack { name, items: Vec::new() });
        }
        Some(match self.value(value)? {
            Value::None => StatementKind::Nothing { name },
            Value::List(items) => StatementKind::Pack { name, items },
            Value::Scalar(value) if is_symbol(&name) => StatementKind::Symbol { name, value },
            Value::Scalar(value) => StatementKind::Scalar { name, value },
            Value::Name(source) if is_symbol(&name) && self.local(&source) == Some(Local::Input) => {
                StatementKind::Symbol { name, value: Scalar { text: source, reads: Vec::new() } }
            }
            value => StatementKind::Bind { name, value },
        })
    }

    /// A call as a statement, or the right side of `result = call`.
    fn call(&self, call: &ExprCall, result: Option<&str>) -> Option<StatementKind> {
        if let Some(path) = self.path(&call.func) {
            return match operators::runtime(&path) {
                Some(runtime) => self.runtime_call(runtime, &call.arguments, result),
                None => self.operator_call(&path, &call.arguments, result),
            };
        }
        if let Some(launch) = self.launch(call) {
            return result.is_none().then_some(StatementKind::Launch(launch));
        }
        match (&*call.func, result) {
            (Expr::Attribute(method), None) => self.method_call(&method.value, method.attr.as_str(), &call.arguments),
            // `empty_strided_cpu(...).as_strided(...)`: an allocation with room to spare.
            (Expr::Attribute(method), Some(name)) if method.attr.as_str() == "as_strided" => match &*method.value {
                Expr::Call(inner) => match (self.call(inner, Some(name))?, &*call.arguments.args) {
                    (StatementKind::Allocate { name, layout: Some(full) }, [size, stride]) => {
                        let layout = self.layout(size, stride, None)?;
                        Some(StatementKind::Allocate { name, layout: Some(super::value::Layout { dtype: full.dtype, ..layout }) })
                    }
                    _ => None,
                },
                _ => None,
            },
            (_, Some(name)) => self.function_call(call, CallResults::Tuple(name.to_owned())),
            _ => None,
        }
    }

    fn runtime_call(&self, runtime: Runtime, arguments: &Arguments, result: Option<&str>) -> Option<StatementKind> {
        // Whatever is passed must be understood, messages included: it is evaluated.
        self.values(arguments.args.iter().chain(arguments.keywords.iter().map(|keyword| &keyword.value)))?;
        match (runtime, result) {
            (Runtime::EmptyStrided, Some(name)) => {
                let layout = match &*arguments.args {
                    [size, stride, dtype, ..] => self.layout(size, stride, Some(dtype))?,
                    [size, stride] => self.layout(size, stride, keyword(arguments, "dtype"))?,
                    _ => return None,
                };
                Some(StatementKind::Allocate { name: name.to_owned(), layout: Some(layout) })
            }
            (Runtime::AssertSizeStride, None) => match &*arguments.args {
                [tensor, size, stride, ..] => match self.value(tensor)? {
                    Value::Name(name) => {
                        let layout = self.layout(size, stride, None)?;
                        Some(StatementKind::Assertion { layout: Some((name, layout)), reads: Vec::new() })
                    }
                    _ => None,
                },
                _ => None,
            },
            (Runtime::AssertAlignment, None) => Some(StatementKind::Assertion { layout: None, reads: Vec::new() }),
            (Runtime::RawStream, Some(name)) => self.host(arguments, Some(name)),
            (Runtime::Host, None) => self.host(arguments, None),
            _ => None,
        }
    }

    fn host(&self, arguments: &Arguments, name: Option<&str>) -> Option<StatementKind> {
        let plain = self.values(&arguments.args)?.iter().all(|value| matches!(value, Value::Scalar(_) | Value::None));
        (plain && arguments.keywords.is_empty()).then(|| StatementKind::Host { name: name.map(str::to_owned) })
    }

    fn operator_call(&self, path: &str, arguments: &Arguments, result: Option<&str>) -> Option<StatementKind> {
        let (callee, operator) = operators::operator(path)?;
        let mut passed = self.values(&arguments.args)?;
        let mut out = None;
        for keyword in &arguments.keywords {
            let value = self.value(&keyword.value)?;
            match keyword.arg.as_ref()?.as_str() {
                "out" => out = Some(value),
                _ => passed.push(value),
            }
        }
        let result = result.map(str::to_owned);
        match (operator, result) {
            (Operator::Compute, result) => Some(StatementKind::Vendor(Vendor { callee, arguments: passed, out, result })),
            (Operator::Copy, Some(name)) => Some(StatementKind::Copy { target: CopyTarget::New(name), sources: passed }),
            (Operator::Copy, None) if !passed.is_empty() => {
                let target = CopyTarget::Into(passed.remove(0));
                Some(StatementKind::Copy { target, sources: passed })
            }
            (Operator::Allocate, Some(name)) => Some(StatementKind::Allocate { name, layout: None }),
            (Operator::Check, None) => Some(StatementKind::Assertion { layout: None, reads: tensors_of(&passed) }),
            _ => None,
        }
    }

    /// `kernel(...)` for C++, `kernel.run(..., stream=stream0)` for Triton.
    fn launch(&self, call: &ExprCall) -> Option<Launch> {
        let kernel = match &*call.func {
            Expr::Attribute(method) if method.attr.as_str() == "run" => self.module_name(&method.value, &Binding::Kernel)?,
            callee => self.module_name(callee, &Binding::Kernel)?,
        };
        let mut launch =
            Launch { kernel: kernel.to_owned(), arguments: self.values(&call.arguments.args)?, keywords: Vec::new(), stream: None };
        for keyword in &call.arguments.keywords {
            match keyword.arg.as_ref()?.as_str() {
                "stream" => match self.value(&keyword.value)? {
                    Value::Scalar(stream) => launch.stream = Some(stream.text),
                    _ => return None,
                },
                name => launch.keywords.push((name.to_owned(), self.value(&keyword.value)?)),
            }
        }
        Some(launch)
    }

    fn method_call(&self, tensor: &Expr, method: &str, arguments: &Arguments) -> Option<StatementKind> {
        if let Expr::Name(name) = tensor
            && name.id.as_str() == self.arguments
        {
            return (method == "clear" && arguments.is_empty()).then_some(StatementKind::ClearArguments);
        }
        let target = self.value(tensor).filter(|value| matches!(value, Value::Name(_) | Value::View(_) | Value::Item { .. }))?;
        let sources = self.values(&arguments.args)?;
        match method {
            "copy_" if !sources.is_empty() && arguments.keywords.is_empty() => {
                Some(StatementKind::Copy { target: CopyTarget::Into(target), sources })
            }
            "zero_" if arguments.is_empty() => Some(StatementKind::Fill { target }),
            _ => None,
        }
    }

    /// A call of a partition or subgraph with its packed argument list.
    fn function_call(&self, call: &ExprCall, results: CallResults) -> Option<StatementKind> {
        let [Expr::Name(packed)] = &*call.arguments.args else { return None };
        let packed = packed.id.to_string();
        if self.local(&packed) != Some(Local::List) || !call.arguments.keywords.is_empty() {
            return None;
        }
        let callee = match &*call.func {
            Expr::Subscript(partition) => Callee::Partition(self.partition(&partition.value, &partition.slice)?),
            function => Callee::Function(self.module_name(function, &Binding::Function)?.to_owned()),
        };
        Some(StatementKind::Call { results, callee, packed })
    }

    /// The number in `self.partitions[N]`.
    fn partition(&self, list: &Expr, index: &Expr) -> Option<usize> {
        let Expr::Attribute(attribute) = list else { return None };
        let Expr::Name(object) = &*attribute.value else { return None };
        let is_own = Some(object.id.as_str()) == self.receiver && attribute.attr.as_str() == "partitions";
        is_own.then(|| self.text_of(index).parse().ok())?
    }

    fn delete(&self, targets: &[Expr]) -> Option<StatementKind> {
        let names = match targets {
            [Expr::Tuple(tuple)] => names_of(&tuple.elts)?,
            _ => names_of(targets)?,
        };
        (!names.iter().any(|name| name == self.arguments)).then_some(StatementKind::Free { names })
    }

    fn returned(&self, value: Option<&Expr>) -> Option<StatementKind> {
        let values = match value.map(|value| self.value(value)) {
            None => Vec::new(),
            Some(value) => match value? {
                Value::List(values) => values,
                value => vec![value],
            },
        };
        Some(StatementKind::Return { values })
    }

    fn assertion(&self, assert: &StmtAssert) -> Option<StatementKind> {
        // An f-string in the message names numbers only; it is evaluated when the check has failed.
        match self.value(&assert.test)? {
            Value::Scalar(scalar) => Some(StatementKind::Assertion { layout: None, reads: scalar.reads }),
            _ => None,
        }
    }

    /// `if not (u0 >= 0): raise RuntimeError('u0 >= 0')`.
    fn raising_check(&self, check: &StmtIf) -> Option<StatementKind> {
        let [Stmt::Raise(_)] = check.body.as_slice() else { return None };
        match self.value(&check.test)? {
            Value::Scalar(scalar) if check.elif_else_clauses.is_empty() => {
                Some(StatementKind::Assertion { layout: None, reads: scalar.reads })
            }
            _ => None,
        }
    }

    /// Reads a `with` block that only selects a device or names a region; its body follows in line. False for any other.
    fn guard(&mut self, with: &StmtWith) -> bool {
        let [item] = with.items.as_slice() else { return false };
        let Expr::Call(call) = &item.context_expr else { return false };
        let known = self.path(&call.func).and_then(|path| operators::runtime(&path)) == Some(Runtime::Guard);
        if !known || item.optional_vars.is_some() || self.host(&call.arguments, None).is_none() {
            return false;
        }
        let end = with.body.first().map_or(with.end(), Ranged::start).to_usize();
        let text = self.text_of(&item.context_expr).to_owned();
        self.push(Span { start: with.start().to_usize(), end }, StatementKind::Guard { text });
        self.block(&with.body);
        true
    }
}

fn names_of(targets: &[Expr]) -> Option<Vec<String>> {
    targets
        .iter()
        .map(|target| match target {
            Expr::Name(name) => Some(name.id.to_string()),
            _ => None,
        })
        .collect()
}

fn keyword<'e>(arguments: &'e Arguments, name: &str) -> Option<&'e Expr> {
    arguments.keywords.iter().find(|keyword| keyword.arg.as_ref().is_some_and(|arg| arg.as_str() == name)).map(|keyword| &keyword.value)
}

fn tensors_of(values: &[Value]) -> Vec<String> {
    let mut names = Vec::new();
    for value in values {
        value.visit(&mut |part| {
            if let Value::Name(name) = part {
                names.push(name.clone());
            }
        });
    }
    names
}

/// Names of size symbols: a letter of torch/utils/_sympy/symbol.py (`s`: size, `u`: known only at run time, `zf`, `zuf`: the same
/// for floats) and a number.
fn is_symbol(name: &str) -> bool {
    let digits = ["zuf", "zf", "s", "u"].iter().find_map(|prefix| name.strip_prefix(prefix));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}
