//! Several launches in the place of one: further kernels, scratch memory around the call, and the calls in order.
//!
//! Where the compiler calls a kernel, this stands then, in the compiler's own idioms (torch 2.11, torch/_inductor/codegen/wrapper.py,
//! `generate_workspace_allocation`):
//!
//! ```text
//! name_scratch_0 = empty_strided_cuda((1056, ), (1, ), torch.float32)
//! name.run(arg0_1, name_scratch_0, stream=stream0)
//! name_then_1.run(name_scratch_0, buf0, stream=stream0)
//! del name_scratch_0
//! ```
//!
//! Memory comes from torch's allocator on the current stream and goes back to it; nothing waits for the device.

use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::launch::{Launch, Scratch};
use kernelopt_shared::meaning::Meaning;
use ruff_python_ast::Expr;

use super::ModelFile;
use super::error::StitchError;
use super::literal::quote;
use super::read_value::span_of;
use super::statement::{Statement, StatementKind};
use super::text::Span;
use super::triton::{kernel_name, mentions, python};

/// What is done where a kernel was launched.
#[derive(Clone, Debug)]
pub struct Sequence<'a> {
    /// The kernel.
    pub kernel: &'a str,
    /// Its arguments.
    pub meaning: &'a Meaning,
    /// Launches and scratch.
    pub candidate: &'a Candidate,
    /// Texts of all kernels but the first, which stands in the file already.
    pub sources: &'a [String],
}

/// A piece of the text and what stands in its place.
struct Edit {
    at: Span,
    text: String,
}

impl ModelFile {
    /// The file with a sequence in the place of each launch of its kernel. Every other byte stays. The result is parsed again, and
    /// must hold exactly the kernels and statements asked for.
    ///
    /// # Errors
    /// The kernel is launched in a way that has no room for a sequence, or a name is taken.
    pub fn with_sequence(&self, sequence: &Sequence<'_>) -> Result<String, StitchError> {
        let source = self.replaceable(sequence.kernel)?;
        let refuse = |reason: String| StitchError::NotReplaceable { kernel: sequence.kernel.to_owned(), reason };
        if let Some(name) = sequence.names().find(|name| mentions(self.text(), name)) {
            return Err(refuse(format!("the name {name} is taken")));
        }
        if self.is_used_otherwise(sequence.kernel) {
            return Err(refuse("it is used in a statement that is not understood".into()));
        }
        let mut edits = vec![self.definitions(source.literal, sequence).ok_or_else(|| refuse("its definition is not understood".into()))?];
        let mut expected = Vec::new();
        for statement in self.functions().iter().flat_map(|function| &function.statements) {
            match &statement.kind {
                StatementKind::Launch(launch) if launch.kernel == sequence.kernel => {
                    let place = Place::of(statement, self.text()).ok_or_else(|| refuse("its launch is not understood".into()))?;
                    let lines = sequence.lines(&place).ok_or_else(|| refuse("its launch has other arguments".into()))?;
                    edits.push(Edit { at: statement.span, text: lines.join(&format!("\n{}", place.indent)) });
                    expected.extend(lines);
                }
                _ => expected.push(statement.span.of(self.text()).to_owned()),
            }
        }
        edits.sort_by_key(|edit| edit.at.start);
        let written = self.edited(&edits);
        self.verify_sequence(&written, &expected, sequence)?;
        Ok(written)
    }

    /// True where something that is no launch names the kernel.
    fn is_used_otherwise(&self, kernel: &str) -> bool {
        let statements = self.functions().iter().flat_map(|function| &function.statements);
        let inside = statements.filter_map(|statement| match &statement.kind {
            StatementKind::Opaque(opaque) => Some(&opaque.mentions),
            _ => None,
        });
        let outside = self.graphs().iter().flat_map(|graph| &graph.opaque).map(|opaque| &opaque.mentions);
        inside.chain(outside).flatten().any(|name| name == kernel)
    }

    /// Definitions of the further kernels, behind that of the first.
    fn definitions(&self, literal: Span, sequence: &Sequence<'_>) -> Option<Edit> {
        let rest = &self.text()[literal.end..];
        let end = literal.end + rest.find('\n')?;
        let closing = &self.text()[literal.end..end];
        let original = literal.of(self.text());
        let definition = |(number, source): (usize, &String)| {
            let name = kernel_name(sequence.kernel, number + 1);
            format!("\n\n\n{name} = async_compile.triton('{name}', {}{closing}", quote(source, original))
        };
        Some(Edit { at: Span { start: end, end }, text: sequence.sources.iter().enumerate().map(definition).collect() })
    }

    fn edited(&self, edits: &[Edit]) -> String {
        let (mut written, mut copied) = (String::new(), 0);
        for Edit { at, text } in edits {
            written.push_str(&self.text()[copied..at.start]);
            written.push_str(text);
            copied = at.end;
        }
        written.push_str(&self.text()[copied..]);
        written
    }

