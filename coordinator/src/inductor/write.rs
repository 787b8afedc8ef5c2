//! Writes a file with other sources in some of its kernels.

use std::collections::BTreeMap;

use super::ModelFile;
use super::error::StitchError;
use super::kernel::{Kernel, KernelKind, Source};
use super::literal::quote;

/// New sources by kernel name.
pub type Replacements = BTreeMap<String, String>;

impl ModelFile {
    /// The file with `replacements` in place of the sources of those kernels. Every other byte stays: without
    /// replacements the text is the one that was parsed. The result is parsed again, and must hold exactly the sources
    /// asked for and the same text around them.
    pub fn write(&self, replacements: &Replacements) -> Result<String, StitchError> {
        for kernel in replacements.keys() {
            self.replaceable(kernel)?;
        }
        let mut written = String::with_capacity(self.text.len());
        let mut copied = 0;
        for (kernel, source) in self.sources() {
            if let Some(replacement) = replacements.get(&kernel.name).filter(|new| **new != source.text) {
                written.push_str(&self.text[copied..source.literal.start]);
                written.push_str(&quote(replacement, source.literal.of(&self.text)));
                copied = source.literal.end;
            }
        }
        written.push_str(&self.text[copied..]);
        self.verify(&written, replacements)?;
        Ok(written)
    }

    /// The kernel's source, where it is known which one runs.
    pub fn replaceable(&self, kernel: &str) -> Result<&Source, StitchError> {
        let mut definitions = self.kernels().iter().filter(|definition| definition.name == kernel);
        let refuse = |reason: String| Err(StitchError::NotReplaceable { kernel: kernel.to_owned(), reason });
        match (definitions.next(), definitions.next()) {
            (None, _) => Err(StitchError::NoSuchKernel { kernel: kernel.to_owned() }),
            (Some(first), Some(second)) => refuse(format!("it is defined twice, on lines {} and {}", first.line, second.line)),
            (Some(Kernel { kind: KernelKind::Source(source), .. }), None) => Ok(source),
            (Some(Kernel { kind: KernelKind::Foreign { maker, .. }, .. }), None) => {
                refuse(format!("it is made by {maker}, not from a source"))
            }
        }
    }

    /// Kernels with a source, in order of the text.
    fn sources(&self) -> impl Iterator<Item = (&Kernel, &Source)> {
        self.kernels().iter().filter_map(|kernel| kernel.source().map(|source| (kernel, source)))
    }

    /// The text between the sources.
    fn frame(&self) -> Vec<&str> {
        let mut pieces = Vec::new();
        let mut start = 0;
        for (_, source) in self.sources() {
            pieces.push(&self.text[start..source.literal.start]);
            start = source.literal.end;
        }
        pieces.push(&self.text[start..]);
        pieces
    }

    fn verify(&self, written: &str, replacements: &Replacements) -> Result<(), StitchError> {
        let unfaithful = |detail: String| Err(StitchError::Unfaithful { detail });
        let again = match Self::parse(written) {
            Ok(again) => again,
            Err(error) => return unfaithful(error.to_string()),
        };
        if again.frame() != self.frame() {
            return unfaithful("the text around the sources changed".into());
        }
        for ((kernel, before), (_, after)) in self.sources().zip(again.sources()) {
            if after.text != *replacements.get(&kernel.name).unwrap_or(&before.text) {
                return unfaithful(format!("the source of {} is not the one given", kernel.name));
            }
        }
        Ok(())
    }
}
