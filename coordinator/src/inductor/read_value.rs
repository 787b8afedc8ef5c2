//! Expressions of the Python tree to [`Value`]s.

use ruff_python_ast::{Arguments, Expr, ExprCall, ExprSubscript};
use ruff_text_size::Ranged;

use super::operators::{self, Operator, Runtime};
use super::reader::{Local, Reader};
use super::text::Span;
use super::value::{Layout, Scalar, Value, View, ViewKind};

impl Reader<'_> {
    /// Reads an expression; `None` where anything in it is not understood.
    pub(super) fn value(&self, expr: &Expr) -> Option<Value> {
        match expr {
            Expr::NoneLiteral(_) => Some(Value::None),
            Expr::NumberLiteral(_) | Expr::BooleanLiteral(_) | Expr::StringLiteral(_) => Some(Value::scalar(self.text_of(expr))),
            Expr::Name(name) => self.name(name.id.as_str()),
            Expr::List(list) => self.values(&list.elts).map(Value::List),
            Expr::Tuple(tuple) => self.values(&tuple.elts).map(Value::List),
            Expr::Attribute(attribute) => match self.path(expr) {
                Some(path) => path.starts_with("torch.").then(|| Value::scalar(path)),
                None => self.query(expr, &attribute.value, attribute.attr.as_str(), &operators::SHAPE_QUERIES, false),
            },
            Expr::Call(call) => self.call_value(expr, call),
            Expr::Subscript(subscript) => self.subscript(expr, subscript),
            Expr::UnaryOp(_) | Expr::BinOp(_) | Expr::Compare(_) | Expr::BoolOp(_) | Expr::If(_) => self.number(expr, [expr]),
            _ => None,
        }
    }

    pub(super) fn values<'e>(&self, items: impl IntoIterator<Item = &'e Expr>) -> Option<Vec<Value>> {
        items.into_iter().map(|item| self.value(item)).collect()
    }

    fn name(&self, name: &str) -> Option<Value> {
        match self.local(name)? {
            Local::Number => Some(Value::scalar(name)),
            Local::Path(path) => Some(Value::scalar(path)),
            Local::Nothing => Some(Value::None),
            Local::Buffer | Local::Result | Local::Input | Local::List => Some(Value::Name(name.to_owned())),
        }
    }

    /// A number computed from numbers.
    fn number<'e>(&self, whole: &Expr, parts: impl IntoIterator<Item = &'e Expr>) -> Option<Value> {
        let mut reads = Vec::new();
        parts.into_iter().try_for_each(|part| self.number_reads(part, &mut reads))?;
        Some(Value::Scalar(Scalar { text: self.text_of(whole).to_owned(), reads }))
    }

    /// What a number is read from. Only the whole expression keeps its text: one per level would cost its square.
    fn number_reads(&self, expr: &Expr, reads: &mut Vec<String>) -> Option<()> {
        match expr {
            Expr::UnaryOp(unary) => self.number_reads(&unary.operand, reads),
            Expr::BinOp(binary) => self.number_reads(&binary.left, reads).and_then(|()| self.number_reads(&binary.right, reads)),
            Expr::Compare(compare) => {
                self.number_reads(&compare.left, reads)?;
                compare.comparators.iter().try_for_each(|part| self.number_reads(part, reads))
            }
            Expr::BoolOp(bool_op) => bool_op.values.iter().try_for_each(|part| self.number_reads(part, reads)),
            Expr::If(choice) => {
                [&choice.test, &choice.body, &choice.orelse].into_iter().try_for_each(|part| self.number_reads(part, reads))
            }
            other => match self.value(other)? {
                Value::Scalar(scalar) => {
                    reads.extend(scalar.reads);
                    Some(())
                }
                _ => None,
            },
        }
    }

    /// `tensor.size(0)`, `tensor.item()`: a number that a tensor is asked for.
    fn query(&self, whole: &Expr, tensor: &Expr, what: &str, known: &[&str], elements: bool) -> Option<Value> {
        if !known.contains(&what) {
            return None;
        }
        let mut inner = tensor;
        if elements {
            while let Expr::Call(call) = inner
                && let Expr::Attribute(method) = &*call.func
                && operators::ELEMENT_QUERIES.contains(&method.attr.as_str())
                && call.arguments.is_empty()
            {
                inner = &method.value;
            }
        }
        let mut reads = Vec::new();
        match self.value(inner)? {
            Value::Scalar(_) | Value::None | Value::List(_) => return None,
            value => value.visit(&mut |part| {
                if let Value::Name(name) = part {
                    reads.push(name.clone());
                }
            }),
        }
        if !elements {
            reads.clear();
        }
        Some(Value::Scalar(Scalar { text: self.text_of(whole).to_owned(), reads }))
    }

    fn call_value(&self, whole: &Expr, call: &ExprCall) -> Option<Value> {
        let arguments = &call.arguments;
        if let Some(path) = self.path(&call.func) {
            return match operators::runtime(&path) {
                Some(Runtime::Reinterpret | Runtime::AllocFromPool) => self.view_call(whole, &path, arguments),
                Some(_) => None,
                None => self.path_call(whole, &path, arguments),
            };
        }
        match &*call.func {
            Expr::Name(function) if self.is_builtin(function.id.as_str()) && arguments.keywords.is_empty() => {
                operators::NUMBER_FUNCTIONS.contains(&function.id.as_str()).then(|| self.number(whole, &arguments.args))?
            }
            Expr::Attribute(method) => self.method(whole, &method.value, method.attr.as_str(), arguments),
            _ => None,
        }
    }

    fn path_call(&self, whole: &Expr, path: &str, arguments: &Arguments) -> Option<Value> {
        match path {
            "torch.device" => {
                let parts = arguments.args.iter().chain(arguments.keywords.iter().map(|keyword| &keyword.value));
                self.number(whole, parts)
            }
            _ if path.starts_with("math.") => self.number(whole, &arguments.args),
            _ => match operators::operator(path)? {
                (name, Operator::View) => {
                    self.values(arguments.keywords.iter().map(|keyword| &keyword.value))?;
                    let base = self.values(&arguments.args)?.into_iter().next()?;
                    let layout = layout_of(&base)
                        .filter(|_| name == "torch.ops.aten.view.dtype")
                        .map(|layout| Layout { dtype: arguments.args.get(1).and_then(|dtype| self.dtype(dtype)), ..layout });
                    self.view(whole, ViewKind::Operator(name), base, layout)
                }
                _ => None,
            },
        }
    }

    /// `reinterpret_tensor(base, size, stride, offset)` or `alloc_from_pool(pool, offset, dtype, size, stride)`.
    fn view_call(&self, whole: &Expr, path: &str, arguments: &Arguments) -> Option<Value> {
        if !arguments.keywords.is_empty() {
            return None;
        }
        let (kind, base, layout) = match (&*arguments.args, operators::runtime(path)?) {
            ([base, size, stride, rest @ ..], Runtime::Reinterpret) if rest.len() <= 1 => {
                let offset = rest.first().map_or("0", |offset| self.text_of(offset)).to_owned();
                (ViewKind::Reinterpret { offset }, base, self.layout(size, stride, None)?)
            }
            ([base, offset, dtype, size, stride], Runtime::AllocFromPool) => {
                (ViewKind::Pool { offset: self.text_of(offset).to_owned() }, base, self.layout(size, stride, Some(dtype))?)
            }
            _ => return None,
        };
        self.view(whole, kind, self.value(base)?, Some(layout))
    }

    fn method(&self, whole: &Expr, tensor: &Expr, method: &str, arguments: &Arguments) -> Option<Value> {
        match method {
            "item" if arguments.is_empty() => self.query(whole, tensor, method, &["item"], true),
            _ if operators::SHAPE_QUERIES.contains(&method) => {
                self.number(whole, &arguments.args)?;
                self.query(whole, tensor, method, &operators::SHAPE_QUERIES, false)
            }
            _ if operators::VIEW_METHODS.contains(&method) && arguments.keywords.is_empty() => {
                self.values(&arguments.args)?;
                let layout = match (&*arguments.args, method) {
                    ([size, stride], "as_strided") => self.layout(size, stride, None),
                    _ => None,
                };
                self.view(whole, ViewKind::Method(method.to_owned()), self.value(tensor)?, layout)
            }
            _ => None,
        }
    }

    fn view(&self, whole: &Expr, kind: ViewKind, base: Value, layout: Option<Layout>) -> Option<Value> {
        let is_tensor = matches!(base, Value::Name(_) | Value::View(_) | Value::Item { .. });
        is_tensor.then(|| Value::View(Box::new(View { kind, base, layout, span: span_of(whole) })))
    }

    fn subscript(&self, whole: &Expr, subscript: &ExprSubscript) -> Option<Value> {
        match (self.value(&subscript.value)?, &*subscript.slice) {
            (Value::Scalar(scalar), Expr::NumberLiteral(_)) => {
                Some(Value::Scalar(Scalar { text: self.text_of(whole).to_owned(), reads: scalar.reads }))
            }
            (Value::Scalar(_) | Value::None | Value::List(_), _) => None,
            (base, Expr::NumberLiteral(_) | Expr::StringLiteral(_)) => {
                let key = self.text_of(&*subscript.slice).to_owned();
                match &base {
                    Value::Name(name) if matches!(self.local(name), Some(Local::Buffer)) => self.view(whole, ViewKind::Slice, base, None),
                    Value::View(_) => self.view(whole, ViewKind::Slice, base, None),
                    _ => Some(Value::Item { base: Box::new(base), key }),
                }
            }
            (base, slice) => {
                self.is_slice(slice).then_some(())?;
                self.view(whole, ViewKind::Slice, base, None)
            }
        }
    }

    /// `1:3`, or a tuple of such and of numbers.
    fn is_slice(&self, expr: &Expr) -> bool {
        let number = |part: &Expr| matches!(self.value(part), Some(Value::Scalar(_)));
        match expr {
            Expr::Slice(slice) => [&slice.lower, &slice.upper, &slice.step].into_iter().flatten().all(|part| number(part)),
            Expr::Tuple(tuple) => tuple.elts.iter().all(|part| matches!(part, Expr::EllipsisLiteral(_)) || self.is_slice(part)),
            other => number(other),
        }
    }

    /// A shape written as two tuples of numbers.
    pub(super) fn layout(&self, size: &Expr, stride: &Expr, dtype: Option<&Expr>) -> Option<Layout> {
        let numbers = |expr: &Expr| -> Option<Vec<String>> {
            let items = match expr {
                Expr::Tuple(tuple) => &tuple.elts,
                Expr::List(list) => &list.elts,
                _ => return None,
            };
            items.iter().map(|item| self.value(item).and_then(scalar_text)).collect()
        };
        let dtype = match dtype {
            None => None,
            Some(expr) => Some(self.dtype(expr)?),
        };
        Some(Layout { size: numbers(size)?, stride: numbers(stride)?, dtype })
    }

    /// `torch.float32` to `float32`.
    fn dtype(&self, expr: &Expr) -> Option<String> {
        Some(self.path(expr)?.strip_prefix("torch.")?.to_owned())
    }
}

fn scalar_text(value: Value) -> Option<String> {
    match value {
        Value::Scalar(scalar) => Some(scalar.text),
        _ => None,
    }
}

fn layout_of(value: &Value) -> Option<Layout> {
    match value {
        Value::View(view) => view.layout.clone(),
        _ => None,
    }
}

pub(super) fn span_of(ranged: &impl Ranged) -> Span {
    Span { start: ranged.start().to_usize(), end: ranged.end().to_usize() }
}