    fn verify_sequence(&self, written: &str, expected: &[String], sequence: &Sequence<'_>) -> Result<(), StitchError> {
        let unfaithful = |detail: String| Err(StitchError::Unfaithful { detail });
        let again = match Self::parse(written) {
            Ok(again) => again,
            Err(error) => return unfaithful(error.to_string()),
        };
        let statements = |file: &Self| -> Vec<Statement> { file.functions().iter().flat_map(|f| &f.statements).cloned().collect() };
        let found = statements(&again);
        if !found.iter().map(|statement| statement.span.of(written)).eq(expected.iter().map(String::as_str)) {
            return unfaithful(format!("the statements around the launches of {} are not those asked for", sequence.kernel));
        }
        let opaque = |statements: &[Statement]| statements.iter().filter(|s| matches!(s.kind, StatementKind::Opaque(_))).count();
        if opaque(&found) != opaque(&statements(self)) {
            return unfaithful(format!("the launches of {} are not understood", sequence.kernel));
        }
        let further: Vec<String> = (1..=sequence.sources.len()).map(|number| kernel_name(sequence.kernel, number)).collect();
        let (new, old): (Vec<_>, Vec<_>) = again.kernels().iter().partition(|kernel| further.contains(&kernel.name));
        let text = |kernel: &super::kernel::Kernel| kernel.source().map(|source| source.text.clone());
        let is_kept =
            old.iter().map(|kernel| (&kernel.name, text(kernel))).eq(self.kernels().iter().map(|kernel| (&kernel.name, text(kernel))));
        let is_new = new.iter().map(|kernel| text(kernel)).eq(sequence.sources.iter().cloned().map(Some));
        if is_kept && is_new { Ok(()) } else { unfaithful(format!("the kernels of {} are not those given", sequence.kernel)) }
    }
}

/// A launch as it stands in the file.
struct Place<'a> {
    indent: &'a str,
    /// Positional arguments, as written.
    arguments: Vec<String>,
    /// The stream, as written.
    stream: String,
}

impl<'a> Place<'a> {
    /// `kernel.run(a, b, stream=stream0)`, alone on its line.
    fn of(statement: &Statement, text: &'a str) -> Option<Self> {
        let start = text[..statement.span.start].rfind('\n').map_or(0, |at| at + 1);
        let indent = &text[start..statement.span.start];
        let written = statement.span.of(text);
        let parsed = ruff_python_parser::parse_expression(written).ok()?;
        let Expr::Call(call) = parsed.expr() else { return None };
        let [stream] = &*call.arguments.keywords else { return None };
        let is_plain = indent.bytes().all(|byte| byte == b' ') && stream.arg.as_ref().is_some_and(|name| name.as_str() == "stream");
        let arguments = call.arguments.args.iter().map(|argument| span_of(argument).of(written).to_owned()).collect();
        is_plain.then(|| Self { indent, arguments, stream: span_of(&stream.value).of(written).to_owned() })
    }
}

impl Sequence<'_> {
    /// Names that it brings into the file.
    fn names(&self) -> impl Iterator<Item = String> {
        let kernels = (1..=self.sources.len()).map(|number| kernel_name(self.kernel, number));
        kernels.chain((0..self.candidate.scratch.len()).map(|number| self.scratch_name(number)))
    }

    fn scratch_name(&self, number: usize) -> String {
        format!("{}_scratch_{number}", self.kernel)
    }

    /// The statements in place of one launch.
    fn lines(&self, place: &Place<'_>) -> Option<Vec<String>> {
        if place.arguments.len() != self.meaning.arguments.len() {
            return None;
        }
        let mut lines = Vec::new();
        for (number, scratch) in self.candidate.scratch.iter().enumerate() {
            let name = self.scratch_name(number);
            lines.push(format!("{name} = empty_strided_cuda(({}, ), (1, ), torch.{})", self.elements(scratch, place)?, scratch.dtype));
            if scratch.zeroed {
                lines.push(format!("{name}.zero_()"));
            }
        }
        for (number, launch) in self.candidate.launches().enumerate() {
            let passed = self.passed(launch, place)?.into_iter().chain([format!("stream={}", place.stream)]);
            lines.push(format!("{}.run({})", kernel_name(self.kernel, number), passed.collect::<Vec<_>>().join(", ")));
        }
        lines.extend((0..self.candidate.scratch.len()).map(|number| format!("del {}", self.scratch_name(number))));
        Some(lines)
    }

    fn passed(&self, launch: &Launch, place: &Place<'_>) -> Option<Vec<String>> {
        if launch.arguments.is_empty() {
            return Some(place.arguments.clone());
        }
        let one = |name: &String| match self.candidate.scratch.iter().position(|scratch| scratch.name == *name) {
            Some(number) => Some(self.scratch_name(number)),
            None => self.argument(name, place).map(str::to_owned),
        };
        launch.arguments.iter().map(one).collect()
    }

    /// What is passed for the target's argument of that name.
    fn argument<'p>(&self, name: &str, place: &'p Place<'_>) -> Option<&'p str> {
        let position = self.meaning.arguments.iter().position(|argument| argument.name == name)?;
        place.arguments.get(position).map(String::as_str)
    }

    fn elements(&self, scratch: &Scratch, place: &Place<'_>) -> Option<String> {
        let constants = &self.candidate.launch.as_ref()?.constants;
        let known = |name: &str| match constants.get(name) {
            Some(value) => Some(value.to_string()),
            None => self.argument(name, place).map(|text| if is_word(text) { text.to_owned() } else { format!("({text})") }),
        };
        scratch.elements.variables().into_iter().all(|name| known(name).is_some()).then_some(())?;
        Some(python(&scratch.elements, &|name| known(name).unwrap_or_default()))
    }
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
